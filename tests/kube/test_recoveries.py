"""Jobs recover from faults on a real API server: services are processes, nodesim plays nodes and controllers."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from berth.schemas.simulation import BreakNode
from tests.kube.test_fabric import reading
from tests.support.fabric import Fabric
from tests.support.faulty_cell import (
    FAULTS,
    JOBS,
    REASONS,
    RunningCell,
    Seat,
    a2_nodes,
    break_node,
    pods_of,
    seats_of,
    settings,
    statuses_of,
    steps_of,
    submit,
    told,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import Tree
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(150)


async def test_after_the_fault_of_a_chip_healthy_ranks_keep_their_places_or_the_whole_job_restarts(
    running: RunningCell, namespace: str, kube_api: KubeApi, tmp_path: Path
) -> None:
    async with running(own=settings(start_s=2)) as world:  # long enough to be told that a job does not run
        async with reading(kube_api, tmp_path) as fabric:
            before: dict[str, dict[int, Seat]] = {}
            uids: dict[str, str] = {}
            for how in ("force", "grace"):
                for first in ("on", ""):
                    name = f"{how}-{'first' if first else 'all'}"
                    uids[name] = await submit(world, namespace, name, 2, fault_scheduling=how, pod_rescheduling=first)
            for name in uids:
                before[name] = await until_seats(world, namespace, name, 2)
            await _until_runs(fabric, uids, 1)
            for seats in before.values():
                await break_node(world, BreakNode(seats[1].node, "chip", [3]))
            broken = {seats[1].node for seats in before.values()}
            for name, uid in uids.items():
                old = before[name]
                is_first = name.endswith("first")
                left = [old[1]] if is_first else [old[0], old[1]]
                now = await until_seats(world, namespace, name, 2, without=frozenset(seat.uid for seat in left))
                assert (now[0] == old[0]) is is_first, f"rank 0 of {name}"
                assert now[1].node not in broken
                assert now[1].chips == 0xFF
                await _until_runs(fabric, {name: uid}, 2)
                story = [status for _, status in fabric.story[uid]]
                assert story[story.index("running") :] == ["running", "failed", "running"]
                servers = fabric.running[uid][-1].servers
                assert [server[1] for server in servers] == [now[0].node, now[1].node]
        await world.check_chips(namespace)


async def test_pods_of_nodes_that_are_not_ready_or_gone_leave_at_once_and_a_leaf_takes_all_its_pods_along(
    running: RunningCell, namespace: str
) -> None:
    async with running(a2_nodes(24)) as world:
        names = {"not-ready": "grace", "forced": "force", "gone": "grace", "leaf": "force", "leaf-grace": "grace"}
        for name, how in names.items():
            await submit(world, namespace, name, 2, fault_scheduling=how, pod_rescheduling="on")
        seats = {name: await until_seats(world, namespace, name, 2) for name in names}
        for name, fault in (("not-ready", "kubelet"), ("forced", "kubelet"), ("gone", "gone")):
            old = seats[name]
            await break_node(world, BreakNode(old[1].node, fault))
            # The pod is deleted with grace 0: a kubelet that is dead never confirms the end of its pods.
            seats[name] = await until_seats(world, namespace, name, 2, without=frozenset({old[1].uid}))
            assert seats[name][0] == old[0]
            assert seats[name][1].node != old[1].node
            await break_node(world, BreakNode(old[1].node, fault, repair=True))
        for broken in ("leaf", "leaf-grace"):
            leaf = int(seats[broken][1].node.removeprefix("a2-")) // 4
            below = {f"a2-{leaf * 4 + index:02}" for index in range(4)}
            await break_node(world, BreakNode(f"leaf-{leaf}", "kubelet", leaf=True))
            for name, old in seats.items():
                left = {rank for rank, seat in old.items() if seat.node in below}
                if 0 in left:  # the fault of the master restarts the whole job
                    left = {0, 1}
                now = await until_seats(world, namespace, name, 2, without=frozenset(old[rank].uid for rank in left))
                stay = {rank: seat for rank, seat in old.items() if rank not in left}
                assert {rank: now[rank] for rank in stay} == stay
                assert not below & {seat.node for seat in now.values()}
                seats[name] = now
        for name, how in names.items():
            steps = await steps_of(world, f"vcjob.{name}")
            assert {step.how for step in steps if step.how != "place"} == {how}, f"pods of {name} leave"
        await world.check_chips(namespace)


async def test_with_external_force_faulty_pods_are_marked_and_nothing_is_deleted(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with running() as world:
        await submit(world, namespace, "serve", 2, fault_scheduling="external-force")
        old = await until_seats(world, namespace, "serve", 2)
        await break_node(world, BreakNode(old[1].node, "chip", [3]))

        async def is_marked() -> bool:
            pods = await pods_of(kube_api, namespace, "serve")
            marks = {
                pod["metadata"]["uid"]: pod["metadata"]["annotations"].get("huawei.com/pod-status") for pod in pods
            }
            return marks == {old[0].uid: None, old[1].uid: "Unhealthy-CardUnhealthy"}

        await until_true(is_marked, deadline_s=20, what="the faulty pod is marked, and it alone")
        assert {seat.uid for seat in old.values()} == {
            pod["metadata"]["uid"] for pod in await pods_of(kube_api, namespace, "serve") if _is_alive(pod)
        }
        await kube_api.delete(f"{JOBS.format(namespace)}/serve")  # the other component makes the instance anew
        await world.until_pods(namespace, {})
        await submit(world, namespace, "serve", 2, fault_scheduling="external-force")
        now = await until_seats(world, namespace, "serve", 2, without=frozenset(seat.uid for seat in old.values()))
        assert old[1].node not in {seat.node for seat in now.values()}


async def test_a_pod_that_never_ends_leaves_at_the_deadline_and_a_second_fault_of_the_job_counts_at_once(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    own = settings()
    own["dispatcher"] = {"decisions": {**FAULTS, "grace_over_ms": 15_000}}
    own["nodesim"] = {**own["nodesim"], "terminating_s": 3_600}
    async with running(own=own) as world:
        await submit(world, namespace, "llm", 4, fault_scheduling="grace", pod_rescheduling="on")
        old = await until_seats(world, namespace, "llm", 4)
        await break_node(world, BreakNode(old[1].node, "chip", [3]))

        async def is_asked() -> bool:
            pods = {pod["metadata"]["uid"]: pod for pod in await pods_of(kube_api, namespace, "llm")}
            pod = pods.get(old[1].uid)
            return pod is not None and "deletionTimestamp" in pod["metadata"]

        await until_true(is_asked, deadline_s=20, what="the pod of the first fault is asked to end")
        await break_node(world, BreakNode(old[2].node, "chip", [5]))
        left = frozenset({old[1].uid, old[2].uid})
        now = await until_seats(world, namespace, "llm", 4, without=left)
        assert (now[0], now[3]) == (old[0], old[3])
        assert not {old[1].node, old[2].node} & {seat.node for seat in now.values()}
        await world.check_chips(namespace)


async def test_a_job_that_is_deleted_while_it_recovers_leaves_nothing_behind(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    own = settings()
    own["nodesim"] = {**own["nodesim"], "terminating_s": 3_600}
    async with running(a2_nodes(3), own) as world:
        await submit(world, namespace, "llm", 2, fault_scheduling="grace", pod_rescheduling="on")
        old = await until_seats(world, namespace, "llm", 2)
        await break_node(world, BreakNode(old[1].node, "chip", [3]))

        async def has_place() -> bool:
            found = [one.recovery for one in await statuses_of(world) if one.name == "vcjob.llm"]
            return any(one is not None and one.placed for one in found)

        await until_true(has_place, deadline_s=20, what="the third node is reserved while the old pod ends")
        await kube_api.delete(f"{JOBS.format(namespace)}/llm")
        for pod in await pods_of(kube_api, namespace, "llm"):  # the containers end
            await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
        await world.until_pods(namespace, {})
        await break_node(world, BreakNode(old[1].node, "chip", [3], repair=True))
        await submit(world, namespace, "next", 3)
        await until_seats(world, namespace, "next", 3)
        await world.check_chips(namespace)


async def test_a_job_that_is_deleted_while_a_rank_has_no_place_leaves_nothing_behind(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    own = settings()
    own["dispatcher"] = {"decisions": {**FAULTS, "escalate_job_ms": 600_000}}
    async with running(a2_nodes(3), own) as world:
        labels = {"fault_scheduling": "force", "pod_rescheduling": "on", "process_recover_enable": "on"}
        await submit(world, namespace, "llm", 3, **labels)
        old = await until_seats(world, namespace, "llm", 3)
        await break_node(world, BreakNode(old[1].node, "chip", [3]))

        async def waits() -> bool:
            recoveries = [one.recovery for one in await statuses_of(world) if one.name == "vcjob.llm"]
            pods = await pods_of(kube_api, namespace, "llm")
            is_open = [one.open for one in recoveries if one is not None] == [[1]]
            return is_open and sorted("nodeName" in pod["spec"] for pod in pods) == [False, True, True]

        await until_true(waits, deadline_s=25, what="the new pod of rank 1 waits for a place")
        stay = seats_of(await pods_of(kube_api, namespace, "llm"))
        assert stay == {rank: seat for rank, seat in old.items() if rank != 1}
        await kube_api.delete(f"{JOBS.format(namespace)}/llm")
        await world.until_pods(namespace, {})
        status = await world.until_status(namespace, "vcjob.llm", "cancelled")
        assert status.placement is None
        await submit(world, namespace, "next", 2)
        await until_seats(world, namespace, "next", 2)
        assert await world.check_chips(namespace) == 16


@pytest.mark.processes
async def test_services_that_are_killed_while_jobs_recover_end_what_they_began(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    own = settings()
    own["dispatcher"] = {**own["dispatcher"], "lease_s": 1}
    async with running(own=own) as world:
        names = ("dispatcher", "binder", "inventory", "summary")
        uids: dict[str, str] = {}
        for name in names:
            uids[name] = await submit(world, namespace, name, 2, fault_scheduling="force", pod_rescheduling="on")
        seats = {name: await until_seats(world, namespace, name, 2) for name in names}
        for name in names:
            await break_node(world, BreakNode(seats[name][1].node, "chip", [3]))
            await world.restart(name)
        for name, old in seats.items():
            now = await until_seats(world, namespace, name, 2, without=frozenset({old[1].uid}))
            assert now[0] == old[0]
            assert now[1].node not in {one[1].node for one in seats.values()}

        async def is_told() -> bool:
            records = await told(kube_api, REASONS, "job-reschedule-reason", "recent-reschedule-records")
            found = {name: records.get(f"{namespace}/{name}-{uid}", {}) for name, uid in uids.items()}
            return all(one.get("TotalRescheduleTimes") == 1 for one in found.values())

        await until_true(is_told, deadline_s=20, what="each job has restarted once, as the records say")
        await world.check_chips(namespace)


def _is_alive(pod: Tree) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


async def _until_runs(fabric: Fabric, uids: Mapping[str, str], times: int) -> None:
    """Wait until the summaries of jobs have said so often that they run."""

    def have_run() -> bool:
        return all(len(fabric.running.get(uid, [])) == times for uid in uids.values())

    await until(have_run, deadline_s=20, what=f"{sorted(uids)} have run {times} times by their summaries")
