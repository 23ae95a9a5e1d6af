"""Pods on nodes whose device plug-in has ids of its own: what the binder writes leads back to the same chips."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.objects import Node, Pod
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack, unpack
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, MembersSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.subjects import StreamName
from berth.services.binder.app import bind_in_kubernetes
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.inventory.app import serve_on
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.nodes.collection import Named, Nodes
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.usage.collection import Usage
from tests.support.chained_records import append
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer
from tests.support.played_cluster import QUICK, played
from tests.support.waiting import until

NPU = "huawei.com/npu"
REAL = "huawei.com/AscendReal"
PODS = "/api/v1/namespaces/ns/pods"


def a_node(*device_ids: int, chip_name: str = "Ascend950PR") -> Node:
    infos = {f"npu-{chip}": {"DeviceID": told} for chip, told in enumerate(device_ids)}
    return msgspec.convert(
        {
            "metadata": {
                "name": "n1",
                "labels": {"node.kubernetes.io/npu.chip.name": chip_name},
                "annotations": {"baseDeviceInfos": msgspec.json.encode(infos).decode()},
            },
            "status": {
                "allocatable": {NPU: str(len(device_ids))},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def a_pod(chips: str, real: str = "", *, own: bool = True) -> Pod:
    placed = {"berth/job": "j", "berth/uid": "u", "berth/attempt": "1", "berth/rank": "0"} if own else {}
    found = {NPU: chips, REAL: real}
    resources = {"requests": {NPU: "2"}, "limits": {NPU: "2"}}
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p", "annotations": {**placed, **found}},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Pending"},
        },
        Pod,
    )


class World:
    """One node and at most one pod."""

    def __init__(self, node: Node) -> None:
        self.nodes = Nodes()
        self.nodes.put(node)
        self.pods = Pods(self.nodes, Usage(), lambda row: row.queue, await_job_ms=1000)
        self.pods.note_job(
            JobSeen("ns", "j", "u", "accepted", 1, request=JobRequest("ns", "j", "u", NPU, [Task("t", 1, 2)]))
        )

    def put(self, pod: Pod) -> None:
        row = read_row(pod, PodRequirementsReader())
        assert row is not None
        self.pods.put(row, 0)

    def masks(self) -> list[int]:
        facts = self.pods.due(0)
        for fact in facts:
            self.pods.note_published(fact)
        return [mask for fact in facts for mask in unpack(fact.chips, 8)]


@pytest.mark.parametrize("own", [True, False])
def test_ids_of_devices_become_chips_and_real_ones_stay(*, own: bool) -> None:
    world = World(a_node(3, 2, 1, 0))
    world.put(a_pod("npu-3,npu-2", own=own))
    assert world.masks() == [0b0011]
    assert world.pods.held("n1") == 0b0011
    world.put(a_pod("npu-3,npu-2", "npu-0,npu-1", own=own))
    assert world.masks() == []
    assert world.pods.reasons == {}


@pytest.mark.parametrize("own", [True, False])
def test_ids_beyond_the_chips_are_no_fault_where_devices_have_them(*, own: bool) -> None:
    world = World(a_node(12, 9))
    world.put(a_pod("npu-12,npu-9", own=own))
    assert (world.masks(), world.pods.reasons) == ([0b11], {})


def test_an_id_that_no_device_has_is_told_as_it_stands() -> None:
    world = World(a_node(12, 9))
    world.put(a_pod("npu-12,npu-1"))
    assert world.masks() == [0b01]
    assert world.pods.reasons == {
        "uid-p": "pod ns/p: its chips 1 do not exist on node n1: expected chips of the node that it is bound to"
    }


def test_a_node_whose_ids_change_is_read_again_and_one_that_goes_leaves_its_ids() -> None:
    world = World(a_node(0, 1, 2, 3))
    world.put(a_pod("npu-3,npu-2", own=False))
    assert world.masks() == [0b1100]
    assert world.nodes.put(a_node(3, 2, 1, 0))
    assert world.nodes.is_changed
    assert not world.nodes.put(a_node(3, 2, 1, 0))
    world.pods.touch_nodes(["n1"])
    assert world.masks() == [0b0011]
    assert world.nodes.remove("n1")
    world.pods.touch_nodes(["n1"])
    assert world.masks() == []
    assert world.nodes.put(a_node(3, 2, 1, 0, chip_name="910B3"))
    assert world.nodes.named("n1", 0b1001, physical=False) == Named(0b1001, 0)


class Cell:
    """Nodes that nodesim plays, a binder and an inventory, on a bus and an API server in memory."""

    def __init__(self) -> None:
        self.server = FakeServer()
        self.bus = FakeBus(self.server, "test")
        self.kube = FakeKube()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop, clock = asyncio.Event(), SystemClock()
        quick: dict[str, Any] = {"retry_wait_max_s": 0.01}
        binder, inventory = BinderConfig(**quick), InventoryConfig(settle_s=0, **quick)
        buses = [FakeBus(self.server, "test") for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            group.create_task(
                bind_in_kubernetes(self.kube, buses[0], clock, binder, Instruments.make(BinderMetrics), stop)
            )
            group.create_task(serve_on(buses[1], self.kube, clock, inventory, Instruments.make(InventoryMetrics), stop))
            try:
                yield
            finally:
                stop.set()
        for bus in [*buses, self.bus]:
            await bus.close()

    def pods(self, gang: str) -> list[tuple[list[str], list[int]]]:
        """All facts of a gang's pods, oldest first: phases and masks by rank."""
        found = self.server.stream(self.bus.subjects.stream(StreamName.FACTS)).messages
        facts = [decode(one.data, PodsSeen) for _, one in sorted(found.items()) if ".fact.pod." in one.subject]
        return [
            ([PodPhase(one).name for one in fact.phase], unpack(fact.chips, 8)) for fact in facts if fact.gang == gang
        ]

    async def runs(self, gang: str, count: int) -> None:
        running = ["RUNNING"] * count
        await until(lambda: running in [one[0] for one in self.pods(gang)], deadline_s=20, what=f"{gang} to run")


