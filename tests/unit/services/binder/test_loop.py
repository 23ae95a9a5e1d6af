"""The binder's loop: pauses between tries, what is told while an attempt is in hand, what an outcome says."""

import asyncio
from collections.abc import Sequence

import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, OutcomeSeen, RankFailure
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.subjects import StreamName
from berth.services.binder.cluster import BindResult, FactlessCluster, Gang, Manner, NotYetError
from berth.services.binder.config import BinderConfig
from berth.services.binder.loop import FAILURES_REPORTED_MAX, Loop
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.work import AttemptKey, Work
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.waiting import until

KEY = ("a", 1)
PLACEMENT = placement_of(["n0", "n1"], [(0,), (1,)], [Run(2, 1)], resource="huawei.com/Ascend910")


class Cluster(FactlessCluster):
    """Answers as it is told to; while ``gate`` is not set, binding waits."""

    def __init__(self) -> None:
        self.answer = BindResult(2)
        self.errors: list[Exception] = []
        self.asked: list[str] = []
        self.run_ms: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def bind(self, gang: Gang) -> BindResult:
        self.asked.append(f"bind {gang.uid}")
        self.run_ms.append(gang.run_ms)
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return self.answer

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        assert reason
        self.asked.append(f"evict {gang.uid}" + ("" if manner == "plain" else f" with {manner}"))
        if self.errors:
            raise self.errors.pop(0)


