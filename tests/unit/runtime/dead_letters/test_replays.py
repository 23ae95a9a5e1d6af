"""A replay stores the request of a letter once, whatever happens in between."""

from collections.abc import AsyncIterator, Mapping

import msgspec
import pytest

from berth.core.requests.dead_reasons import INTERNAL
from berth.runtime.bus.port import Stored
from berth.runtime.dead_letters.letters import LetterError, find_letter, read_letters
from berth.runtime.dead_letters.purges import purge
from berth.runtime.dead_letters.replays import message_of, replay
from berth.runtime.dead_letters.writing import dead_letter
from berth.runtime.errors import AmbiguousError, TransientError
from berth.schemas.envelope import encode
from berth.schemas.intake import JobRequest
from berth.schemas.status import Replay
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import PickyServer

NAME = "intake:1"


async def made(server: PickyServer | None = None, *, job: JobRequest | None = None) -> Cell:
    """A cell with a letter for the first request, whose message is a request now: what an error of Berth leaves."""
    cell = await Cell(server=server).open()
    await cell.nodes([a_node("a")])
    subject = cell.user.subjects.intake_request("default", "j")
    stored = Stored(subject, await cell.user.publish(subject, b"refused at the time"), encode(job or a_job("j")), 5)
    await dead_letter(cell.user, cell.clock, StreamName.INTAKE, stored, "an error of Berth", code=INTERNAL)
    await cell.turns(2)
    return cell


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    one = await made()
    yield one
    await one.close()


async def requests(cell: Cell) -> list[tuple[int, bytes]]:
    stored = await cell.user.read(StreamName.INTAKE, start_seq=2)
    return [(one.sequence, one.data) for one in stored]


async def test_a_replay_stores_the_bytes_on_the_subject_and_the_job_is_placed(cell: Cell) -> None:
    done = await replay(cell.user, cell.clock, NAME, by="me")
    assert (done.id, done.sequence, done.is_resumed) == (NAME, 2, False)
    assert await requests(cell) == [(2, encode(a_job("j")))]
    letter = await find_letter(cell.user, NAME)
    assert letter.state == "replayed"
    assert letter.body.replay == Replay(cell.clock.now_ms(), "me", 1, 2)
    assert letter.body.reason == "an error of Berth"
    await cell.turns(3)
    status = await cell.status("j")
    assert status is not None
    assert (status.phase, status.uid) == ("placed", "uid-j")
    assert len(await cell.dead()) == 1


async def test_a_letter_is_replayed_once(cell: Cell) -> None:
    await replay(cell.user, cell.clock, NAME, by="me")
    with pytest.raises(LetterError, match="was replayed already, by me as request 2; a letter is replayed once"):
        await replay(cell.user, cell.clock, NAME, by="you")
    assert len(await requests(cell)) == 1


async def test_what_would_be_a_dead_letter_again_is_not_replayed(cell: Cell) -> None:
    await cell.user.publish(cell.user.subjects.intake_request("default", "x"), b"{}")
    await cell.turns(2)
    with pytest.raises(LetterError, match="would become a dead letter again: not an envelope"):
        await replay(cell.user, cell.clock, "2", by="me")
    assert len(await requests(cell)) == 1
    assert (await find_letter(cell.user, "2")).state == "open"


async def test_a_fact_is_not_replayed(cell: Cell) -> None:
    await cell.user.publish(cell.user.subjects.fact_node("bucket-all"), b"junk")
    await cell.turns(2)
    (fact,) = [one for one in (await read_letters(cell.user)).letters if one.body.stream == "FACTS"]
    with pytest.raises(LetterError, match="a fact says how something was at its time"):
        await replay(cell.user, cell.clock, fact.id, by="me")


async def test_a_purged_letter_is_not_replayed(cell: Cell) -> None:
    await purge(cell.user, cell.clock, [await find_letter(cell.user, NAME)], by="me")
    with pytest.raises(LetterError, match="was purged"):
        await replay(cell.user, cell.clock, NAME, by="me")


