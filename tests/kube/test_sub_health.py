"""Sub-health on a real API server, with all services: who exits, how, and where the new pods may go."""

import json
from typing import Final

import pytest

from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.simulation import BreakNode
from tests.kube.test_superpod_jobs import in_blocks
from tests.support.faulty_cell import (
    DEADLINE_S,
    JOBS,
    RunningCell,
    Seat,
    a2_nodes,
    break_node,
    conditions_of,
    pods_of,
    settings,
    steps_of,
    sub_healthy_chips,
    submit,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell
from tests.support.kube_rights import let_tell_agents
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)
CHIP: Final = 3
JOBS_OF: Final = {
    "unsaid": ("force", "on", ""),
    "ignore": ("force", "on", "ignore"),
    "grace": ("force", "on", "graceExit"),
    "force": ("grace", "on", "forceExit"),
    "whole": ("grace", "", "graceExit"),
    "mark": ("external-force", "on", "forceExit"),
}
"""Labels fault-scheduling, pod-rescheduling and subHealthyStrategy of each job: the strategy says how pods leave."""
STAY: Final = ("unsaid", "ignore", "mark")
A3: Final = """
  - {product: superpod910a3x16, count: 6, name: "a3-{index}", superpod: {size: 6}}
"""


async def make_sub_healthy(world: KubeCell, node: str) -> None:
    """A chip of a node is sub-healthy, and the facts show it: what breaks next is known later."""
    await break_node(world, BreakNode(node, "chip", [CHIP], level="SubHealthFault"))

    async def is_known() -> bool:
        return await sub_healthy_chips(world, node) == 1 << CHIP

    await until_true(is_known, deadline_s=DEADLINE_S, what=f"chip {CHIP} of {node} is sub-healthy")


async def until_marked(world: KubeCell, namespace: str, job: str, uid: str) -> None:
    """The pod of this uid is marked, and no other of the job."""

    async def is_marked() -> bool:
        marks = {
            pod["metadata"]["uid"]: pod["metadata"]["annotations"].get("huawei.com/pod-status")
            for pod in await pods_of(world.api, namespace, job)
        }
        return {one: mark for one, mark in marks.items() if mark} == {uid: "Unhealthy-SubHealthFault"}

    await until_true(is_marked, deadline_s=20, what=f"one pod of {job} is marked")


async def until_evicted(world: KubeCell, namespace: str, uids: frozenset[str]) -> None:
    """Events say that these pods were evicted, and no others."""

    async def is_told() -> bool:
        events = await world.api.items(f"/api/v1/namespaces/{namespace}/events")
        return {one["involvedObject"]["uid"] for one in events if one["reason"] == "Evict"} == uids

    await until_true(is_told, deadline_s=20, what="Events of the pods that were evicted")


async def test_a_sub_healthy_chip_moves_the_pods_of_jobs_that_exit_and_of_no_others(
    running: RunningCell, namespace: str
) -> None:
    async with running(a2_nodes(20)) as world:
        old: dict[str, dict[int, Seat]] = {}
        for name, (way, first, strategy) in JOBS_OF.items():
            labels = {"fault_scheduling": way, "pod_rescheduling": first, "subHealthyStrategy": strategy}
            await submit(world, namespace, name, 2, **labels)
            old[name] = await until_seats(world, namespace, name, 2)
        for name in (*STAY, "grace", "force", "whole"):
            await make_sub_healthy(world, old[name][1].node)
        sick = {seats[1].node for seats in old.values()}
        left = {"grace": {1}, "force": {1}, "whole": {0, 1}}
        for name, ranks in left.items():
            now = await until_seats(world, namespace, name, 2, without=frozenset(old[name][rank].uid for rank in ranks))
            assert not sick & {now[rank].node for rank in ranks}
            if 0 not in ranks:
                assert now[0] == old[name][0], "the healthy rank keeps node, chips and pod"
            (step,) = await steps_of(world, f"vcjob.{name}")
            assert (step.kind, step.ranks, step.faulty) == ("SubHealthFault", sorted(ranks), [1])
            assert (step.how, step.scope) == ("force" if name == "force" else "grace", "job" if 0 in ranks else "pod")
        evicted = frozenset({old["grace"][1].uid, *(seat.uid for seat in old["whole"].values())})
        await until_evicted(world, namespace, evicted)
        await until_marked(world, namespace, "mark", old["mark"][1].uid)
        for name in STAY:
            assert await until_seats(world, namespace, name, 2) == old[name]
            assert [step.how for step in await steps_of(world, f"vcjob.{name}")] == ["mark"] * (name == "mark")

        # Sub-healthy nodes are for jobs that ignore sub-health only: five nodes are well, three of the free ones not.
        await submit(world, namespace, "strict", 5, subHealthyStrategy="forceExit")
        assert not sick & {seat.node for seat in (await until_seats(world, namespace, "strict", 5)).values()}
        await submit(world, namespace, "waits", 1, subHealthyStrategy="forceExit")
        await world.until_status(namespace, "vcjob.waits", "waiting")
        await submit(world, namespace, "mild", 2)
        mild = {seat.node for seat in (await until_seats(world, namespace, "mild", 2)).values()}
        assert mild < sick
        await world.until_status(namespace, "vcjob.waits", "waiting")
        for node in sorted(sick):
            await break_node(world, BreakNode(node, "chip", [CHIP], repair=True))
        (seat,) = (await until_seats(world, namespace, "waits", 1)).values()
        assert seat.node in sick - mild
        await world.check_chips(namespace)


