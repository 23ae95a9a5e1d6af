"""Jobs of the Ascend operator recover on a real API server, hand in hand with the operator and ClusterD."""

import pytest

from berth.schemas.envelope import decode
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.simulation import BreakNode
from berth.schemas.subjects import StreamName
from tests.support.faulty_cell import (
    ASCEND_JOBS,
    COUNTERS,
    FAULTS,
    GROUPS,
    REASONS,
    RunningCell,
    a2_nodes,
    ascend_job,
    break_node,
    pods_of,
    settings,
    steps_of,
    told,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)


async def test_a_job_with_process_recovery_that_finds_no_place_pauses_and_goes_on_when_it_runs(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    own = settings(recovery=True, recovery_wait_s=6.0)
    at_once = {"escalate_block_ms": 0, "escalate_superpod_ms": 0, "escalate_job_ms": 0}
    own["dispatcher"] = {"decisions": {**FAULTS, **at_once}}
    async with running(a2_nodes(2), own) as world:
        labels = {"fault-scheduling": "grace", "pod-rescheduling": "on"}
        job = ascend_job("llm", 1, labels=labels, annotations={"recover-strategy": "recover"})
        await kube_api.post(ASCEND_JOBS.format(namespace), job)
        old = await until_seats(world, namespace, "llm", 2)

        async def label() -> str:
            (group,) = await kube_api.items(GROUPS.format(namespace))
            found: str = group["metadata"]["labels"]["process-recover-enable"]
            return found

        async def is_paused() -> bool:
            world.check()
            return await label() == "pause"

        assert await label() == "on"
        await break_node(world, BreakNode(old[1].node, "chip", [3]))

        async def waits_alone() -> bool:
            phases = {
                pod["metadata"]["uid"]: pod["status"]["phase"] for pod in await pods_of(kube_api, namespace, "llm")
            }
            return old[1].uid not in phases and sorted(phases.values()) == ["Pending", "Running"]

        await until_true(waits_alone, deadline_s=20, what="the new pod waits, and the master runs on")
        await until_true(is_paused, deadline_s=20, what="process recovery pauses")

        async def is_known() -> bool:
            bus = world.bus
            found = await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("group"),))
            return [decode(one.data, GroupSeen).labels["process-recover-enable"] for one in found] == ["pause"]

        await until_true(is_known, deadline_s=20, what="the whole job may leave")
        await break_node(world, BreakNode(old[1].node, "chip", [3], repair=True))
        now = await until_seats(world, namespace, "llm", 2, without=frozenset({old[1].uid}))
        assert now[0] == old[0], "no healthy pod leaves while there is no place for the other one"
        assert "job" not in [step.scope for step in await steps_of(world, "acjob.llm")]

        async def goes_on() -> bool:
            return await label() == "on"

        await until_true(goes_on, deadline_s=20, what="process recovery goes on")


async def test_failed_pods_restart_a_job_as_often_as_it_says_and_the_operator_reads_the_counter(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with running(own=settings(reads_retries=True)) as world:
        labels = {"fault-scheduling": "force", "pod-rescheduling": "on", "fault-retry-times": "1"}
        job = await kube_api.post(ASCEND_JOBS.format(namespace), ascend_job("llm", 1, labels=labels, annotations={}))
        key = f"{namespace}/llm-{job['metadata']['uid']}"
        old = await until_seats(world, namespace, "llm", 2)

        async def until_left(times: int) -> None:
            async def is_told() -> bool:
                counters = await told(kube_api, COUNTERS, "vcjob-fault-npu-cm", "remain-retry-times")
                return bool(counters.get(key, {}).get("Times") == times)

            await until_true(is_told, deadline_s=20, what=f"{times} retries are left")

        async def state() -> str:
            found = await kube_api.get(f"{ASCEND_JOBS.format(namespace)}/llm")
            return str([one["type"] for one in found["status"]["conditions"] if one["status"] == "True"][-1])

        await until_left(1)
        wish = BreakNode(old[1].node, "container", pod=f"{namespace}/llm-worker-0", exit_code=137)
        await break_node(world, wish)
        now = await until_seats(world, namespace, "llm", 2, without=frozenset({old[1].uid}))
        assert now[0] == old[0]
        await until_left(0)
        pod = {"PodName": "llm-worker-0", "NodeName": old[1].node, "NodeRankIndex": "1"}

        async def is_recorded() -> bool:
            records = await told(kube_api, REASONS, "job-reschedule-reason", "recent-reschedule-records")
            found = records.get(key, {}).get("RescheduleRecords", [])
            return [one["ReasonOfTask"] for one in found] == [[{"RescheduleReason": "pod-failed", **pod}]]

        await until_true(is_recorded, deadline_s=20, what="one restart is recorded, with its reason")

        async def runs() -> bool:
            return await state() == "Running"

        async def has_failed() -> bool:
            return await state() == "Failed"

        await until_true(runs, deadline_s=20, what="the job runs again")
        await break_node(world, BreakNode(now[1].node, "container", pod=f"{namespace}/llm-worker-0"))
        await until_true(has_failed, deadline_s=20, what="the job fails when nothing is left")
