"""The binder as a service on a bus and an API server, both in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import OutcomeSeen, PodPhase
from berth.schemas.ledger import Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.binder.app import bind_in_kubernetes
from berth.services.binder.cluster import Gang
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from tests.support.chained_records import append
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer
from tests.support.kube_binder import a_gang, a_node, a_placement, a_pod, members_of, owned, pods_of
from tests.support.waiting import pause, until

PODS = "/api/v1/namespaces/ns/pods"
EVENTS = "/api/v1/namespaces/ns/events"


class World:
    """A cell and a cluster of four nodes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = FakeServer(self.clock)
        self.bus = FakeBus(self.server, "test")
        self.kube = FakeKube(clock=self.clock)
        for number in range(4):
            self.kube.put("/api/v1/nodes", a_node(f"n{number}"))
        self.records = 0

    async def append(self, record: Epoch | Round) -> None:
        self.records = await append(self.bus, record)

    async def round(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the record
        await self.append(Round(1, self.records, 0, self.clock.now_ms(), 1, **changes))

    async def place(self, name: str, placement: Placement, *, attempt: int = 1) -> Gang:
        await self.round(verdicts=[Verdict("ns", name, f"uid-{name}", attempt, placement)])
        return Gang("ns", name, f"uid-{name}", attempt, placement)

    async def members(self, gang: Gang, *names: str, **changes: object) -> None:
        rows = []
        for rank, name in enumerate(names):
            made = self.kube.put(PODS, a_pod(name))
            rows.append((rank, name, str(made["metadata"]["uid"])))
        fact = members_of(gang, rows, **changes)  # type: ignore[arg-type]  # fields of the fact
        await self.bus.publish(self.bus.subjects.fact_member(gang.namespace, gang.name), encode(fact))

    async def pods(self, gang: Gang, *rows: tuple[int, str, PodPhase, int, bool]) -> None:
        await self.bus.publish(self.bus.subjects.fact_pod(gang.namespace, gang.name), encode(pods_of(gang, rows)))

    def outcomes(self) -> list[OutcomeSeen]:
        facts = self.server.stream(self.bus.subjects.stream(StreamName.FACTS)).messages.values()
        prefix = self.bus.subjects.facts("outcome").removesuffix(">")
        return [decode(stored.data, OutcomeSeen) for stored in facts if stored.subject.startswith(prefix)]

    async def has(self, *states: tuple[str, str]) -> None:
        def now() -> list[tuple[str, str]]:
            return [(seen.name, seen.state) for seen in self.outcomes()]

        await until(lambda: sorted(now()) == sorted(states), deadline_s=5, what=f"{states}")

    def node_of(self, name: str) -> str:
        return str(self.kube.object(f"{PODS}/{name}")["spec"].get("nodeName", ""))

    @asynccontextmanager
    async def binder(self, **settings: Any) -> AsyncIterator[None]:  # noqa: ANN401 - fields of the settings
        config = BinderConfig(**{"retry_wait_max_s": 0.01, "notices_per_s": 1_000, **settings})
        stop = asyncio.Event()
        bus = FakeBus(self.server, "test")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                bind_in_kubernetes(self.kube, bus, self.clock, config, Instruments.make(BinderMetrics), stop),
                name="binder",
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
    await found.append(Epoch(1, 0, 0, 0, "me", Settings()))
    yield found
    await found.bus.close()


PAIR = a_placement(["n0", "n1"], [(0,), (0,)])


async def test_a_placed_gang_is_bound_when_its_pods_are_known_before_or_after(world: World) -> None:
    early = a_gang("early", ["n0", "n1"], [(0,), (0,)])
    await world.members(early, "a0", "a1")
    async with world.binder():
        await world.place("early", PAIR)
        await world.has(("early", "bound"))
        late = await world.place("late", a_placement(["n2", "n3"], [(0,), (0,)]))
        await world.members(late, "b0")
        await world.members(late, "b0", "b1")
        await world.has(("early", "bound"), ("late", "bound"))
    assert [world.node_of(name) for name in ("a0", "a1", "b0", "b1")] == ["n0", "n1", "n2", "n3"]
    assert [seen.bound for seen in world.outcomes()] == [2, 2]


async def test_equal_pods_are_bound_when_facts_say_that_the_first_has_its_chips(world: World) -> None:
    gang = a_gang("job", ["n0", "n0"], [(0,), (1,)])
    await world.members(gang, "p0", "p1")
    async with world.binder():
        await world.place("job", gang.placement)
        await until(lambda: world.node_of("p0"), deadline_s=5, what="the first is bound")
        await world.pods(gang, (0, "n0", PodPhase.PENDING, 1, False))
        assert world.node_of("p1") == ""
        await world.pods(gang, (0, "n0", PodPhase.PENDING, 1, True))
        await world.has(("job", "bound"))
    assert world.node_of("p1") == "n0"


async def test_a_gang_in_part_is_undone_by_default(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    await world.members(gang, "p0", "p1")
    owned(world.kube, "p0")
    world.kube.confirm(f"{PODS}/p1")
    async with world.binder():
        await world.place("job", gang.placement)
        await world.has(("job", "failed"))
        (seen,) = world.outcomes()
        assert (seen.bound, [(item.rank, item.reason) for item in seen.failures]) == (1, [(1, "pod p1 is gone")])
        await world.round(evictions=[Eviction("uid-job", 1, "bind-failed")])
        await until(
            lambda: "deletionTimestamp" in world.kube.object(f"{PODS}/p0")["metadata"], deadline_s=5, what="end"
        )
        await world.pods(gang, (0, "n0", PodPhase.TERMINATING, 1, False))
        await world.has(("job", "failed"), ("job", "evicted"))
        await until(lambda: len(world.kube.objects(EVENTS)) == 3, deadline_s=5, what="the Events of both pods")
    assert "deletionTimestamp" in world.kube.object(f"{PODS}/p0")["metadata"]
    assert sorted(
        (event["reason"], event["message"], event["involvedObject"]["name"]) for event in world.kube.objects(EVENTS)
    ) == [
        ("Evicted", "the gang cannot be bound whole: pod p1 is gone", "p0"),
        ("FailedBinding", "pod p1 is gone", "p1"),
        ("Scheduled", "Successfully assigned ns/p0 to n0", "p0"),
    ]


async def test_a_gang_in_part_is_left_where_the_setting_says_so(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    await world.members(gang, "p0", "p1")
    world.kube.confirm(f"{PODS}/p1")
    async with world.binder(partial="leave"):
        await world.place("job", gang.placement)
        await world.has(("job", "bound"))
        (seen,) = world.outcomes()
        assert (seen.bound, [item.rank for item in seen.failures]) == (1, [1])
        await world.round(releases=[Release("uid-job", 1, "vanished", ranks=[1])])
        other = a_gang("other", ["n1"], [(0,)])
        await world.members(other, "q0")
        await world.place("other", other.placement)
        await world.has(("job", "bound"), ("other", "bound"))


async def test_a_gang_of_which_nothing_is_bound_fails_whatever_the_setting(world: World) -> None:
    gang = a_gang("job", ["gone"], [(0,)])
    await world.members(gang, "p0")
    async with world.binder(partial="leave"):
        await world.place("job", gang.placement)
        await world.has(("job", "failed"))


async def test_a_damaged_fact_of_pods_ends_nothing_now_or_after_a_start(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    damaged = msgspec.structs.replace(pods_of(gang, [(0, "n0", PodPhase.PENDING, 1, False)]), node_index=pack([9], 4))
    await world.members(gang, "p0", "p1")
    await world.bus.publish(world.bus.subjects.fact_pod("ns", "job"), encode(damaged))
    async with world.binder():
        await world.place("job", gang.placement)
        await world.has(("job", "bound"))
        await world.bus.publish(world.bus.subjects.fact_pod("ns", "job"), encode(damaged))
        other = a_gang("other", ["n2"], [(0,)])
        await world.members(other, "q0")
        await world.place("other", other.placement)
        await world.has(("job", "bound"), ("other", "bound"))


async def test_a_gang_that_waits_is_evicted_at_once(world: World) -> None:
    async with world.binder():
        await world.place("job", PAIR)
        await world.round(evictions=[Eviction("uid-job", 1, "cancelled")])
        await world.has(("job", "evicted"))


async def test_a_gang_that_never_gets_pods_fails(world: World) -> None:
    async with world.binder(members_wait_s=0):
        await world.place("job", PAIR)
        await world.has(("job", "failed"))


async def test_a_restart_goes_on_where_it_was(world: World) -> None:
    gang = a_gang("job", ["n0", "n1", "n1"], [(0,), (0,), (1,)])
    await world.members(gang, "p0", "p1", "p2")
    async with world.binder():
        await world.place("job", gang.placement)
        await until(lambda: world.node_of("p1"), deadline_s=5, what="the first pods are bound")
    assert world.outcomes() == []
    before = world.kube.object(f"{PODS}/p1")["metadata"]["annotations"]
    async with world.binder():
        await until(
            lambda: sum(call.method == "GET" and "/pods/" in call.path for call in world.kube.calls) >= 3,
            deadline_s=5,
            what="pods are looked at",
        )
        rows = [(0, "n0", PodPhase.PENDING, 1, True), (1, "n1", PodPhase.RUNNING, 1, True)]
        assert world.node_of("p2") == ""
        await world.pods(gang, *rows)
        await world.has(("job", "bound"))
    assert world.kube.object(f"{PODS}/p1")["metadata"]["annotations"] == before
    third = world.kube.object(f"{PODS}/p2")["metadata"]["annotations"]
    assert int(third["predicate-time"]) > int(before["predicate-time"])


async def test_a_server_that_is_away_is_waited_for(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    await world.members(gang, "p0", "p1")
    world.kube.fail(TransientError("away", retry_after_s=0.001), part="/binding", times=9)
    world.kube.fail(AmbiguousError("broke", retry_after_s=0.001), part="/binding", landed=True)
    async with world.binder():
        await world.place("job", gang.placement)
        await world.has(("job", "bound"))


async def test_who_waits_is_told_in_the_cluster(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    async with world.binder():
        await world.members(gang, "p0", "p1")
        status = JobStatus("ns", "job", "uid-job", "waiting", 0, world.clock.now_ms(), sentence="0 of 4 nodes fit")
        await world.bus.publish(world.bus.subjects.status("ns", "job"), encode(status))
        await until(
            lambda: world.kube.object(f"{PODS}/p1")["status"].get("conditions"), deadline_s=5, what="a condition"
        )
        await world.place("job", gang.placement)
        await world.has(("job", "bound"))
    conditions = world.kube.object(f"{PODS}/p1")["status"]["conditions"]
    assert [(item["type"], item["status"]) for item in conditions] == [("PodScheduled", "True")]


async def test_facts_that_cannot_be_read_change_nothing(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    async with world.binder():
        await world.bus.publish(world.bus.subjects.fact_pod("ns", "x"), b"junk")
        await world.bus.publish(world.bus.subjects.fact_member("ns", "x"), b"junk")
        await world.bus.publish(world.bus.subjects.status("ns", "x"), b"junk")
        await world.members(gang, "p0", "p1")
        await world.place("job", gang.placement)
        await world.has(("job", "bound"))


async def test_a_clock_that_goes_back_makes_no_earlier_decisions(world: World) -> None:
    first, second = a_gang("first", ["n0"], [(0,)]), a_gang("second", ["n0"], [(1,)])
    await world.members(first, "p0")
    await world.members(second, "p1")
    await world.place("first", first.placement)
    world.clock.advance(5)
    async with world.binder():
        await world.has(("first", "bound"))
        await world.pods(first, (0, "n0", PodPhase.RUNNING, 1, True))
    world.clock = ManualClock(world.clock.now_ms() - 60_000)
    async with world.binder():
        await world.place("second", second.placement)
        await world.has(("first", "bound"), ("second", "bound"))
    times = [
        int(world.kube.object(f"{PODS}/{name}")["metadata"]["annotations"]["predicate-time"]) for name in ("p0", "p1")
    ]
    assert times[0] < times[1]


async def test_a_gang_that_is_over_leaves_its_slot_to_the_next(world: World) -> None:
    first, second = a_gang("first", ["n0"], [(0,)]), a_gang("second", ["n0"], [(1,)])
    await world.members(first, "p0")
    await world.members(second, "p1")
    async with world.binder():
        await world.place("first", first.placement)
        await world.has(("first", "bound"))
        await world.place("second", second.placement)
        bound = [call.path for call in world.kube.calls if call.path.endswith("/binding")]
        assert bound == [f"{PODS}/p0/binding"]
        await world.round(releases=[Release("uid-first", 1, "vanished")])
        await world.has(("first", "bound"), ("second", "bound"))


async def test_a_pod_that_was_placed_is_not_told_that_it_waits(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    async with world.binder(notices_per_s=5):
        await world.members(gang, "p0", "p1")
        status = JobStatus("ns", "job", "uid-job", "waiting", 0, world.clock.now_ms(), sentence="0 of 4 nodes fit")
        await world.bus.publish(world.bus.subjects.status("ns", "job"), encode(status))
        await until(lambda: world.kube.objects(EVENTS), deadline_s=5, what="the Event, which comes first")
        await world.place("job", gang.placement)
        await world.has(("job", "bound"))
        await pause(0.5)
    for name in ("p0", "p1"):
        conditions = world.kube.object(f"{PODS}/{name}")["status"]["conditions"]
        assert [(item["type"], item["status"]) for item in conditions] == [("PodScheduled", "True")]