async def test_a_sub_healthy_switch_or_relation_moves_pods_and_a_node_that_gets_worse_moves_those_that_ignored_it(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with running(a2_nodes(4) + A3.lstrip("\n")) as world:
        for name, strategy in (("exits", "graceExit"), ("stays", "ignore")):
            labels = {"fault-scheduling": "force", "pod-rescheduling": "on", "subHealthyStrategy": strategy}
            await kube_api.post(JOBS.format(namespace), in_blocks(name, 2, 1, labels))
        old = {name: await until_seats(world, namespace, name, 2) for name in ("exits", "stays")}

        async def until_level(node: str, level: NodeHealth) -> None:
            async def is_known() -> bool:
                return (await conditions_of(world)).get(node, NodeCondition(node)).level == level

            await until_true(is_known, deadline_s=DEADLINE_S, what=f"{node} is {level.name}")

        for name in ("stays", "exits"):
            await break_node(world, BreakNode(old[name][1].node, "switch"))
            await until_level(old[name][1].node, NodeHealth.SUB_HEALTHY)
        now = await until_seats(world, namespace, "exits", 2, without=frozenset({old["exits"][1].uid}))
        assert now[0] == old["exits"][0]
        assert now[1].node not in {old["exits"][1].node, old["stays"][1].node}
        (step,) = await steps_of(world, "vcjob.exits")
        assert (step.kind, step.how, step.ranks) == ("SubHealthFault", "grace", [1])
        assert await until_seats(world, namespace, "stays", 2) == old["stays"]
        assert await steps_of(world, "vcjob.stays") == []

        await break_node(world, BreakNode(old["stays"][1].node, "switch", level="Separate"))
        now = await until_seats(world, namespace, "stays", 2, without=frozenset({old["stays"][1].uid}))
        assert now[0] == old["stays"][0]
        (step,) = await steps_of(world, "vcjob.stays")
        assert (step.kind, step.how, step.ranks) == ("NodeUnhealthy", "force", [1])

        # ClusterD labels a pod: its node is well, and nodes of other pods too.
        await submit(
            world,
            namespace,
            "label",
            2,
            fault_scheduling="grace",
            pod_rescheduling="on",
            subHealthyStrategy="forceExit",
        )
        seats = await until_seats(world, namespace, "label", 2)
        pods = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in await pods_of(kube_api, namespace, "label")}
        pod = f"{namespace}/{pods[seats[1].uid]}"
        await break_node(world, BreakNode(seats[1].node, "relation", level="SubHealth", pod=pod))
        now = await until_seats(world, namespace, "label", 2, without=frozenset({seats[1].uid}))
        assert now[0] == seats[0]
        (step,) = await steps_of(world, "vcjob.label")
        assert (step.kind, step.how, step.ranks) == ("SubHealthFault", "force", [1])
        await world.check_chips(namespace)


async def test_agents_save_before_pods_leave_gracefully_and_are_told_when_the_job_is_back(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    own = settings()
    own["binder"] = {"fault_objects": {"written_by": "berth"}}
    own["nodesim"] = {**own["nodesim"], "terminating_s": 3_600}  # the test says when a pod ends
    await let_tell_agents(kube_api, namespace, "binder", "summary")
    async with running(a2_nodes(3), own) as world:
        maps = f"/api/v1/namespaces/{namespace}/configmaps"
        data = {"reset.json": '{"RetryTime":0,"GracefulExit":0,"theirs":1}', "plugin": "y"}
        await kube_api.post(maps, {"metadata": {"name": "reset-config-llm"}, "data": data})
        labels = {"fault_scheduling": "grace", "pod_rescheduling": "on", "subHealthyStrategy": "graceExit"}
        await submit(world, namespace, "llm", 2, **labels)
        old = await until_seats(world, namespace, "llm", 2)
        await make_sub_healthy(world, old[1].node)

        async def reset() -> dict[str, int]:
            found: dict[str, int] = json.loads((await kube_api.get(f"{maps}/reset-config-llm"))["data"]["reset.json"])
            return found

        async def leaves() -> bool:
            pods = {pod["metadata"]["uid"]: pod for pod in await pods_of(kube_api, namespace, "llm")}
            return "deletionTimestamp" in pods[old[1].uid]["metadata"]

        await until_true(leaves, deadline_s=20, what="the sub-healthy pod is asked to end")
        told = await reset()
        assert (told["GracefulExit"], told["RetryTime"], told["theirs"]) == (1, 0, 1), "before the pod was asked"
        (name,) = [
            pod["metadata"]["name"]
            for pod in await pods_of(kube_api, namespace, "llm")
            if pod["metadata"]["uid"] == old[1].uid
        ]
        await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")  # its containers end
        now = await until_seats(world, namespace, "llm", 2, without=frozenset({old[1].uid}))
        assert now[0] == old[0]

        async def is_over() -> bool:
            told = await reset()
            return (told["GracefulExit"], told["RetryTime"], told["theirs"]) == (0, 1, 1)

        await until_true(is_over, deadline_s=20, what="agents need not save any more, and one restart is counted")
        assert (await kube_api.get(f"{maps}/reset-config-llm"))["data"]["plugin"] == "y"
