import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from berth.runtime.errors import FatalError, PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, OutcomeSeen, RankFailure
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.subjects import StreamName
from berth.services.binder.app import bind_on
from berth.services.binder.cluster import BindResult, FactlessCluster, Gang, Manner, NotYetError
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from tests.support.busy_bus import BusyBus
from tests.support.chained_records import append, append_broken
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.waiting import pause, until

RESOURCE = "huawei.com/Ascend910"
CONFIG = BinderConfig(gangs_at_once=2, retry_wait_max_s=0.002)
PLACEMENT = placement_of(["n0", "n1"], [(), ()], [Run(2, 0, 100)], resource=RESOURCE)


class FakeCluster(FactlessCluster):
    """Cluster that remembers what it was asked, and fails when told to.

    ``errors`` are raised one after another before anything works; while ``gate`` is not set, binding waits.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.run_ms: dict[str, int] = {}
        self.errors: list[Exception] = []
        self.answers: dict[str, BindResult] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.most_at_once = 0
        self._at_once = 0

    async def bind(self, gang: Gang) -> BindResult:
        self.asked.append(("bind", gang.uid, gang.attempt))
        self.run_ms[gang.uid] = gang.run_ms
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self._at_once -= 1
        return self.answers.get(gang.uid, BindResult(2))

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        assert manner == "plain"
        assert reason
        self.asked.append(("evict", gang.uid, gang.attempt))
        if self.errors:
            raise self.errors.pop(0)


class World:
    """A bus, a ledger, and a binder on a fake cluster."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = FakeServer(self.clock)
        self.bus = FakeBus(self.server, "test")
        self.cluster = FakeCluster()
        self.records = 0

    async def append(self, record: Epoch | Round) -> None:
        self.records = await append(self.bus, record)

    async def epoch(self) -> None:
        await self.append(Epoch(1, self.records, 0, 0, "me", Settings()))

    async def round(
        self,
        *placed: str,
        evict: tuple[str, ...] = (),
        release: tuple[str, ...] = (),
        attempt: int = 1,
    ) -> None:
        await self.append(
            Round(
                1,
                self.records,
                0,
                0,
                1,
                verdicts=[Verdict("ns", f"job-{uid}", uid, attempt, PLACEMENT) for uid in placed],
                evictions=[Eviction(uid, attempt, "cancelled") for uid in evict],
                releases=[Release(uid, attempt, "cancelled") for uid in release],
            )
        )

    def outcomes(self) -> list[OutcomeSeen]:
        facts = self.server.stream(self.bus.subjects.stream(StreamName.FACTS)).messages.values()
        prefix = self.bus.subjects.facts("outcome").removesuffix(">")
        return [
            decode(stored.data, OutcomeSeen)
            for stored in facts
            if stored.subject.startswith(prefix) and stored.data != b"junk"
        ]

    def states(self) -> list[tuple[str, str]]:
        return [(seen.uid, seen.state) for seen in self.outcomes()]

    async def has(self, *states: tuple[str, str]) -> None:
        await until(
            lambda: sorted(self.states()) == sorted(states), deadline_s=5, what=f"{states} (now {self.states()})"
        )

    @asynccontextmanager
    async def binder(self, bus: FakeBus | None = None) -> AsyncIterator[None]:
        stop = asyncio.Event()
        bus = bus or FakeBus(self.server, "test")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                bind_on(self.cluster, bus, self.clock, CONFIG, Instruments.make(BinderMetrics), stop), name="binder"
            )
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait([task], timeout=5)
        await bus.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    await found.epoch()
    yield found
    await found.bus.close()


async def test_what_the_ledger_places_is_bound_and_its_outcome_told(world: World) -> None:
    async with world.binder():
        await world.round("a", "b")
        await world.has(("a", "bound"), ("b", "bound"))
    (first, _) = world.outcomes()
    assert (first.namespace, first.name, first.attempt, first.bound, first.ledger_seq) == ("ns", "job-a", 1, 2, 2)
    assert first.at_ms == world.clock.now_ms()


