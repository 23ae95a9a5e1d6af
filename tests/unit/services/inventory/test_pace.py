"""How often the inventory publishes: at once when nothing is in flight, and a bounded number of times in a burst.

The clock stands still unless a test moves it, so what is published is published without a wait.
"""

import asyncio
from typing import TypeVar

import msgspec
import pytest

from berth.formats.kubernetes.objects import Node, Pod
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen, MembersSeen, NodesSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.message import Message
from berth.schemas.subjects import StreamName
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.pace import Pace
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer
from tests.support.gang_world import a_group, a_pod
from tests.support.waiting import until

M = TypeVar("M", bound=Message)
RESOURCE = "huawei.com/Ascend910"
PODS = 400
"""Of a gang whose facts are 80 ms apart."""


def a_node(number: int, *, cpu: int = 100) -> Node:
    tree = {
        "metadata": {"name": f"n{number}", "annotations": {"baseDeviceInfos": '{"Ascend910-0":{}}'}},
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": "100Gi", RESOURCE: "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(tree, Node)


def bound(rank: int) -> Pod:
    """A pod of the gang with its chip."""
    annotations = {"berth/job": "podgroup.pg", "berth/uid": "u", "berth/attempt": "1", "berth/rank": str(rank)}
    annotations[RESOURCE] = "Ascend910-0"
    return a_pod(f"p-{rank}", group="pg", chips=1, node=f"n{rank}", annotations=annotations)


class Desk:
    """An inventory whose loop can run."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = FakeBus(FakeServer(self.clock), "cell")
        config = InventoryConfig()
        assert config.settle_s == 0.2
        self.loop = Loop(self.bus, FakeKube(clock=self.clock), self.clock, config, Instruments.make(InventoryMetrics))

    async def said(self, kind: type[M]) -> list[M]:
        stream = StreamName.INTAKE if kind is JobRequest else StreamName.FACTS
        return [
            decode(stored.data, kind)
            for stored in await self.bus.read(stream)
            if kind is JobRequest or f".fact.{kind.KIND.removeprefix('fact.')}." in stored.subject
        ]


async def test_one_event_leads_to_one_publication_without_a_wait() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.loop.run(stop))
        desk.loop.change_pods([("ADDED", a_pod("one"))])
        await until(lambda: desk.loop.gangs.parts == 1, deadline_s=5, what="the pod is requested")
        stop.set()
    assert [request.name for request in await desk.said(JobRequest)] == ["pod.one"]
    assert len(await desk.said(MembersSeen)) == 1
    await desk.bus.close()


async def test_pods_that_come_one_by_one_are_published_once_when_the_last_is_there() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.change_groups([("ADDED", a_group("pg", least=PODS))])
    for rank in range(PODS):
        desk.loop.change_pods([("ADDED", a_pod(f"p-{rank}", group="pg"))])
        assert await desk.loop.turn()
    assert len(await desk.said(MembersSeen)) == 1
    assert [request.tasks[0].replicas for request in await desk.said(JobRequest)] == [PODS]
    await desk.bus.close()


@pytest.mark.parametrize("pods", [PODS, 1_500])
async def test_a_burst_of_bindings_is_published_in_few_facts_and_the_first_at_once(pods: int) -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.replace_nodes([a_node(number) for number in range(pods)])
    task = Task("worker", pods, 1)
    request = JobRequest("ns", "podgroup.pg", "u", resource=RESOURCE, tasks=[task])
    desk.loop.note_job(JobSeen("ns", "podgroup.pg", "u", "accepted", 1, request=request))
    desk.loop.change_pods([("ADDED", bound(0))])
    await desk.loop.turn()
    assert [len(fact.phase) for fact in await desk.said(PodsSeen)] == [1]
    for rank in range(1, pods):
        desk.loop.change_pods([("ADDED", bound(rank))])
        await desk.loop.turn()
        desk.clock.advance(0.001)
    desk.clock.advance(0.3)
    await desk.loop.turn()
    facts = await desk.said(PodsSeen)
    assert facts[-1].phase == bytes([PodPhase.PENDING]) * pods
    assert len(facts) <= 8
    sizes = [len(fact.phase) for fact in facts]
    assert sizes == sorted(set(sizes))
    await desk.bus.close()


async def test_changes_of_nodes_are_published_once_in_the_settle_time_and_before_pods_on_them() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.replace_nodes([a_node(0)])
    await desk.loop.turn()
    for cpu in range(50):
        desk.loop.change_nodes([("MODIFIED", a_node(0, cpu=cpu))])
        await desk.loop.turn()
    assert len(await desk.said(NodesSeen)) == 1
    desk.clock.advance(0.2)
    await desk.loop.turn()
    assert len(await desk.said(NodesSeen)) == 2
    desk.loop.change_nodes([("ADDED", a_node(1))])
    desk.loop.change_pods([("ADDED", a_pod("foreign", scheduler="other", chips=1, node="n1", phase="Running", annotations={RESOURCE: "Ascend910-0"}))])  # fmt: skip
    await desk.loop.turn()
    subjects = [stored.subject for stored in await desk.bus.read(StreamName.FACTS)]
    kinds = [subject.split(".")[3] for subject in subjects]
    assert [kind for kind in kinds if kind in {"node", "pod"}] == ["node", "node", "node", "pod"]
    desk.loop.change_nodes([("MODIFIED", a_node(1, cpu=7))])
    desk.loop.change_pods([("ADDED", a_pod("one"))])
    await desk.loop.turn()
    assert len(await desk.said(NodesSeen)) == 4, "what is known is published before a request"
    await desk.bus.close()


def test_a_pace_says_when_what_was_put_off_is_due() -> None:
    clock = ManualClock()
    pace = Pace(clock, 0.2)
    assert pace.may_run()
    assert pace.due_in_s() is None
    pace.note_run()
    assert pace.due_in_s() is None, "nothing waits"
    clock.advance(0.05)
    assert not pace.may_run()
    assert round(pace.due_in_s() or 0, 3) == 0.15
    clock.advance(0.15)
    assert pace.due_in_s() == 0
    assert pace.may_run()
    assert pace.due_in_s() is None


async def test_work_that_is_wanted_no_longer_is_not_waited_for() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    gated = a_group("pg", least=2, phase="Pending", resources={RESOURCE: "16"})
    desk.loop.change_groups([("ADDED", gated)])
    desk.loop.change_pods([("ADDED", a_pod("p-0", group="pg"))])
    await desk.loop.turn()
    assert desk.loop.gangs.awaits_admission
    await desk.loop.turn()  # too early to look at what is free again: it is wanted soon
    assert desk.loop._capacity_pace.due_in_s() is not None
    desk.loop.change_groups([("DELETED", gated)])
    desk.loop.change_pods([("DELETED", a_pod("p-0", group="pg"))])
    desk.clock.advance(1)
    await desk.loop.turn()
    assert not desk.loop.gangs.awaits_admission
    assert desk.loop._capacity_pace.due_in_s() is None
    await desk.bus.close()
