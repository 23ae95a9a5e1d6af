"""Dead letters as the dispatcher writes them, and how one is found by its name."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from berth.core.requests.dead_reasons import (
    CODES,
    INTERNAL,
    INVALID,
    OTHER,
    UNDECODABLE,
    UNKNOWN_KIND,
    WRONG_SUBJECT,
    code_of,
)
from berth.runtime.bus.port import Stored
from berth.runtime.dead_letters.letters import Letter, LetterError, find_each, find_letter, read_letters
from berth.runtime.dead_letters.writing import DATA_MAX, dead_letter
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel
from berth.schemas.status import DeadLetter, Purge, Replay
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await Cell().open()
    yield made
    await made.close()


async def published(cell: Cell, job: str, data: bytes) -> int:
    return await cell.user.publish(cell.user.subjects.intake_request("default", job), data)


async def letters(cell: Cell) -> list[Letter]:
    return (await read_letters(cell.user)).letters


async def test_each_message_that_is_no_request_has_a_letter_with_the_kind_of_the_reason(cell: Cell) -> None:
    newer = msgspec.msgpack.encode(("intake.newer", 1, ()))
    invalid = msgspec.msgpack.encode(("intake.request", 1, (7,)))
    for data in (b'{"name": "naive"}', newer, invalid, encode(a_job("other")), encode(JobCancel("default", "x", ""))):
        await published(cell, "x", data)
    await cell.turns(2)
    found = await letters(cell)
    assert [code_of(one.body) for one in found] == [UNDECODABLE, UNKNOWN_KIND, INVALID, WRONG_SUBJECT, WRONG_SUBJECT]
    assert [one.id for one in found] == [f"intake:{number}" for number in range(1, 6)]
    first = found[0].body
    assert (first.data, first.size_bytes, first.stored_ms) == (b'{"name": "naive"}', 17, cell.clock.now_ms())
    assert first.reason.endswith("; it looks like JSON")
    assert [one.state for one in found] == ["open"] * 5


async def test_a_fact_that_cannot_be_applied_has_the_kind_of_its_reason(cell: Cell) -> None:
    await cell.user.publish(cell.user.subjects.fact_node("bucket-all"), b"\xff damaged")
    await cell.user.publish(cell.user.subjects.fact_node("bucket-all"), msgspec.msgpack.encode(("fact.node", 1, ())))
    await cell.turns(2)
    assert [(one.id, one.body.code) for one in await letters(cell)] == [("facts:1", UNDECODABLE), ("facts:2", INVALID)]


async def test_a_letter_of_a_long_message_has_its_beginning_its_size_and_its_headers(cell: Cell) -> None:
    headers = {"A": "1", "B": "2" * 5_000, "C": "3"}
    stored = Stored(cell.user.subjects.intake_request("default", "long"), 7, b"x" * 70_000, 5, headers)
    await dead_letter(cell.user, cell.clock, StreamName.INTAKE, stored, "too long", code=INTERNAL)
    (letter,) = await letters(cell)
    assert (len(letter.body.data), letter.body.size_bytes, letter.body.stored_ms) == (DATA_MAX, 70_000, 5)
    assert letter.body.headers == {"A": "1"}
    assert letter.is_cut


def test_states_of_a_letter() -> None:
    fresh = DeadLetter("INTAKE", 1, "s", "why", b"data", 5)
    begun = msgspec.structs.replace(fresh, replay=Replay(6, "me", 1))
    done = msgspec.structs.replace(fresh, replay=Replay(6, "me", 1, 2))
    purged = msgspec.structs.replace(done, data=b"", purge=Purge(7, "me"))
    found = [Letter(1, one) for one in (fresh, begun, done, purged)]
    assert [one.state for one in found] == ["open", "replaying", "replayed", "purged"]
    assert [one.is_open for one in found] == [True, True, False, False]


def test_letters_of_other_releases_have_a_kind_that_is_known() -> None:
    old = DeadLetter("INTAKE", 1, "s", "why", b"{}", 5)
    assert code_of(old) == UNDECODABLE
    assert code_of(msgspec.structs.replace(old, data=encode(a_job("j")))) == OTHER
    assert code_of(msgspec.structs.replace(old, code="of-a-newer-release")) == OTHER
    assert {code_of(msgspec.structs.replace(old, code=code)) for code in CODES} == set(CODES)
    assert not Letter(1, old).is_cut
    assert Letter(1, msgspec.structs.replace(old, data=b"x" * DATA_MAX)).is_cut


async def test_a_letter_is_found_by_its_name_and_by_its_number_if_that_is_clear(cell: Cell) -> None:
    await published(cell, "x", b"junk")
    await published(cell, "x", b"junk")
    await cell.user.publish(cell.user.subjects.fact_node("bucket-all"), b"junk")
    await cell.turns(2)
    assert (await find_letter(cell.user, "2")).id == "intake:2"
    assert (await find_letter(cell.user, "FACTS:1")).id == "facts:1"
    with pytest.raises(LetterError, match="dead letter 1: say which of intake:1 and facts:1 is meant"):
        await find_letter(cell.user, "1")
    with pytest.raises(LetterError, match="there is no dead letter facts:2; see: berth dead list"):
        await find_letter(cell.user, "facts:2")
    for name in ("", "x", "ledger:1", "intake:-1", "intake:1.5", "\u0661"):
        with pytest.raises(LetterError, match="expected a name as berth dead list prints it"):
            await find_letter(cell.user, name)
    assert [one.id for one in await find_each(cell.user, ["2", "intake:2", "intake:1"])] == ["intake:2", "intake:1"]


async def test_a_message_in_dead_that_is_no_letter_is_told(cell: Cell) -> None:
    await cell.user.publish(cell.user.subjects.dead(StreamName.INTAKE, 9), b"\xff")
    found = await read_letters(cell.user)
    assert (found.letters, found.unreadable) == ([], [1])
    with pytest.raises(LetterError, match="is no dead letter"):
        await find_letter(cell.user, "9")