async def test_the_run_time_comes_from_the_accepted_job(world: World) -> None:
    for uid, owner in (("a", "a"), ("b", "somebody else")):
        request = JobRequest("ns", f"job-{uid}", owner, RESOURCE, [], run_ms=700)
        fact = JobSeen("ns", f"job-{uid}", owner, "accepted", 1, request=request)
        await world.bus.publish(world.bus.subjects.fact_job("ns", f"job-{uid}"), encode(fact))
    async with world.binder():
        await world.round("a", "b", "c")
        await world.has(("a", "bound"), ("b", "bound"), ("c", "bound"))
    assert world.cluster.run_ms == {"a": 700, "b": 0, "c": 0}


async def test_pods_that_cannot_be_bound_make_a_failed_outcome(world: World) -> None:
    world.cluster.answers["a"] = BindResult(1, [RankFailure(1, "taken")])
    world.cluster.answers["b"] = BindResult(1)
    async with world.binder():
        await world.round("a", "b")
        await world.has(("a", "failed"), ("b", "failed"))
    found = {seen.uid: seen for seen in world.outcomes()}
    assert (found["a"].bound, found["a"].failures) == (1, [RankFailure(1, "taken")])
    assert len(found["b"].failures) == 1


async def test_an_attempt_the_cluster_will_never_take_fails(world: World) -> None:
    world.cluster.errors = [PoisonError("forbidden")]
    async with world.binder():
        await world.round("a")
        await world.has(("a", "failed"))
    assert world.outcomes()[0].failures == [RankFailure(0, "forbidden"), RankFailure(1, "forbidden")]


async def test_a_cluster_that_does_not_answer_is_asked_again(world: World) -> None:
    world.cluster.errors = [TransientError("away", retry_after_s=0.001) for _ in range(4)]
    async with world.binder():
        await world.round("a")
        await world.has(("a", "bound"))
    assert world.cluster.asked == [("bind", "a", 1)] * 5


async def test_a_cluster_that_waits_for_something_is_asked_when_it_said_and_not_before(world: World) -> None:
    world.cluster.errors = [NotYetError("no pods yet", retry_after_s=60)]
    async with world.binder():
        await world.round("a")
        await until(lambda: world.cluster.asked, deadline_s=5, what="a try to bind")
        await world.round("b")
        await world.has(("b", "bound"))
        await pause(10 * CONFIG.retry_wait_max_s)
    assert world.cluster.asked == [("bind", "a", 1), ("bind", "b", 1)]


async def test_an_outcome_that_could_not_be_told_is_told_later(world: World) -> None:
    async with world.binder():
        world.cluster.gate.clear()
        await world.round("a")
        await until(lambda: world.cluster.asked, deadline_s=5, what="a try to bind")
        world.server.lose_messages = 2
        world.cluster.gate.set()
        await world.has(("a", "bound"))
    assert len(world.cluster.asked) == 3


async def test_an_eviction_ends_the_attempt(world: World) -> None:
    async with world.binder():
        await world.round("a")
        await world.has(("a", "bound"))
        await world.round(evict=("a",))
        await world.has(("a", "bound"), ("a", "evicted"))
    assert world.cluster.asked == [("bind", "a", 1), ("evict", "a", 1)]
    assert world.outcomes()[-1].bound == 2


async def test_an_eviction_that_fails_is_tried_again(world: World) -> None:
    async with world.binder():
        await world.round("a")
        await world.has(("a", "bound"))
        world.cluster.errors = [TransientError(retry_after_s=0.001), PoisonError("no")]
        await world.round(evict=("a",))
        await world.has(("a", "bound"), ("a", "evicted"))


