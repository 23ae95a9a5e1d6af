"""Gangs that cannot be let in, or cannot be bound whole: undone or left by the setting, with a reason."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from berth.formats.ascend.pod_annotations import ATTEMPT, JOB
from berth.formats.kubernetes.objects import PodGroup
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import Tree, a_spec, a_volcano_job
from tests.support.kube_history import History, recording
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)
RESOURCE: Final = "huawei.com/Ascend910"
LONG: Final = {"berth/run-for": "600s"}
GROUP: Final = "scheduling.k8s.io/group-name"
FREQUENCY: Final = "huawei.com/schedule_dequeue_frequency"
ENQUEUED: Final = "huawei.com/schedule_enqueue_time"
Making = Callable[..., InvalidInputCell]


@pytest.fixture
def make(target_of: TargetOf) -> Making:
    def target(count: int, **settings: dict[str, object]) -> InvalidInputCell:
        return target_of(TOPOLOGY.format(count=count), settings)

    return target


TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {{product: module910bx8, count: {count}, name: "a2-{{index}}"}}
"""


async def submit(target: InvalidInputCell, job: Tree) -> str:
    """Make a Volcano Job; returns the name of its PodGroup."""
    made = await target.api.post(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs", job)
    return f"{made['metadata']['name']}-{made['metadata']['uid']}"


async def unscheduled(target: InvalidInputCell, group: str) -> tuple[str, str, str]:
    """Phase of a PodGroup, and reason and message of its condition Unschedulable."""
    status = (await target.podgroup(group)).get("status", {})
    told: Tree = next((one for one in status.get("conditions", ()) if one["type"] == "Unschedulable"), {})
    return (status.get("phase", ""), told.get("reason", ""), told.get("message", ""))


def phase(target: InvalidInputCell, group: str) -> Callable[[], Awaitable[str]]:
    async def found() -> str:
        return (await unscheduled(target, group))[0]

    return found


async def test_a_group_is_let_in_when_there_is_room_and_sent_back_when_it_cannot_start(
    make: Making, tmp_path: Path
) -> None:
    gangs = {
        "force_enqueue": False,
        "claim_s": 10,  # also for the gangs that do start
        "retry_s": 10,
        "look_again_s": 1,
        "groups_without_scheduler": True,
    }
    target = make(1, inventory={"gangs": gangs})
    await target.cell.start()
    first = await submit(target, a_volcano_job("first", 1, 8, run_for="600s"))
    await target.until_running("first-worker-0")
    second = await submit(target, a_volcano_job("second", 1, 8, run_for="600s"))
    wanted = ("Pending", "JobEnqueueFailed", f"asks for 8 {RESOURCE}, 0 are free")
    await target.until_is("the second waits", lambda: unscheduled(target, second), wanted)
    said = [("EnqueueFailed", wanted[2], 1)]
    await target.until_is("its Event", lambda: target.events("PodGroup", second), said)
    await target.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs/first")
    await target.until_running("second-worker-0")
    assert not [event for event in await target.events("PodGroup", first) if event[0] == "EnqueueFailed"]
    await target.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs/second")
    await target.cell.until_pods(target.namespace, {})

    async with recording(target.api, tmp_path, target.namespace) as history:
        await half_of_a_gang_claims_room(target, history)
    await target.cell.stop()


async def half_of_a_gang_claims_room(target: InvalidInputCell, history: History) -> None:
    """It gives it back, and comes again; a group behind it takes its turn meanwhile.

    What lasts only as long as the claim or the pause after it is looked for among all versions of the groups.
    """
    await target.group("half", {"minMember": 2, "minResources": {RESOURCE: "4"}})
    await target.pod("half-0", a_spec(2), annotations={**LONG, GROUP: "half"})
    let_in = await until_said(history, "half", "Inqueue")
    assert let_in.metadata.annotation(ENQUEUED)
    await target.group("whole", {"minMember": 1, "minResources": {RESOURCE: "8"}})
    await target.pod("whole-0", a_spec(8), annotations={**LONG, GROUP: "whole"})
    claimed = f"asks for 8 {RESOURCE}, 8 are free, of which other admitted PodGroups claim 4"
    await until_said(history, "whole", "Pending", claimed)
    released = "it could not start for 10 s and released its claim"
    sent_back = await until_said(history, "half", "Pending", released)
    assert (sent_back.metadata.annotation(FREQUENCY), sent_back.metadata.annotation(ENQUEUED)) == ("1", "")
    await target.until_running("whole-0")
    await target.until_is(
        "no room",
        lambda: unscheduled(target, "half"),
        ("Pending", "JobEnqueueFailed", f"asks for 4 {RESOURCE}, 0 are free"),
    )
    await target.drop_pod("whole-0")
    await target.until_is("let in again", phase(target, "half"), "Inqueue")
    await target.pod("half-1", a_spec(2), annotations={**LONG, GROUP: "half"})
    await target.until_running("half-0", "half-1")
    await target.until_is("runs", phase(target, "half"), "Running")


async def until_said(history: History, group: str, phase: str, message: str = "") -> PodGroup:
    """First version of a PodGroup with a phase and, if one is given, why it is not let in; waits for it."""
    found: list[PodGroup] = []

    def is_there() -> bool:
        found[:] = [one for one in history.groups.of.get(group, ()) if one.status.phase == phase]
        if message:
            found[:] = [one for one in found if said_of(one) == ("JobEnqueueFailed", message)]
        return bool(found)

    await until(is_there, deadline_s=20, what=f"{group} is {phase}: {message}")
    return found[0]


def said_of(group: PodGroup) -> tuple[str, str]:
    """Reason and message of the condition Unschedulable."""
    conditions = [one for one in group.status.conditions or () if one.type == "Unschedulable"]
    return (conditions[0].reason, conditions[0].message) if conditions else ("", "")


async def test_with_force_chips_decide_alone(make: Making) -> None:
    """Free chips let a group in at once, whatever cpu there is and whatever others claim."""
    target = make(1, inventory={"gangs": {"groups_without_scheduler": True}})
    await target.cell.start()
    need = {RESOURCE: "8", "cpu": "100000", "memory": "1Pi"}
    for name in ("greedy", "also"):
        await target.group(name, {"minMember": 2, "minResources": need})
    for name in ("greedy", "also"):
        await target.until_is(f"{name} is let in", phase(target, name), "Inqueue")
    await target.group("too-many", {"minMember": 2, "minResources": {RESOURCE: "16"}})
    wanted = ("Pending", "JobEnqueueFailed", f"asks for 16 {RESOURCE}, 8 are free")
    await target.until_is("more than there is", lambda: unscheduled(target, "too-many"), wanted)
    await target.cell.stop()


async def placed_without_binder(target: InvalidInputCell, job: str, pods: int) -> list[str]:
    """Submit a gang that is decided while the binder is away; returns the node of each rank."""
    await target.cell.services["binder"].stop()
    await submit(target, a_volcano_job(job, pods, 8, run_for="600s"))
    status = await target.cell.until_status(target.namespace, f"vcjob.{job}", "placed")
    assert status.placement is not None
    return status.placement.names()


async def lose_node_and_bind(target: InvalidInputCell, node: str) -> None:
    """Delete a node and let the binder go on; nodesim would register it again, so it is away meanwhile."""
    await target.cell.services["nodesim"].stop()
    await target.api.delete(f"/api/v1/nodes/{node}")
    target.cell.services["binder"].start()

    async def told() -> bool:
        return f"node {node} is not there any more" in " ".join(await events_of(target, "FailedBinding"))

    await target.until("an Event says that the node is gone", told)
    target.cell.services["nodesim"].start()


async def bind_by_hand(target: InvalidInputCell, pod: str, node: str) -> None:
    """Bind a pod as another scheduler would."""
    chips = ",".join(f"Ascend910-{chip}" for chip in range(8))
    meta = {"name": pod, "annotations": {RESOURCE: chips, "predicate-time": "1"}}
    body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
    await target.api.post(f"/api/v1/namespaces/{target.namespace}/pods/{pod}/binding", body)


async def events_of(target: InvalidInputCell, reason: str) -> set[str]:
    """Messages of Berth's Events with a reason in the namespace."""
    found = await target.api.items(f"/api/v1/namespaces/{target.namespace}/events")
    return {one["message"] for one in found if one["reason"] == reason and one.get("reportingComponent") == "berth"}


async def until_told(target: InvalidInputCell, reason: str, words: str) -> None:
    """An Event of Berth in the namespace has the reason and the words; Events come behind what they tell of."""

    async def is_told() -> bool:
        return any(words in message for message in await events_of(target, reason))

    await target.until(f"an Event {reason}: {words}", is_told)


@pytest.mark.processes
async def test_a_gang_that_cannot_be_bound_whole_is_undone_and_placed_again(make: Making) -> None:
    target = make(5, inventory={"gangs": {"retry_s": 1}})
    await target.cell.start()
    names = await placed_without_binder(target, "lost", 3)
    await lose_node_and_bind(target, names[1])
    pods = await target.cell.until_pods(target.namespace, {"Running": 3}, deadline_s=60)
    status = await target.cell.until_status(target.namespace, "vcjob.lost", "running")
    assert status.attempt == 2, target.cell.logs()
    assert {pod["metadata"]["annotations"][ATTEMPT] for pod in pods} == {"2"}
    gone = f"node {names[1]} is not there any more"
    await until_told(target, "FailedBinding", gone)
    await until_told(target, "Evicted", gone)
    await target.until_is(
        "binder_gangs_total", lambda: target.metric("binder", "binder_gangs_total", outcome="failed"), 1
    )
    assert await target.cell.check_chips(target.namespace) == 24
    await target.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs/lost")
    await target.cell.until_pods(target.namespace, {})

    # A pod is bound elsewhere by hand: it runs on; the gang is undone, and its others wait for a place beside it.
    names = await placed_without_binder(target, "taken", 3)
    free = next(f"a2-{number}" for number in range(5) if f"a2-{number}" not in names)
    await bind_by_hand(target, "taken-worker-1", free)
    target.cell.services["binder"].start()
    pods = await target.cell.until_pods(target.namespace, {"Running": 3}, deadline_s=60)
    jobs = {pod["metadata"]["name"]: pod["metadata"]["annotations"].get(JOB, "") for pod in pods}
    assert jobs["taken-worker-1"] == ""
    assert jobs["taken-worker-0"].startswith("vcjob.taken")
    assert jobs["taken-worker-2"].startswith("vcjob.taken")
    await until_told(
        target, "FailedBinding", f"pod taken-worker-1 is on node {free} already, bound by another scheduler"
    )
    assert await target.cell.check_chips(target.namespace) == 24
    await target.cell.stop()


@pytest.mark.processes
async def test_a_gang_that_cannot_be_bound_whole_is_left_and_filled_up(make: Making) -> None:
    target = make(5, binder={"partial": "leave"}, inventory={"gangs": {"retry_s": 1}})
    await target.cell.start()
    names = await placed_without_binder(target, "lost", 3)
    await lose_node_and_bind(target, names[1])
    pods = await target.cell.until_pods(target.namespace, {"Running": 3}, deadline_s=60)
    jobs = {pod["metadata"]["name"]: pod["metadata"]["annotations"][JOB] for pod in pods}
    assert jobs["lost-worker-0"] == jobs["lost-worker-2"] == "vcjob.lost"
    assert jobs["lost-worker-1"].startswith("vcjob.lost-")
    assert {pod["metadata"]["annotations"][ATTEMPT] for pod in pods} == {"1"}
    assert [pod["metadata"]["annotations"]["hccl/rankIndex"] for pod in pods] == ["0", "1", "2"]
    await until_told(target, "FailedBinding", f"node {names[1]} is not there any more")
    assert not await events_of(target, "Evicted")
    assert await target.cell.check_chips(target.namespace) == 24
    await target.cell.stop()