class LosingAnswers(PickyServer):
    """Stores what is published on subjects with a word in them, and loses the acknowledgement."""

    swallows = ""

    def store(
        self,
        subject: str,
        data: bytes,
        expected: tuple[str, int] | None,
        ttl_s: int | None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        sequence = super().store(subject, data, expected, ttl_s, headers)
        if self.swallows and self.swallows in subject:
            raise AmbiguousError(f"publish to {subject}: time-out")
        return sequence


@pytest.mark.parametrize(("lost", "stored"), [(".intake.", True), (".intake.", False), (".dead.", True)])
async def test_after_a_doubt_the_next_replay_finds_out_and_stores_once(lost: str, stored: bool) -> None:  # noqa: FBT001  # a case
    server = LosingAnswers()
    cell = await made(server)
    if stored:
        server.swallows = lost
    else:
        server.loses = lost
    with pytest.raises(AmbiguousError, match="the same command finds out, and publishes once"):
        await replay(cell.user, cell.clock, NAME, by="me")
    server.swallows = server.loses = ""
    assert (await find_letter(cell.user, NAME)).state == "replaying"
    done = await replay(cell.user, cell.clock, NAME, by="you")
    assert (done.sequence, done.is_resumed) == (2, stored and lost == ".intake.")
    assert await requests(cell) == [(2, encode(a_job("j")))]
    assert (await find_letter(cell.user, NAME)).state == "replayed"
    await cell.close()


class Between(FakeBus):
    """Lets something happen just before a message is published on a subject with a word in it, once."""

    def __init__(self, cell: Cell, word: str) -> None:
        super().__init__(cell.server, cell.cell)
        self._cell = cell
        self._word = word
        self.happens = ""

    async def before_publish(self, subject: str) -> None:
        if self._word and self._word in subject:
            self._word = ""
            if self.happens == "replay":
                await replay(self._cell.user, self._cell.clock, NAME, by="other")
            else:
                await self._cell.user.publish(subject, encode(a_job("j", uid="newer")))


@pytest.mark.parametrize("word", [".dead.", ".intake."])
async def test_of_two_replays_at_once_one_stores_the_request(cell: Cell, word: str) -> None:
    bus = Between(cell, word)
    bus.happens = "replay"
    with pytest.raises(LetterError, match="was replayed already, by other as request 2"):
        await replay(bus, cell.clock, NAME, by="me")
    assert await requests(cell) == [(2, encode(a_job("j")))]
    await bus.close()


async def test_a_newer_request_on_the_subject_does_not_hide_the_replay(cell: Cell) -> None:
    bus = Between(cell, ".intake.")
    done = await replay(bus, cell.clock, NAME, by="me")
    assert (done.sequence, done.is_resumed) == (3, False)
    assert [sequence for sequence, _ in await requests(cell)] == [2, 3]
    assert (await find_letter(cell.user, NAME)).body.replay == Replay(cell.clock.now_ms(), "me", 2, 3)
    await bus.close()


async def test_a_replay_of_which_nothing_is_known_any_more_is_not_begun_again(cell: Cell) -> None:
    letter = await find_letter(cell.user, NAME)
    begun = msgspec.structs.replace(letter.body, replay=Replay(1, "me", 1))
    await cell.user.publish(cell.user.subjects.dead(StreamName.INTAKE, 1), encode(begun))
    await cell.submit(a_job("k"), a_job("l"))
    await cell.user.purge(StreamName.INTAKE, keep_from_seq=3)
    with pytest.raises(LetterError, match="whether it was published is not known"):
        await replay(cell.user, cell.clock, NAME, by="me")
    assert [sequence for sequence, _ in await requests(cell)] == [3]


async def test_the_rest_of_a_long_message_comes_from_its_stream(cell: Cell) -> None:
    subject = cell.user.subjects.intake_request("default", "long")
    data = encode(a_job("long", labels={"filler": "x" * 70_000}))
    sequence = await cell.user.publish(subject, data)
    stored = Stored(subject, sequence, data, 5)
    await dead_letter(cell.user, cell.clock, StreamName.INTAKE, stored, "an error of Berth", code=INTERNAL)
    letter = await find_letter(cell.user, str(sequence))
    assert letter.is_cut
    assert await message_of(cell.user, letter) == data
    await cell.user.purge(StreamName.INTAKE, keep_from_seq=sequence + 1)
    with pytest.raises(LetterError, match="INTAKE does not have the message any more"):
        await replay(cell.user, cell.clock, letter.id, by="me")


async def test_without_the_bus_nothing_is_begun(cell: Cell) -> None:
    cell.server.is_down = True
    with pytest.raises(TransientError):
        await replay(cell.user, cell.clock, NAME, by="me")
    cell.server.is_down = False
    assert (await find_letter(cell.user, NAME)).state == "open"