async def test_an_attempt_released_while_it_waits_is_left_alone(world: World) -> None:
    world.cluster.errors = [TransientError("away", retry_after_s=0.001)]
    world.cluster.gate.clear()
    async with world.binder():
        await world.round("a")
        await until(lambda: world.cluster.asked, deadline_s=5, what="a try to bind")
        await world.round("b", release=("a",))
        await until(lambda: len(world.cluster.asked) == 2, deadline_s=5, what="the next gang")
        world.cluster.gate.set()
        await world.has(("b", "bound"))
    assert world.cluster.asked == [("bind", "a", 1), ("bind", "b", 1)]


async def test_a_result_for_a_released_attempt_is_not_told(world: World) -> None:
    world.cluster.gate.clear()
    async with world.binder():
        await world.round("a")
        await until(lambda: world.cluster.asked, deadline_s=5, what="a try to bind")
        await world.round("b", release=("a",))
        await until(lambda: len(world.cluster.asked) == 2, deadline_s=5, what="the next gang")
        world.cluster.gate.set()
        await world.has(("b", "bound"))
    assert world.states() == [("b", "bound")]


async def test_only_so_many_gangs_are_bound_at_the_same_time(world: World) -> None:
    uids = [f"u{number}" for number in range(9)]
    async with world.binder():
        world.cluster.gate.clear()
        await world.round(*uids)
        await until(lambda: len(world.cluster.asked) == 2, deadline_s=5, what="two gangs in hand")
        world.cluster.gate.set()
        await world.has(*((uid, "bound") for uid in uids))
    assert world.cluster.most_at_once == 2


async def test_a_restarted_binder_binds_only_what_has_no_outcome(world: World) -> None:
    async with world.binder():
        await world.round("a", "b")
        await world.has(("a", "bound"), ("b", "bound"))
    await world.round("c", evict=("b",))
    await world.round("d")
    await world.round(release=("d",))
    world.cluster.asked.clear()
    async with world.binder():
        await world.has(("a", "bound"), ("b", "bound"), ("b", "evicted"), ("c", "bound"))
    assert sorted(world.cluster.asked) == [("bind", "c", 1), ("evict", "b", 1)]


async def test_what_is_in_hand_is_finished_before_the_end(world: World) -> None:
    async with world.binder():
        world.cluster.gate.clear()
        await world.round("a")
        await until(lambda: world.cluster.asked, deadline_s=5, what="a try to bind")
        asyncio.get_running_loop().call_later(0.02, world.cluster.gate.set)
    assert world.states() == [("a", "bound")]


async def test_an_unreadable_outcome_changes_nothing(world: World) -> None:
    async with world.binder():
        await world.bus.publish(world.bus.subjects.fact_outcome("ns", "x"), b"junk")
        await world.round("a")
        await world.has(("a", "bound"))


async def append_junk(world: World) -> None:
    async with world.binder():
        await append_broken(world.bus)
        await asyncio.Event().wait()


async def test_a_record_that_cannot_be_read_ends_the_binder_as_it_ends_every_reader(world: World) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await append_junk(world)
    assert caught.group_contains(FatalError, match="record 2 breaks the ledger: .* berth repair")


async def break_history(world: World) -> None:
    async with world.binder():
        await world.round("a")
        await world.has(("a", "bound"))
        world.server.rewind(world.bus.subjects.stream(StreamName.LEDGER), 1)
        await asyncio.Event().wait()


async def test_a_broken_history_ends_the_binder(world: World) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await break_history(world)
    assert caught.group_contains(FatalError)


async def test_outcomes_that_come_between_the_first_read_and_the_follow_after_it_count(world: World) -> None:
    """Another binder, which ends, has bound the pods meanwhile: they are not bound once more."""

    async def comes() -> None:
        outcome = OutcomeSeen("ns", "job-a", "a", 1, "bound", 2)
        await world.bus.publish(world.bus.subjects.fact_outcome("ns", "job-a"), encode(outcome))

    await world.round("a")
    async with world.binder(BusyBus(world.server, StreamName.LATEST, comes)):
        await world.round("b")
        await world.has(("a", "bound"), ("b", "bound"))
    assert [uid for _, uid, _ in world.cluster.asked] == ["b"]