class NotedLoop(Loop):
    """Notes the pauses instead of making them."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # the same as of the loop
        self.waits: list[tuple[str, float]] = []

    def _again_in(self, key: AttemptKey, wait_s: float) -> None:
        self.waits.append((key[0], wait_s))


class NotingBus(FakeBus):
    """Notes of which subjects the last message is read."""

    def __init__(self, server: FakeServer, cell: str) -> None:
        super().__init__(server, cell)
        self.read_last: list[str] = []

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        self.read_last.append(subject)
        return await super().last(stream, subject)


class Binder:
    """A loop, the ledger that it works from, and a bus for its outcomes."""

    def __init__(self, kind: type[Loop] = Loop, bus: type[FakeBus] = FakeBus, **settings: object) -> None:
        self.server = FakeServer(ManualClock())
        self.bus = bus(self.server, "cell")
        self.cluster = Cluster()
        config = BinderConfig(**settings)  # type: ignore[arg-type]  # fields of the settings
        self.instruments = Instruments.make(BinderMetrics)
        self.loop = kind(self.bus, self.cluster, self.server.clock, config, Work(), self.instruments)
        self.work = self.loop.work
        self.head = 1
        self.work.apply_record(1, self.work.fold.encoded(Epoch(1, 0, 0, 0, "me", Settings())))

    async def open(self) -> "Binder":
        await self.bus.ensure_streams()
        return self

    def record(self, *placed: str, evict: Sequence[str] = (), freed: Sequence[int] = ()) -> None:
        record = Round(
            1,
            self.head,
            0,
            0,
            1,
            verdicts=[Verdict("ns", f"job-{uid}", uid, 1, PLACEMENT) for uid in placed],
            evictions=[Eviction(uid, 1, "cancelled") for uid in evict],
            releases=[Release("a", 1, "succeeded", ranks=list(freed))] if freed else [],
        )
        self.head += 1
        self.loop.wake(self.work.apply_record(self.head, self.work.fold.encoded(record)))

    async def outcomes(self) -> list[OutcomeSeen]:
        return [decode(stored.data, OutcomeSeen) for stored in await self.bus.read(StreamName.FACTS)]


async def test_pauses_between_tries_double_up_to_a_bound() -> None:
    loop = Binder(NotedLoop, retry_wait_max_s=10.0).loop
    assert isinstance(loop, NotedLoop)
    for _ in range(6):
        loop._later(KEY, TransientError("away", retry_after_s=0))
    assert loop.waits == [("a", wait_s) for wait_s in (0.25, 0.5, 1, 2, 4, 8)]
    loop._later(("b", 1), TransientError("busy", retry_after_s=5))
    loop._later(("b", 1), TransientError("busy", retry_after_s=5))
    loop._later(("c", 1), TransientError("busy", retry_after_s=60))
    assert loop.waits[6:] == [("b", 5), ("b", 0.5), ("c", 10)], (
        "what the cluster asks for counts the first time, and within the bound"
    )


async def test_what_was_done_begins_anew_with_its_tries() -> None:
    binder = await Binder().open()
    binder.record("a")
    binder.cluster.errors = [TransientError("away", retry_after_s=60)]
    await binder.loop._advance(KEY)
    assert binder.loop._tries == {KEY: 1}
    await binder.loop._advance(KEY)
    assert binder.loop._tries == {}
    binder.loop._waiting[KEY].cancel()
    await binder.bus.close()


async def test_the_accepted_request_is_read_once_for_all_tries_of_an_attempt() -> None:
    binder = await Binder(bus=NotingBus).open()
    assert isinstance(binder.bus, NotingBus)
    request = JobRequest("ns", "job-a", "a", "huawei.com/Ascend910", [], run_ms=700)
    subject = binder.bus.subjects.fact_job("ns", "job-a")
    await binder.bus.publish(subject, encode(JobSeen("ns", "job-a", "a", "accepted", 1, request=request)))
    binder.record("a")
    binder.cluster.errors = [NotYetError("no pods yet", retry_after_s=600) for _ in range(3)]
    for _ in range(4):
        await binder.loop._advance(KEY)
    assert binder.cluster.run_ms == [700] * 4
    assert binder.bus.read_last == [subject]
    binder.loop._waiting[KEY].cancel()
    await binder.bus.close()


async def test_of_two_pauses_of_an_attempt_the_later_one_counts() -> None:
    binder = await Binder().open()
    binder.record("a")
    binder.loop._again_in(KEY, 60)
    first = binder.loop._waiting[KEY]
    binder.loop._again_in(KEY, 30)
    assert first.cancelled()
    assert not binder.loop._waiting[KEY].cancelled()
    binder.loop._waiting[KEY].cancel()
    await binder.bus.close()


async def test_what_is_told_of_an_attempt_while_it_is_in_hand_is_looked_at_afterwards() -> None:
    binder = await Binder().open()
    binder.cluster.gate.clear()
    binder.cluster.errors = [NotYetError("no pods yet", retry_after_s=600)]
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(binder.loop.run(stop), name="binder")
        binder.record("a")
        await until(lambda: binder.cluster.asked, deadline_s=5, what="a try to bind")
        binder.record(freed=[1])
        binder.cluster.answer = BindResult(1)
        binder.cluster.gate.set()
        try:
            await until(lambda: len(binder.cluster.asked) == 2, deadline_s=2, what="another try at once")
            await until(lambda: binder.loop.idle, deadline_s=2, what="the outcome")
        finally:
            stop.set()
    assert [(seen.state, seen.bound) for seen in await binder.outcomes()] == [("bound", 1)]
    await binder.bus.close()


async def test_ranks_that_were_released_are_not_missed() -> None:
    binder = await Binder().open()
    binder.record("a")
    binder.record(freed=[0])
    binder.cluster.answer = BindResult(1)
    await binder.loop._advance(KEY)
    (seen,) = await binder.outcomes()
    assert (seen.state, seen.bound, seen.failures) == ("bound", 1, [])
    await binder.bus.close()


@pytest.mark.parametrize(
    ("failures", "state"), [(FAILURES_REPORTED_MAX, "bound"), (FAILURES_REPORTED_MAX + 1, "failed")]
)
async def test_a_gang_is_left_in_part_only_if_all_who_failed_can_be_told(failures: int, state: str) -> None:
    binder = await Binder(partial="leave").open()
    binder.record("a")
    named = [RankFailure(rank, "taken") for rank in range(failures)]
    seen = binder.loop._outcome(binder.work.attempts[KEY], BindResult(1), named)
    assert (seen.state, len(seen.failures)) == (state, FAILURES_REPORTED_MAX)
    await binder.bus.close()


async def test_an_eviction_that_is_refused_is_not_done() -> None:
    binder = await Binder().open()
    binder.record("a")
    await binder.loop._advance(KEY)
    binder.record(evict=["a"])
    binder.cluster.errors = [PoisonError("forbidden")]
    await binder.loop._advance(KEY)
    assert [seen.state for seen in await binder.outcomes()] == ["bound"]
    await binder.loop._advance(KEY)
    assert [seen.state for seen in await binder.outcomes()] == ["bound", "evicted"]
    assert binder.cluster.asked == ["bind a", "evict a", "evict a"]
    binder.loop._waiting[KEY].cancel()
    await binder.bus.close()


async def test_the_outcome_of_an_eviction_says_what_had_become_of_the_attempt() -> None:
    binder = await Binder().open()
    binder.record("a")
    binder.cluster.answer = BindResult(1, [RankFailure(1, "taken")])
    await binder.loop._advance(KEY)
    binder.record(evict=["a"])
    await binder.loop._advance(KEY)
    failed, evicted = await binder.outcomes()
    assert (failed.state, failed.ledger_seq) == ("failed", 2)
    assert (evicted.state, evicted.ledger_seq, evicted.bound) == ("evicted", 3, 1)
    assert evicted.failures == [RankFailure(1, "taken")]
    await binder.bus.close()