def pod_body(name: str, chips: int, scheduler: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none", "resources": {"limits": {NPU: str(chips)}}}]
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": containers}, "status": {}}


@pytest.mark.parametrize("product", ["module850x8", "chip4-node8"])
async def test_masks_of_pods_are_the_chips_of_their_placement(product: str) -> None:
    cell = Cell()
    await cell.bus.ensure_streams()
    topology = f"""
apiVersion: berth/v1
kind: Cluster
nodes:
  - {{product: {product}, count: 3, name: "a5-{{index}}"}}
"""
    agents = msgspec.structs.replace(QUICK, reversed_device_ids=True, admit_s=0.3)
    chips = [(0, 1), (6, 7), tuple(range(8))]
    placement = placement_of(["a5-0", "a5-1", "a5-2"], chips, [Run(2, 2), Run(1, 8)], resource=NPU)
    request = JobRequest("ns", "j", "u", NPU, [Task("t", 2, 2), Task("w", 1, 8)])
    subjects = cell.bus.subjects
    async with played(cell.kube, topology, agents=agents), cell.running():
        made = [cell.kube.put(PODS, pod_body(f"p{rank}", len(ids), "berth")) for rank, ids in enumerate(chips)]
        await cell.bus.publish(
            subjects.fact_job("ns", "j"), encode(JobSeen("ns", "j", "u", "accepted", 1, request=request))
        )
        await append(cell.bus, Epoch(1, 0, 0, 0, "me", Settings()))
        verdict = Verdict("ns", "j", "u", 1, placement)
        await append(cell.bus, Round(1, 1, 0, 0, 1, verdicts=[verdict]))
        uids = [str(pod["metadata"]["uid"]) for pod in made]
        members = MembersSeen("ns", "j", "u", rank=pack([0, 1, 2], 4), pods=["p0", "p1", "p2"], pod_uids=uids)
        await cell.bus.publish(subjects.fact_member("ns", "j"), encode(members))
        cell.kube.put(PODS, pod_body("other", 1, "volcano"))
        foreign = {NPU: "npu-5", "predicate-time": "7"}
        target = {"apiVersion": "v1", "kind": "Node", "name": "a5-0"}
        await cell.kube.create(
            f"{PODS}/other/binding", {"metadata": {"name": "other", "annotations": foreign}, "target": target}
        )
        await cell.runs("j", 3)
        await cell.runs("pod/other", 1)

        def notes() -> list[dict[str, str]]:
            return [cell.kube.object(f"{PODS}/p{rank}")["metadata"]["annotations"] for rank in range(2)]

        await until(lambda: all(REAL in note for note in notes()), deadline_s=5, what="the word of the device plug-ins")
        assert [note[NPU] for note in notes()] == ["npu-7,npu-6", "npu-1,npu-0"]
        assert [note[REAL] for note in notes()] == ["npu-0,npu-1", "npu-6,npu-7"]
        own, others = cell.pods("j"), cell.pods("pod/other")
        assert {"PENDING"} in [set(phases) for phases, _ in own], "never seen while the ids of devices alone were there"
        assert {"PENDING"} in [set(phases) for phases, _ in others]
        expected = [0b11, 0b1100_0000, 0xFF]
        assert [masks for phases, masks in own if len(phases) == 3] == [expected] * sum(len(one[0]) == 3 for one in own)
        assert {tuple(masks) for _, masks in others} == {(0b100,)}
        assert [one for one in cell.kube.objects("/api/v1/events") if one.get("reason") == "ChipsInvalid"] == []
