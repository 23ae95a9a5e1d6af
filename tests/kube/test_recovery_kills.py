"""Services are killed while a job recovers, at each write: pods that stay are not touched, chips have one owner."""

from typing import Any, Final

import pytest

from berth.schemas.envelope import decode, encode
from berth.schemas.facts import OutcomeSeen
from berth.schemas.simulation import BreakNode, NodeBroken
from berth.schemas.subjects import StreamName
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_volcano_job

Tree = dict[str, Any]
pytestmark = pytest.mark.timeout(240)
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {{product: module910bx8, count: {count}, name: "a2-{{index}}"}}
"""
KILLS: Final = (
    ("dispatcher", "append.before:1"),  # the step
    ("dispatcher", "append.after:1"),
    ("dispatcher", "append.before:2"),  # the release
    ("dispatcher", "append.after:2"),
    ("binder", "outcome.after:1"),  # it is announced
    ("binder", "leave.before:1"),
    ("binder", "leave.after:1"),
    ("binder", "outcome.before:2"),  # it is taken up
    ("binder", "bind.after:1"),
    ("binder", "outcome.before:3"),  # it is carried out
)
"""Services, and the points at which they are killed after the next fault."""


async def begin(target_of: TargetOf, count: int, **labels: str) -> tuple[InvalidInputCell, dict[int, Tree]]:
    """A job of three pods that runs on whole nodes, and its pods by rank."""
    target = target_of(TOPOLOGY.format(count=count), {"dispatcher": {"faults": {"enabled": True}}})
    await target.cell.start()
    job = a_volcano_job("llm", 3, 8, run_for="600s")
    job["metadata"]["labels"] |= {"fault-scheduling": "force"} | labels
    await target.api.post(JOBS.format(target.namespace), job)
    await target.cell.until_pods(target.namespace, {"Running": 3})
    return target, await by_rank(target)


async def by_rank(target: InvalidInputCell) -> dict[int, Tree]:
    """Bound pods of the job."""
    pods = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    return {int(pod["metadata"]["annotations"]["berth/rank"]): pod for pod in pods if "nodeName" in pod["spec"]}


async def set_chip(target: InvalidInputCell, node: str, *, mend: bool = False) -> None:
    """Break or repair a chip of a node."""
    request = BreakNode(node, "chip", [3], mend=mend)
    answer = await target.bus.request(target.bus.subjects.sim("break"), encode(request), timeout_s=5)
    assert decode(answer, NodeBroken).reason == ""


async def until_replaced(target: InvalidInputCell, before: dict[int, Tree], rank: int) -> dict[int, Tree]:
    """Wait until a rank runs with another pod elsewhere, and the recovery is over; returns the pods by rank."""

    async def is_back() -> bool:
        now = await by_rank(target)
        status = await target.status("vcjob.llm")
        subject = target.bus.subjects.fact_outcome(target.namespace, "vcjob.llm")
        stored = await target.bus.last(StreamName.FACTS, subject)
        is_done = stored is not None and not decode(stored.data, OutcomeSeen).open
        is_over = is_done and status is not None and status.recovery is not None and not status.recovery.open
        runs = len(now) == len(before) and all(pod["status"]["phase"] == "Running" for pod in now.values())
        return is_over and runs and now[rank]["metadata"]["uid"] != before[rank]["metadata"]["uid"]

    await target.until(f"another pod of rank {rank}", is_back, deadline_s=40)
    return await by_rank(target)


def places(pods: dict[int, Tree], *ranks: int) -> dict[int, tuple[str, str, str]]:
    """Uid, node and chips of pods."""
    return {
        rank: (
            pods[rank]["metadata"]["uid"],
            pods[rank]["spec"]["nodeName"],
            pods[rank]["metadata"]["annotations"]["huawei.com/Ascend910"],
        )
        for rank in ranks
    }


async def test_killed_at_any_write_of_a_recovery_the_services_go_on(target_of: TargetOf) -> None:
    target, pods = await begin(target_of, 6, **{"pod-rescheduling": "on"})
    step = 0
    for name, point in KILLS:
        service = target.cell.services[name]
        await service.stop()
        service.start(fault_point=point)
        broken = pods[1]["spec"]["nodeName"]
        await set_chip(target, broken)
        assert await service.ended() < 0, f"{name} is killed at {point}"
        service.start()
        now = await until_replaced(target, pods, 1)
        assert places(now, 0, 2) == places(pods, 0, 2), f"after {name} was killed at {point}"
        assert now[1]["spec"]["nodeName"] != broken
        assert int(now[1]["metadata"]["annotations"]["berth/step"]) > step
        step = int(now[1]["metadata"]["annotations"]["berth/step"])
        assert {pod["metadata"]["annotations"]["berth/attempt"] for pod in now.values()} == {"1"}
        assert await target.cell.check_chips(target.namespace) == 24
        await set_chip(target, broken, mend=True)
        pods = now
    requests = await target.berth("jobs", "--all")
    assert len(requests) == 1, "no pod was a job of its own"
    await target.cell.stop()


async def test_a_job_that_is_cancelled_while_a_rank_has_no_place_leaves_nothing_behind(target_of: TargetOf) -> None:
    target, pods = await begin(target_of, 3, **{"pod-rescheduling": "on", "process-recover-enable": "on"})
    await set_chip(target, pods[1]["spec"]["nodeName"])

    async def waits() -> bool:
        status = await target.status("vcjob.llm")
        found = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
        is_open = status is not None and status.recovery is not None and status.recovery.open == [1]
        return is_open and sum("nodeName" not in pod["spec"] for pod in found) == 1

    await target.until("the new pod of rank 1 waits for a place", waits)
    assert places(await by_rank(target), 0, 2) == places(pods, 0, 2)
    await target.api.delete(f"{JOBS.format(target.namespace)}/llm")
    await target.cell.until_pods(target.namespace, {})
    status = await target.cell.until_status(target.namespace, "vcjob.llm", "cancelled")
    assert status.placement is None
    job = a_volcano_job("next", 2, 8, run_for="600s")
    await target.api.post(JOBS.format(target.namespace), job)
    await target.cell.until_pods(target.namespace, {"Running": 2})
    assert await target.cell.check_chips(target.namespace) == 16
    await target.cell.stop()
