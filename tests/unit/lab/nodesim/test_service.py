import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import unpack_health, unpack_nodes
from berth.core.topologies.switches.occupancy.leaf_table import check_topology
from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.nodesim.app import serve
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.runtime.errors import FatalError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSeen, JobSeen, Leaf, NodeHealth, NodesSeen, PodPhase, PodsSeen, TopologySeen
from berth.schemas.intake import JobRequest
from berth.schemas.message import Message
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.simulation import BindGang, BreakNode, EvictGang, GangBound, GangEvicted, NodeBroken, SimCounts
from berth.schemas.subjects import StreamName
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.waiting import until

M = TypeVar("M", bound=Message)
EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "cluster.yaml"
SMALL = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a{index}", leaf: one}
  - {product: module910bx8, count: 2, name: "b{index}", leaf: two}
  - {product: "310", name: loose}
faults:
  - {node: a0, chips: [3], kind: unhealthy, from: 10s, for: 10s}
"""
PLACEMENT = placement_of(["a0", "b1"], [(0, 1), (2,)], [Run(1, 2), Run(1, 1)], resource="huawei.com/Ascend910")


class World:
    """A bus, and a simulated cluster on it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.server = FakeServer(self.clock)
        self.bus = FakeBus(self.server, "test")
        self.file = folder / "cluster.yaml"
        self.write(SMALL)
        self.config = NodesimConfig(
            topology_file=self.file, run_default_s=5, terminating_s=1, tick_s=0.005, retry_wait_s=0.005, retry_wait_max_s=0.01
        )  # fmt: skip

    def write(self, text: str) -> None:
        self.file.write_text(text, "utf-8")

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        bus = FakeBus(self.server, "test")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                serve(bus, self.clock, self.config, Instruments.make(NodesimMetrics), stop), name="nodesim"
            )
            try:
                await until(
                    lambda: len(self.server.services) == 4 or task.done(), deadline_s=10, what="the cluster to stand"
                )
                yield
            finally:
                stop.set()
                await asyncio.wait([task], timeout=5)
        await bus.close()

    async def ask(self, verb: str, wish: Message, answer: type[M]) -> M:
        return decode(await self.bus.request(self.bus.subjects.sim(verb), encode(wish), timeout_s=5), answer)

    async def bind(self, placement: Placement = PLACEMENT, *, name: str = "job", attempt: int = 1, run_ms: int = 3000) -> GangBound:  # fmt: skip
        return await self.ask("bind", BindGang("ns", name, f"uid-{name}", attempt, placement, run_ms), GangBound)

    async def counts(self) -> SimCounts:
        return await self.ask("counts", BindGang("", "", "", 0, PLACEMENT), SimCounts)

    def facts(self) -> list[tuple[str, bytes]]:
        stream = self.server.stream(self.bus.subjects.stream(StreamName.FACTS))
        return [(stored.subject, stored.data) for _, stored in sorted(stream.messages.items())]

    def history(self, subject: str) -> list[bytes]:
        return [data for found, data in self.facts() if found == subject]

    def nodes(self, domain: str) -> list[NodesSeen]:
        return [decode(data, NodesSeen) for data in self.history(self.bus.subjects.fact_node(domain))]

    def health(self, domain: str) -> list[HealthSeen]:
        return [decode(data, HealthSeen) for data in self.history(self.bus.subjects.fact_health(domain))]

    def phases(self, name: str = "job") -> list[list[str]]:
        seen = [decode(data, PodsSeen) for data in self.history(self.bus.subjects.fact_pod("ns", name))]
        return [[PodPhase(phase).name for phase in pods.phase] for pods in seen]

    async def has(self, *phases: list[str], name: str = "job") -> None:
        await until(lambda: self.phases(name) == list(phases), deadline_s=5, what=f"{phases}, now {self.phases(name)}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = World(tmp_path)
    yield found
    await found.bus.close()


async def test_the_example_cluster_stands(world: World) -> None:
    world.write(EXAMPLE.read_text("utf-8"))
    expected = parse_cluster(EXAMPLE.read_text("utf-8"))
    async with world.cluster():
        assert (await world.counts()).nodes == 42
    found = [decode(data, NodesSeen) for subject, data in world.facts() if ".fact.node." in subject]
    assert {message.domain for message in found} == set(domains(expected.nodes))
    assert sorted(node.name for message in found for node in unpack_nodes(message)) == sorted(
        node.name for node in expected.nodes
    )
    (switches,) = world.history(world.bus.subjects.fact_topology("switch"))
    assert len(decode(switches, TopologySeen).leaves) == 6


async def test_switches_are_said_in_the_order_of_the_file_and_again_when_anything_of_them_differs(world: World) -> None:
    told: list[TopologySeen] = []
    for more in ("", "", "switches: {level: single_layer}", "switches: {level: single_layer, places: 3}", ""):
        world.write(SMALL.replace("leaf: one", "leaf: z-one") + more)
        async with world.cluster():
            pass
        found = world.history(world.bus.subjects.fact_topology("switch"))
        told = [decode(data, TopologySeen) for data in found]
        check_topology(told[-1])
    assert [[leaf.name for leaf in fact.leaves] for fact in told] == [["z-one", "two"]] * 4
    assert told[0].leaves[0] == Leaf("z-one", "", ["a0", "a1"], [0, 1], ["10.0.0.1", "10.0.0.2"])
    assert [(fact.level, fact.places) for fact in told] == [
        ("double_layer", 0),
        ("single_layer", 0),
        ("single_layer", 3),
        ("double_layer", 0),
    ]


async def test_a_fact_about_switches_that_cannot_be_read_is_overwritten(world: World) -> None:
    await world.bus.ensure_streams()
    await world.bus.publish(world.bus.subjects.fact_topology("switch"), b"no message")
    async with world.cluster():
        pass
    found = world.history(world.bus.subjects.fact_topology("switch"))
    assert [leaf.name for leaf in decode(found[-1], TopologySeen).leaves] == ["one", "two"]


async def test_a_restart_says_nothing_new(world: World) -> None:
    async with world.cluster():
        pass
    before = world.facts()
    world.clock.advance(3)
    async with world.cluster():
        pass
    assert world.facts() == before


async def test_a_changed_file_says_only_what_changed_and_buries_what_is_gone(world: World) -> None:
    async with world.cluster():
        pass
    before = len(world.facts())
    world.write(SMALL.replace('"b{index}", leaf: two', '"b{index}", leaf: three'))
    async with world.cluster():
        pass
    subjects = world.bus.subjects
    assert [subject for subject, _ in world.facts()[before:]] == [
        subjects.fact_node("leaf-two"),
        subjects.fact_health("leaf-two"),
        subjects.fact_node("leaf-three"),
        subjects.fact_health("leaf-three"),
        subjects.fact_topology("switch"),
    ]
    assert unpack_nodes(world.nodes("leaf-two")[-1]) == []
    assert unpack_health(world.health("leaf-two")[-1]) == []


async def test_a_node_that_moves_leaves_its_old_domain_first(world: World) -> None:
    async with world.cluster():
        pass
    before = len(world.facts())
    world.write(
        SMALL.replace("name: loose", "name: loose, leaf: one").replace('"a{index}", leaf: one', '"a{index}", leaf: two')
    )
    async with world.cluster():
        pass
    where: dict[str, str] = {}
    for subject, data in world.facts()[:before] + world.facts()[before:]:
        if ".fact.node." in subject:
            message = decode(data, NodesSeen)
            where = {name: domain for name, domain in where.items() if domain != message.domain}
            for node in unpack_nodes(message):
                assert where.setdefault(node.name, message.domain) == message.domain
    assert where == {"a0": "leaf-two", "a1": "leaf-two", "b0": "leaf-two", "b1": "leaf-two", "loose": "leaf-one"}


async def test_a_fault_comes_and_goes(world: World) -> None:
    async with world.cluster():
        world.clock.advance(10)
        await until(lambda: len(world.health("leaf-one")) == 2, deadline_s=5, what="the fault")
        world.clock.advance(10)
        await until(lambda: len(world.health("leaf-one")) == 3, deadline_s=5, what="the recovery")
    assert [unpack_health(seen)[0].unhealthy for seen in world.health("leaf-one")] == [0, 0b1000, 0]
    assert [unpack_nodes(seen)[0].allocatable for seen in world.nodes("leaf-one")] == [8, 7, 8]
    assert len(world.health("leaf-two")) == 1


async def test_pods_run_for_their_time(world: World) -> None:
    async with world.cluster():
        assert await world.bind() == GangBound(2)
        await world.has(["RUNNING", "RUNNING"])
        assert await world.bind() == GangBound(2)
        world.clock.advance(2.9)
        assert (await world.counts()).pods_live == 2
        world.clock.advance(0.1)
        await world.has(["RUNNING", "RUNNING"], ["SUCCEEDED", "SUCCEEDED"])
        counts = await world.counts()
    assert (counts.pods_ended, counts.chips_held, counts.double_allocations) == (2, 0, 0)


async def test_evicted_pods_terminate_and_are_gone(world: World) -> None:
    async with world.cluster():
        await world.bind()
        assert await world.ask("evict", EvictGang("ns", "job", "uid-job", 1, "why"), GangEvicted) == GangEvicted(2)
        world.clock.advance(1)
        await world.has(["RUNNING", "RUNNING"], ["TERMINATING", "TERMINATING"], ["GONE", "GONE"])


async def test_a_chip_given_twice_is_counted(world: World) -> None:
    async with world.cluster():
        await world.bind()
        bound = await world.bind(name="other")
        assert (bound.bound, len(bound.failures)) == (0, 2)
        assert (await world.counts()).double_allocations == 3
    assert world.phases("other") == []


async def test_running_pods_survive_a_restart(world: World) -> None:
    request = JobRequest("ns", "job", "uid-job", "huawei.com/Ascend910", [], run_ms=3000)
    async with world.cluster():
        fact = JobSeen("ns", "job", "uid-job", "accepted", 1, request=request)
        await world.bus.publish(world.bus.subjects.fact_job("ns", "job"), encode(fact))
        await world.bind()
    world.clock.advance(2)
    async with world.cluster():
        counts = await world.counts()
        assert (counts.pods_live, counts.chips_held) == (2, 3)
        assert (await world.bind(name="other")).bound == 0
        world.clock.advance(1)
        await world.has(["RUNNING", "RUNNING"], ["SUCCEEDED", "SUCCEEDED"])


async def test_pods_whose_time_passed_while_nobody_looked_end_at_once(world: World) -> None:
    async with world.cluster():
        await world.bind()
    world.clock.advance(60)
    async with world.cluster():
        await world.has(["RUNNING", "RUNNING"], ["SUCCEEDED", "SUCCEEDED"])


OTHER = JobRequest("ns", "job", "uid-of-another", "huawei.com/Ascend910", [], run_ms=1000)


@pytest.mark.parametrize("fact", [None, b"junk", encode(JobSeen("ns", "job", OTHER.uid, "accepted", 1, request=OTHER))])
async def test_pods_whose_job_nobody_knows_run_as_long_as_those_that_do_not_say(
    world: World, fact: bytes | None
) -> None:
    async with world.cluster():
        await world.bind()
    if fact is not None:
        await world.bus.publish(world.bus.subjects.fact_job("ns", "job"), fact)
    world.clock.advance(4.9)
    async with world.cluster():
        assert (await world.counts()).pods_live == 2
        world.clock.advance(0.1)
        await world.has(["RUNNING", "RUNNING"], ["SUCCEEDED", "SUCCEEDED"])


async def test_facts_are_stored_later_when_the_bus_is_away(world: World) -> None:
    with capture_logs() as lines:
        async with world.cluster():
            await world.bind()
            world.server.is_down = True
            world.clock.advance(3)
            await until(
                lambda: [line for line in lines if line["event"] == "facts not stored"],
                deadline_s=5,
                what="a failed try",
            )
            world.server.is_down = False
            await world.has(["RUNNING", "RUNNING"], ["SUCCEEDED", "SUCCEEDED"])


async def test_a_bus_that_is_away_at_the_end_does_not_hold_up_the_end(world: World) -> None:
    async with world.cluster():
        await world.bind(run_ms=0)
        world.server.is_down = True
        world.clock.advance(5)
    world.server.is_down = False
    async with world.cluster():
        await world.has(["RUNNING", "RUNNING"], ["SUCCEEDED", "SUCCEEDED"])


async def test_a_request_that_cannot_be_read_binds_nothing(world: World) -> None:
    async with world.cluster():
        reply = await world.bus.request(world.bus.subjects.sim("bind"), b"junk", timeout_s=5)
        assert decode(reply, GangBound) == GangBound(0)
        reply = await world.bus.request(world.bus.subjects.sim("evict"), b"junk", timeout_s=5)
        assert decode(reply, GangEvicted) == GangEvicted(0)


@pytest.mark.parametrize("text", [None, "nodes: [", "apiVersion: berth/v1\nkind: Cluster\nnodes: []"])
async def test_a_file_that_describes_no_cluster_is_fatal(world: World, text: str | None) -> None:
    if text is None:
        world.file.unlink()
    else:
        world.write(text)
    with pytest.raises(FatalError) as caught:
        await serve(world.bus, world.clock, world.config, Instruments.make(NodesimMetrics), asyncio.Event())
    assert str(world.file) in caught.value.reason


async def test_a_node_breaks_and_is_repaired_on_command(world: World) -> None:
    async with world.cluster():
        for wish in (
            BreakNode("b0", "chip", [2], level="SeparateNPU"),
            BreakNode("b0", "node", level="PreSeparateFault", lasts_ms=4000),
            BreakNode("b1", "kubelet"),
        ):
            assert (await world.ask("break", wish, NodeBroken)).reason == ""
        (b0, b1) = unpack_health(world.health("leaf-two")[-1])
        assert (b0.name, b0.unhealthy, b0.level) == ("b0", 0b100, NodeHealth.NO_NEW_WORK)
        assert b1.unhealthy == 0
        assert [(node.allocatable, node.ready) for node in unpack_nodes(world.nodes("leaf-two")[-1])] == [
            (7, True),
            (8, False),
        ]
        world.clock.advance(5)
        await until(lambda: len(world.health("leaf-two")) == 4, deadline_s=5, what="the node to be well by itself")
        assert (await world.ask("break", BreakNode("b0", "chip", repair=True), NodeBroken)).reason == ""
        assert [(seen.unhealthy, seen.level) for seen in unpack_health(world.health("leaf-two")[-1])] == [
            (0, 0),
            (0, 0),
        ]
        for wish, reason in (
            (BreakNode("b9", "chip", [0]), "node is 'b9'"),
            (BreakNode("b0", "chip", [0], repair=True), "has no such fault set by command"),
            (BreakNode("b0", "plugin"), "fault is 'plugin'"),
            (BreakNode("b0", "chip", [8]), "chips are"),
        ):
            assert reason in (await world.ask("break", wish, NodeBroken)).reason
