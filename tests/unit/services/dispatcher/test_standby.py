"""A standby follows the leader and takes over where it was."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from berth.core.state.waiting_dump import WaitingDump
from berth.runtime.bus.port import Stored
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.feeds import Feed
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import body_of, decode, encode, open_envelope
from berth.schemas.facts import PodPhase
from berth.schemas.ledger import Epoch, Round
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.dispatcher import loop
from berth.services.dispatcher.leadership import Progress
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.standby import FencedError
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus


class Pair:
    """A cell whose dispatcher leads, and standbys beside it."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def beside(self, name: str = "heir") -> Dispatcher:
        bus = FakeBus(self.cell.server, self.cell.cell)
        self.cell.buses.append(bus)
        return Dispatcher(
            bus, self.cell.clock, self.cell.config, holder=name, instruments=Instruments.make(DispatcherMetrics)
        )

    async def standby(self, name: str = "heir") -> Dispatcher:
        made = self.beside(name)
        await made.load()
        return made

    async def follow(self, heir: Dispatcher) -> None:
        await self.cell.settle()
        await heir.follow(self.cell.dispatcher.progress)

    async def succeed(self, heir: Dispatcher) -> None:
        """The leader ends, and the standby leads."""
        await self.cell.dispatcher.stop()
        await heir.lead()
        self.cell.dispatcher = heir

    async def records(self) -> list[Epoch | Round]:
        found: list[Epoch | Round] = []
        for data in await self.cell.ledger():
            envelope = open_envelope(data)
            found.append(body_of(envelope, Epoch) if envelope.kind == Epoch.KIND else body_of(envelope, Round))
        return found


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two full nodes, and jobs of two classes that find no room."""
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("big0", chips=8), a_job("big1", chips=8))
    await cell.turns(3)
    await cell.submit(*(a_job(f"wait{number}", chips=4 + 4 * (number % 2)) for number in range(4)))
    await cell.turns(3)
    yield Pair(cell)
    await cell.close()


async def test_a_standby_has_the_state_and_the_queue_of_the_leader_at_the_same_record(pair: Pair) -> None:
    heir = await pair.standby()
    for step in range(3):
        await pair.cell.submit(a_job(f"more{step}", chips=8))
        await pair.cell.turns(2)
        await pair.cell.pods(f"big{step % 2}", PodPhase.RUNNING if step < 2 else PodPhase.SUCCEEDED)
        await pair.cell.turns(2)
        await pair.follow(heir)
        assert heir.state.dump(heir.scheduler.dump()) == pair.cell.dispatcher.state.dump(
            pair.cell.dispatcher.scheduler.dump()
        )


async def test_gangs_that_were_refused_are_not_refused_again_by_the_next_leader(pair: Pair) -> None:
    heir = await pair.standby()
    before = len(await pair.records())
    await pair.succeed(heir)
    await pair.cell.turns(3)
    records = await pair.records()
    assert len(records) == before + 1
    epoch = records[-1]
    assert isinstance(epoch, Epoch)
    assert epoch.resumes
    await pair.cell.pods("big0", PodPhase.SUCCEEDED)
    await pair.cell.turns(3)
    placed = [
        verdict.name
        for record in (await pair.records())[before + 1 :]
        if isinstance(record, Round)
        for verdict in record.verdicts
        if verdict.placement is not None
    ]
    assert placed == ["wait0", "wait2"], "what waits wakes as before"


class _Endless(Feed):
    """Records up to a sequence that this standby has already, of which another one arrives whenever one is done."""

    def __init__(self, received: int, head: int) -> None:
        super().__init__(asyncio.Event())
        self.done = 0
        self._arrived_seq = received
        self._head = head

    @property
    def received(self) -> int:
        return self._arrived_seq

    @property
    def next(self) -> Stored | None:
        return Stored("ledger", self.done + 1, b"", 0) if self.done < self._arrived_seq else None

    def skip(self) -> None:
        self.done += 1
        self._arrived_seq = min(self._arrived_seq + 1, self._head)


async def test_a_standby_has_time_for_other_things_however_many_records_arrive(pair: Pair) -> None:
    heir = await pair.standby()
    heir.feeds.records = endless = _Endless(1, heir.state.fold.head)
    await heir.follow(Progress())
    assert endless.done == 1
    await heir.follow(Progress())
    assert endless.done == 2, "the next time it goes on with what arrived meanwhile"  # one more


class _Behind(Feed):
    """Facts of which so many wait that have no record yet."""

    def __init__(self, waiting: int) -> None:
        super().__init__(asyncio.Event())
        self._count = waiting

    @property
    def waiting(self) -> int:
        return self._count


@pytest.mark.parametrize(("every", "most"), [(100, 100_000), (50_000, 200_000)])
async def test_a_standby_that_is_far_behind_gives_up_so_that_the_newest_snapshot_is_loaded(
    pair: Pair, every: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "FACTS_MAX", every)
    heir = await pair.standby()
    heir.feeds.facts = _Behind(most)
    await heir.follow(Progress())
    heir.feeds.facts = _Behind(most + 1)
    with pytest.raises(TransientError, match=f"{most + 1} facts behind the leader"):
        await heir.follow(Progress())


async def test_an_epoch_with_other_settings_tries_everybody_again(pair: Pair) -> None:
    config = pair.cell.config
    pair.cell.config = msgspec.structs.replace(
        config, decisions=msgspec.structs.replace(config.decisions, attempts_max=7)
    )
    heir = await pair.standby()
    before = len(await pair.records())
    await pair.succeed(heir)
    await pair.cell.turns(3)
    epoch, *rounds = (await pair.records())[before:]
    assert isinstance(epoch, Epoch)
    assert not epoch.resumes
    tried = {verdict.name for record in rounds if isinstance(record, Round) for verdict in record.verdicts}
    assert tried == {"wait0", "wait1", "wait2", "wait3"}


async def test_a_start_without_the_whole_history_tries_everybody_again(pair: Pair) -> None:
    server = pair.cell.server
    facts = server.stream(pair.cell.user.subjects.stream(StreamName.FACTS))
    facts.remove(facts.first_seq)
    before = len(await pair.records())
    heir = await pair.standby()
    assert heir.feeds.is_from_latest
    await pair.succeed(heir)
    epoch = (await pair.records())[before]
    assert isinstance(epoch, Epoch)
    assert not epoch.resumes
    await pair.cell.turns(3)
    again = await pair.standby()
    await pair.succeed(again)
    epoch = (await pair.records())[-1]
    assert isinstance(epoch, Epoch)
    assert not epoch.resumes, "the snapshot is as old as before"


async def test_the_first_snapshot_of_a_standby_knows_which_jobs_were_cancelled(pair: Pair) -> None:
    """It began before there was a snapshot, so it writes one when it leads, before its first turn."""
    await pair.cell.user.purge(StreamName.SNAPSHOT, subject=pair.cell.user.subjects.snapshot_all(1))
    heir = await pair.standby()
    await pair.cell.cancel("wait0")
    await pair.cell.turns(2)
    await pair.succeed(heir)
    reader = await pair.standby("reader")
    assert reader.feeds.snapshot == (heir.state.fold.head, heir.state.facts_seq)
    assert not reader.scheduler.open(pair.cell.clock.now_ms()).opening, "who was refused sleeps"


async def test_facts_wait_until_a_record_or_the_leader_says_that_it_knows_them(pair: Pair) -> None:
    heir = await pair.standby()
    await pair.follow(heir)
    known = heir.state.facts_seq
    await pair.cell.pods("big0", PodPhase.RUNNING)
    await pair.cell.settle()
    await heir.follow(Progress(heir.state.fold.head, known))
    assert heir.state.facts_seq == known
    await heir.follow(Progress(heir.state.fold.head - 1, known + 1))
    assert heir.state.facts_seq == known, "said before the last record"
    await heir.follow(Progress(heir.state.fold.head, known + 1))
    assert heir.state.facts_seq == known + 1


async def test_a_record_of_the_leader_before_the_epoch_does_not_fence_the_next_one(pair: Pair) -> None:
    heir = await pair.standby()
    bus = heir.bus
    assert isinstance(bus, FakeBus)
    fold = pair.cell.dispatcher.state.fold
    late = Round(
        epoch=fold.epoch, base_seq=fold.head, facts_seq=fold.facts_seq, at_ms=fold.at_ms, number=fold.rounds + 1
    )
    append = bus.append
    raced: list[int] = []

    async def racing(data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        if not raced:
            raced.append(await append(encode(late), expected_seq=expected_seq))
        return await append(data, expected_seq=expected_seq, timeout_s=timeout_s)

    bus.append = racing  # type: ignore[method-assign]  # another writer comes first
    await pair.succeed(heir)
    assert heir.state.fold.holder == "heir"
    assert heir.state.fold.head == raced[0] + 1


async def test_a_standby_that_comes_second_is_fenced(pair: Pair) -> None:
    first, second = await pair.standby("first"), await pair.standby("second")
    bus = second.bus
    assert isinstance(bus, FakeBus)
    append = bus.append

    async def overtaken(data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        await pair.succeed(first)
        return await append(data, expected_seq=expected_seq, timeout_s=timeout_s)

    bus.append = overtaken  # type: ignore[method-assign]  # the other one comes first
    with pytest.raises(FencedError):
        await second.lead()
    await second.stop()


@pytest.mark.parametrize("stream", [StreamName.FACTS, StreamName.LEDGER])
async def test_a_standby_whose_history_broke_ends(pair: Pair, stream: StreamName) -> None:
    heir = await pair.standby()
    await pair.follow(heir)
    for name in (StreamName.LATEST, stream):  # as a restore does it: facts are not begun again beside their mirror
        pair.cell.server.delete(pair.cell.user.subjects.stream(name))
    await pair.cell.user.ensure_streams()
    await pair.cell.settle()
    with pytest.raises(FatalError, match=stream.value):
        await heir.follow(Progress())
    await heir.stop()


async def test_statuses_that_are_stored_are_not_written_again_and_those_that_are_missing_are(pair: Pair) -> None:
    heir = await pair.standby()
    await pair.follow(heir)
    user = pair.cell.user
    status = user.subjects.status("default", "wait1")
    stored = await user.last(StreamName.STATUS, status)
    assert stored is not None
    old = decode(stored.data, JobStatus)
    await user.publish(status, encode(msgspec.structs.replace(old, ledger_seq=old.ledger_seq - 1)))
    await pair.follow(heir)
    before = (await user.state(StreamName.STATUS)).last_seq
    await pair.succeed(heir)
    await pair.cell.turns(4)
    written = await user.read(StreamName.STATUS, start_seq=before + 1)
    assert [stored.subject for stored in written] == [status]


async def test_a_leader_that_starts_again_gives_finished_jobs_up_in_time(pair: Pair) -> None:
    await pair.cell.pods("big0", PodPhase.SUCCEEDED)
    await pair.cell.turns(4)
    heir = await pair.standby()
    await pair.succeed(heir)
    await pair.cell.turns(3)
    assert ("default", "big0") in heir.state.jobs
    pair.cell.clock.advance(601)
    await pair.cell.turns(3)
    assert ("default", "big0") not in heir.state.jobs


async def test_a_snapshot_that_was_found_is_not_written_again(pair: Pair) -> None:
    await pair.cell.dispatcher.snapshots.write()
    before = (await pair.cell.user.state(StreamName.SNAPSHOT)).last_seq
    await pair.succeed(await pair.standby())
    await pair.cell.turns(2)
    assert (await pair.cell.user.state(StreamName.SNAPSHOT)).last_seq == before


async def test_a_leader_with_nothing_to_do_writes_a_snapshot_after_a_tenth_of_the_messages(pair: Pair) -> None:
    pair.cell.config = msgspec.structs.replace(pair.cell.config, snapshot_records=40)
    await pair.succeed(await pair.standby())
    before = (await pair.cell.user.state(StreamName.SNAPSHOT)).last_seq
    for number in range(4):
        await pair.cell.submit(a_job(f"one{number}", chips=8))
        await pair.cell.turns(2)
    assert (await pair.cell.user.state(StreamName.SNAPSHOT)).last_seq == before, "the last one is not old enough"
    pair.cell.clock.advance(10)
    await pair.cell.turns(2)
    assert (await pair.cell.user.state(StreamName.SNAPSHOT)).last_seq > before


@pytest.mark.parametrize("took_s", [0.1, 1.0])
async def test_a_leader_that_is_never_idle_writes_early_snapshots_where_these_cost_little(
    pair: Pair, took_s: float
) -> None:
    """Else a start under load reads up to 100,000 facts before it decides."""
    pair.cell.config = msgspec.structs.replace(pair.cell.config, snapshot_records=40)
    leader = await pair.standby()
    await pair.succeed(leader)
    dump = leader.state.dump

    def slow_dump(waiting: WaitingDump | None = None) -> bytes:
        pair.cell.clock.advance(took_s)
        return dump(waiting)

    leader.state.dump = slow_dump  # type: ignore[method-assign]  # as that of a large cell
    await leader.snapshots.write()
    pauses: list[float] = []
    for _ in range(2):
        for number in range(4):
            await pair.cell.submit(a_job(f"one{len(pauses)}-{number}", chips=8))
            await pair.cell.turns(2)
        before = leader.snapshots._ledger_seq
        began_s = pair.cell.clock.monotonic_s()
        while leader.snapshots._ledger_seq == before:
            pair.cell.clock.advance(1)
            await leader.snapshots.maybe_write(is_idle=False)
        pauses.append(pair.cell.clock.monotonic_s() - began_s)
    assert pauses == pytest.approx([max(10, 50 * took_s)] * 2, abs=2)


def status_followers() -> int:
    """Followers of statuses that run."""
    return sum(task.get_name() == f"follow {StreamName.STATUS}" for task in asyncio.all_tasks())


async def test_a_leader_receives_no_statuses_once_it_has_read_those_of_others(pair: Pair) -> None:
    assert (pair.cell.dispatcher.views.is_reading, status_followers()) == (False, 0)
    heir = await pair.standby()
    await pair.follow(heir)
    assert (heir.views.is_reading, status_followers()) == (True, 1)
    await pair.succeed(heir)
    await pair.cell.turns(4)
    assert (heir.views.is_reading, status_followers()) == (False, 0)
