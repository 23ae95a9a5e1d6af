"""SuperPoDs of nodes in the inventory: from reports where nodes are silent, and when nodes move under pods."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
import pytest
from structlog.testing import capture_logs

from berth.core.cluster.node_packing import pack_nodes, unpack_nodes
from berth.core.state.invariants import check
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Handler, RefusedError
from berth.schemas.facts import NodesSeen, PodPhase, PodsSeen
from berth.schemas.nodes import NodeDescription
from berth.services.inventory.nodes import device_reports
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.nodes.uses import Use
from tests.support.fake_kube import FakeKube
from tests.support.fake_reflection import FakeReflection
from tests.support.gang_lifecycle import Life
from tests.unit.services.inventory.nodes.test_device_places import a_node as a_read_node
from tests.unit.services.inventory.nodes.test_device_places import report
from tests.unit.services.inventory.test_service import CONFIG, RESOURCE, World, a_node, a_pod

T = TypeVar("T")
MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
FOR_CLUSTERD: Final = {"mx-consumer-cim": "true"}


class Watched(FakeKube):
    """An API server that notes what is reflected."""

    def __init__(self) -> None:
        super().__init__()
        self.selectors: list[Mapping[str, str]] = []

    def reflect(
        self,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        params: Mapping[str, str] | None = None,
        is_optional: bool = False,
    ) -> FakeReflection[T]:
        self.selectors.append(params or {})
        return super().reflect(path, kind, handler, params=params, is_optional=is_optional)

    @property
    def reads_reports(self) -> bool:
        return {"labelSelector": "mx-consumer-cim=true"} in self.selectors

    def report(self, node: str, text: str) -> None:
        meta = {"name": f"mindx-dl-deviceinfo-{node}", "labels": FOR_CLUSTERD}
        self.put(MAPS, {"metadata": meta, "data": {"DeviceInfoCfg": text}})


class RankState(World):
    """A world of which is asked where nodes stand."""

    def __init__(self) -> None:
        super().__init__()
        self.kube: Watched = Watched()

    def node(self, name: str, **annotations: str) -> None:
        infos = json.dumps({f"Ascend910-{chip}": {} for chip in range(8)})
        self.kube.put("/api/v1/nodes", a_node(name, annotations={"baseDeviceInfos": infos, **annotations}))

    def places(self) -> dict[str, tuple[str, str, int]]:
        last = {fact.domain: fact for fact in self.facts("node", NodesSeen)}
        found = [node for fact in last.values() for node in unpack_nodes(fact)]
        assert len(found) == len({node.name for node in found})
        return {node.name: (node.superpod, node.rack, node.position) for node in found}


@pytest.fixture
async def world() -> AsyncIterator[RankState]:
    found = RankState()
    await found.bus.ensure_streams()
    yield found
    await found.bus.close()


async def test_reports_are_only_read_once_a_node_needs_its_own(world: RankState) -> None:
    world.node("a", superPodID="1", serverIndex="5")
    world.node("b", superPodID="-2")
    world.kube.report("c", report(SuperPodID=4, ServerIndex=2, RackID=1))
    async with world.inventory():
        await world.has(lambda: world.places() == {"a": ("1", "", 5), "b": ("", "", 0)}, "the nodes")
        await world.quiet()
        assert not world.kube.reads_reports
        world.node("c")
        await world.has(lambda: world.places().get("c") == ("4", "1", 2), "the node in its SuperPoD")
        assert world.kube.reads_reports


async def test_nothing_is_said_before_the_reports_that_nodes_need_are_there(world: RankState) -> None:
    world.node("a")
    world.node("b")
    world.kube.report("a", report(SuperPodID=4, ServerIndex=2))
    async with world.inventory():
        await world.has(lambda: world.places() == {"a": ("4", "", 2), "b": ("", "", 0)}, "the nodes")
        await world.quiet()
        assert sorted(fact.domain for fact in world.facts("node", NodesSeen)) == ["bucket-all", "superpod-4"]
        world.kube.report("a", "{")
        path = "/api/v1/namespaces/default/events"
        await world.has(lambda: world.kube.objects(path), "an event")
        (event,) = world.kube.objects(path)
        assert event["message"].startswith("node a: DeviceInfoCfg is '{', expected JSON")
        world.kube.report("a", report(SuperPodID=5))
        await world.has(lambda: world.places()["a"] == ("5", "", 0), "the other SuperPoD")


async def test_reports_that_may_not_be_read_hold_up_nodes_for_a_while_only(
    world: RankState, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("a")
    world.node("b", superPodID="1")
    world.kube.report("a", report(SuperPodID=4))
    patient = msgspec.structs.replace(CONFIG, retry_wait_max_s=0.002)
    monkeypatch.setattr("tests.unit.services.inventory.test_service.CONFIG", patient)
    monkeypatch.setattr(device_reports, "_REPORTS_WAIT_S", 0.01)
    refused = RefusedError("configmaps is forbidden", status=403, cause="Forbidden")
    world.kube.fail(refused, method="GET", part="configmaps", times=100_000)
    with capture_logs() as logs:
        async with world.inventory():
            await world.has(lambda: world.places() == {"a": ("", "", 0), "b": ("1", "", 0)}, "the nodes")
            world.kube.forgive()
            await world.has(lambda: world.places()["a"] == ("4", "", 0), "the node in its SuperPoD")
    said = [entry for entry in logs if entry["event"].startswith("reports refused")]
    assert [entry["reason"] for entry in said] == ["configmaps is forbidden"]


@pytest.mark.parametrize("error", [RefusedError("no", status=403), TransientError("away", retry_after_s=0.001)])
async def test_reports_that_may_be_read_a_moment_later_are_waited_for(world: RankState, error: Exception) -> None:
    world.node("a")
    world.kube.report("a", report(SuperPodID=4))
    world.kube.fail(error, method="GET", part="configmaps", times=3)
    async with world.inventory():
        await world.has(lambda: world.places() == {"a": ("4", "", 0)}, "the node")
    assert [fact.domain for fact in world.facts("node", NodesSeen)] == ["superpod-4"]


async def test_a_node_that_changes_its_superpod_under_pods_is_there_at_once_and_the_pods_stay(world: RankState) -> None:
    world.node("a", superPodID="1")
    world.node("b", superPodID="1")
    pod = a_pod("f", node="a", phase="Running", scheduler="volcano")
    pod["metadata"]["annotations"] = {RESOURCE: "Ascend910-0,Ascend910-1"}
    world.kube.put("/api/v1/namespaces/team/pods", pod)
    async with world.inventory():
        await world.has(lambda: world.facts("pod", PodsSeen), "the pod")
        world.node("a", superPodID="2")
        await world.has(lambda: world.places() == {"a": ("2", "", 0), "b": ("1", "", 0)}, "the move")
        await world.quiet()
        await world.has(lambda: world.kube.objects("/api/v1/namespaces/default/events"), "an Event")
        (event,) = world.kube.objects("/api/v1/namespaces/default/events")
        assert (event["reason"], event["involvedObject"]["name"]) == ("NodeMoved", "a")
        assert event["message"].startswith(
            "node a: SuperPoD is 2: expected 1, no change while pods with chips run there"
        )
    domains = [(fact.domain, [node.name for node in unpack_nodes(fact)]) for fact in world.facts("node", NodesSeen)]
    assert domains == [("superpod-1", ["a", "b"]), ("superpod-1", ["b"]), ("superpod-2", ["a"])]
    (fact,) = world.facts("pod", PodsSeen)
    assert (fact.foreign, list(fact.phase)) == (True, [PodPhase.RUNNING])


def test_a_node_has_moved_as_long_as_pods_of_that_time_run_and_it_is_not_back() -> None:
    nodes = Nodes()
    use = Use("a", 8, 0, 0, counted=True)

    def says(**told: Any) -> str:  # noqa: ANN401 - annotations
        nodes.put(a_read_node("a", **told))
        return nodes.moves().get("a", "").partition(",")[0]

    assert says(superPodID="1", rackID="0") == ""
    assert says(superPodID="2", rackID="0") == "", "nobody is there"
    nodes.use(None, use)
    assert says(superPodID="2", rackID="0") == ""
    assert says(superPodID="2", rackID="1") == "node a: rack is 1: expected 0"
    assert says(superPodID="3", rackID="1") == "node a: SuperPoD is 3: expected 2"
    assert says(superPodID="-2") == "node a: SuperPoD is none: expected 2"
    assert says(superPodID="2", rackID="0") == ""
    assert says(superPodID="4") == "node a: SuperPoD is 4: expected 2"
    nodes.use(use, None)
    assert nodes.moves() == {}
    nodes.use(None, use)
    assert says(superPodID="4", rackID="7") == "node a: rack is 7: expected none"
    nodes.remove("a")
    nodes.use(use, None)
    assert nodes.moves() == {}


@pytest.mark.parametrize(
    ("busy", "rack", "told", "words"),
    [
        (True, "0", {"superPodID": "2", "rackID": "0"}, "node a: SuperPoD is 2: expected 1"),
        (True, "0", {"superPodID": "1", "rackID": "3"}, "node a: rack is 3: expected 0"),
        (True, "0", {"superPodID": "1", "rackID": "0"}, ""),
        (True, "", {"superPodID": "1", "rackID": "3"}, ""),  # facts of 0.2 have no racks
        (False, "0", {"superPodID": "2", "rackID": "0"}, ""),
    ],
)
def test_a_node_that_moved_while_no_inventory_ran_is_told_of(
    busy: bool,  # noqa: FBT001 - a parameter of the table
    rack: str,
    told: dict[str, Any],
    words: str,
) -> None:
    nodes = Nodes()
    nodes.restore([pack_nodes("superpod-1", [NodeDescription("a", superpod="1", rack=rack)], at_ms=1)])
    nodes.replace([a_read_node("a", **told)])
    if busy:
        nodes.use(None, Use("a", 8, 0, 0, counted=True))
    assert nodes.moves().get("a", "").partition(",")[0] == words
    nodes.put(a_read_node("a", **told))
    assert nodes.moves().get("a", "").partition(",")[0] == words


def test_readers_keep_what_is_held_on_a_node_that_moves_to_another_superpod_or_rack() -> None:
    life = Life()  # a gang holds chip 0 of nodes a and b
    nodes = Nodes()

    def told() -> tuple[str, str]:
        found = nodes.due(1)
        for fact in (*found.leaving, *found.rest):
            life.fact(fact, f"node.{fact.domain}")
            nodes.note_published(fact)
            check(life.state)
            assert life.state.held("a") == 1
        table = life.state.table
        row = table.row_of["a"]
        rack = table.rack[row]
        return table.superpods[table.superpod[row]], table.racks[rack] if rack >= 0 else ""

    nodes.replace([a_read_node("a", superPodID="1", rackID="3"), a_read_node("b", superPodID="1")])
    assert told() == ("1", "3")
    nodes.put(a_read_node("a", superPodID="1", rackID="4"))
    assert told() == ("1", "4")
    nodes.put(a_read_node("a", superPodID="2", rackID="4"))
    assert told() == ("2", "4")
    nodes.put(a_read_node("a", superPodID="2", rackID="-1"))
    assert told() == ("2", "")
    assert not life.due()
    assert life.state.fold.holdings["uid-j", 1].placement.names() == ["a", "b"]
    assert life.state.held("a") == life.state.held("b") == 1
