"""What ``kubectl describe`` shows a user of a cluster: Events, conditions, counters, priorities, queues, preemption."""

from typing import Any, Final

import pytest

from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import Preemption
from berth.schemas.subjects import StreamName
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec

pytestmark = pytest.mark.timeout(150)
LONG: Final = {"berth/run-for": "600s"}
GROUP: Final = "scheduling.k8s.io/group-name"
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUES: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
ALL_THE_SAME: Final = "the cell does not apply queues of Volcano, the job is scheduled all the same"
SOON_S: Final = 6.0
"""Far below ``vanished_s``; what is waited for takes a fraction of a second."""
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 1, name: "a2-{index}"}
"""
GANGS: Final[dict[str, object]] = {"groups_without_scheduler": True, "vanished_s": 30}


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    return target_of(TOPOLOGY, {"inventory": {"gangs": GANGS}})


async def a_gang(target: InvalidInputCell, name: str, chips: tuple[int, ...], **group: Any) -> list[str]:  # noqa: ANN401  # fields of a PodGroup's spec
    """A PodGroup with a pod for each number of chips; names of the pods."""
    await target.group(name, {"minMember": len(chips), **group})
    names = [f"{name}-{at}" for at in range(len(chips))]
    for pod, count in zip(names, chips, strict=True):
        await target.pod(pod, a_spec(count), annotations={**LONG, GROUP: name})
    return names


async def reasons(target: InvalidInputCell, kind: str, name: str) -> list[tuple[str, str]]:
    return sorted({(reason, message) for reason, message, _ in await target.events(kind, name)})


async def says(target: InvalidInputCell, kind: str, name: str, reason: str, message: str) -> None:
    """The object has the Event, soon."""

    async def told() -> bool:
        return (reason, message) in await reasons(target, kind, name)

    await target.until(f"{kind} {name} says {message}", told, deadline_s=SOON_S)


async def test_pods_and_podgroups_say_why_they_wait_and_where_they_run(target: InvalidInputCell) -> None:
    await target.cell.start()
    await target.pod("holder", a_spec(8), annotations={"berth/run-for": "forever"})
    await target.until_running("holder")
    await says(target, "Pod", "holder", "Scheduled", f"Successfully assigned {target.namespace}/holder to a2-0")
    pods = await a_gang(target, "llm", (2, 2))
    waits = (await target.cell.until_status(target.namespace, "podgroup.llm", "waiting")).sentence
    for kind, name in (("PodGroup", "llm"), *(("Pod", pod) for pod in pods)):
        await says(target, kind, name, "FailedScheduling", waits)
    await target.drop_pod("holder")
    await target.until_running(*pods)
    await says(target, "PodGroup", "llm", "Scheduled", "placed 2 pods on 1 node")
    for pod in pods:
        await says(target, "Pod", pod, "Scheduled", f"Successfully assigned {target.namespace}/{pod} to a2-0")
    await counters_follow(target, pods)
    await two_podgroups(target)
    await target.cell.stop()


async def counters_follow(target: InvalidInputCell, pods: list[str]) -> None:
    """Counters of a PodGroup are those of its pods, soon after each change."""

    async def counts() -> tuple[int, int]:
        status = (await target.podgroup("llm"))["status"]
        return status.get("running", 0), status.get("succeeded", 0)

    async def run() -> bool:
        return await counts() == (2, 0)

    async def one_is_over() -> bool:
        return await counts() == (1, 1)

    await target.until("two pods are counted", run, deadline_s=SOON_S)
    path = f"/api/v1/namespaces/{target.namespace}/pods/{pods[0]}/status"
    await target.api.patch(path, {"status": {"phase": "Succeeded"}})
    await target.until("one is over", one_is_over, deadline_s=SOON_S)


async def two_podgroups(target: InvalidInputCell) -> None:
    """A pod that names two PodGroups is held, and the other pods of its gang with it."""
    label = "scheduling.x-k8s.io/pod-group"
    await target.group("twice", {"minMember": 1})
    await target.pod("twice", a_spec(1), annotations={**LONG, GROUP: "twice"}, labels={label: "other"})
    why = f"pod twice names two PodGroups, twice (annotation {GROUP}) and other (label {label}); name one"
    await says(target, "Pod", "twice", "FailedScheduling", why)
    await target.drop_pod("twice")
    await target.until_is("nothing is held", lambda: target.hold("podgroup.twice"), "")


async def test_priorities_and_queues_count_as_it_is_said(target: InvalidInputCell) -> None:
    await target.cell.start()
    await target.api.post(CLASSES, {"metadata": {"name": "vip"}, "value": 1000})
    await target.api.post(CLASSES, {"metadata": {"name": "usual"}, "value": 10})
    await target.pod("holder", a_spec(8), annotations=LONG)
    await target.until_running("holder")
    low = await a_gang(target, "low", (4, 4))
    await target.cell.until_status(target.namespace, "podgroup.low", "waiting")
    high = await a_gang(target, "high", (4, 4), priorityClassName="vip")
    await target.cell.until_status(target.namespace, "podgroup.high", "waiting")
    await mixed_priorities(target)
    await preemption(target)
    await queues(target)
    await target.drop_pod("holder")
    await target.until_running(*high)
    path = f"/api/v1/namespaces/{target.namespace}/pods"
    assert [(await target.api.get(f"{path}/{pod}"))["spec"].get("nodeName") for pod in low] == [None, None]
    await target.cell.stop()


async def mixed_priorities(target: InvalidInputCell) -> None:
    """Pods of one gang with different priorities wait with the highest."""
    await target.group("mixed", {"minMember": 2})
    for number, name in enumerate(("vip", "usual")):
        spec = a_spec(8) | {"priorityClassName": name}
        await target.pod(f"mixed-{number}", spec, annotations={**LONG, GROUP: "mixed"})
    why = "its pods have different priorities, mixed-0 has 1000, mixed-1 has 10: priority 1000 counts"
    await says(target, "PodGroup", "mixed", "PriorityAssumed", why)
    await target.api.delete(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{target.namespace}/podgroups/mixed")
    for number in range(2):
        await target.drop_pod(f"mixed-{number}")


async def preemption(target: InvalidInputCell) -> None:
    """What a class, a PodGroup that changes, and a stamp say of preemption."""

    async def said() -> Preemption | None:
        """What the newest request of the gang says."""
        jobs = target.bus.subjects.fact_job(target.namespace, "podgroup.meek")
        stored = await target.bus.last(StreamName.LATEST, jobs)
        job = decode(stored.data, JobSeen) if stored is not None else None
        return job.request.preemption if job is not None and job.request is not None else None

    await target.api.post(CLASSES, {"metadata": {"name": "meek"}, "value": 5, "preemptionPolicy": "Never"})
    await target.group("meek", {"minMember": 1})
    await target.pod("meek-0", a_spec(8) | {"priorityClassName": "meek"}, annotations={**LONG, GROUP: "meek"})
    await target.until_is("the policy of the class", said, Preemption(never=True))
    group = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{target.namespace}/podgroups/meek"
    await target.api.patch(group, {"metadata": {"annotations": {"volcano.sh/preemptable": "maybe"}}})
    why = "annotation volcano.sh/preemptable is 'maybe': expected true or false; it counts as false"
    await says(target, "PodGroup", "meek", "PreemptionIgnored", why)
    wanted = Preemption(never=True, preemptable=False, ignored=[why])
    await target.until_is("the request of the same gang", said, wanted)
    await target.api.delete(group)
    await target.drop_pod("meek-0")
    holder = f"/api/v1/namespaces/{target.namespace}/pods/holder"
    await target.api.patch(holder, {"metadata": {"annotations": {"berth/checkpoint-at": "soon"}}})
    await target.until_event("Pod", "holder", "CheckpointIgnored", "'soon': expected a time of RFC 3339")


async def queues(target: InvalidInputCell) -> None:
    """A queue that is missing, closed or too small holds nothing back, and that is said."""
    resource = "huawei.com/Ascend910"
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    await target.api.post(QUEUES, {**kind, "metadata": {"name": "shut"}, "spec": {"weight": 1}})
    shut = {"status": {"state": "Closed", "allocated": {}}}
    await target.api.patch(f"{QUEUES}/shut/status", shut)
    await target.api.post(QUEUES, {**kind, "metadata": {"name": "small"}, "spec": {"capability": {resource: "2"}}})
    for name, why in (
        ("missing", "queue missing does not exist"),
        ("shut", "queue shut is closed"),
        ("small", f"queue small is over its capability, its jobs request 4 of 2 {resource}"),
    ):
        (pod,) = await a_gang(target, f"in-{name}", (4,), queue=name)
        await says(target, "PodGroup", f"in-{name}", "QueueIgnored", f"{why}: {ALL_THE_SAME}")
        await target.cell.until_status(target.namespace, f"podgroup.in-{name}", "waiting")
        await target.drop_pod(pod)


async def test_pods_whose_job_is_deleted_leave_no_request_of_it(target: InvalidInputCell) -> None:
    """Deleted with ``--cascade=orphan``: pods that wait are jobs of their own, those that run go on."""
    await target.cell.start()
    path = f"/apis/batch/v1/namespaces/{target.namespace}/jobs"
    for name, selector in (("waits", {"zone": "nowhere"}), ("runs", {})):
        spec = a_spec(2)
        spec["nodeSelector"] |= selector
        template = {"metadata": {"annotations": LONG}, "spec": spec}
        job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
        await target.api.post(path, {"metadata": {"name": name}, "spec": job})
    await target.cell.until_pods(target.namespace, {"Running": 2}, selector="job-name=runs")
    waiting = await target.cell.until_status(target.namespace, "job.waits", "waiting")
    running = await target.cell.until_status(target.namespace, "job.runs", "running")
    for name in ("waits", "runs"):
        await target.api.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Orphan"})

    async def over() -> bool:
        status = await target.status("job.waits")
        return status is not None and status.uid == waiting.uid and status.phase == "cancelled"

    await target.until("the request of the deleted Job is withdrawn", over, deadline_s=SOON_S)
    for pod in await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods", labelSelector="job-name=waits"):
        await target.cell.until_status(target.namespace, f"pod.{pod['metadata']['name']}", "waiting")
    status = await target.status("job.runs")
    assert status is not None
    assert (status.uid, status.phase) == (running.uid, "running")
    assert await target.cell.check_chips(target.namespace) == 4
    await target.cell.stop()


async def test_a_gang_whose_last_pod_never_comes_holds_no_chips_and_leaves_nothing(target: InvalidInputCell) -> None:
    """Of a JobSet of two pods one is made. It says what it waits for, others run, and it can be deleted."""
    await target.cell.start()
    version, job = "jobset.x-k8s.io/v1alpha2", "jobset.half"
    path = f"/apis/{version}/namespaces/{target.namespace}/jobsets"
    parts = [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1, "completions": 1}}}]
    body = {"apiVersion": version, "kind": "JobSet", "metadata": {"name": "half"}, "spec": {"replicatedJobs": parts}}
    made = await target.api.post(path, body)
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "half",
        "jobset.sigs.k8s.io/jobset-uid": made["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": "w",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/job-global-index": "0",
    }
    await target.pod("half-w-0-0", a_spec(8), labels=labels, annotations=LONG)
    why = "1 of at least 2 pods exists"
    await target.until_told(["half-w-0-0"], why)
    await says(target, "JobSet", "half", "FailedScheduling", why)
    await target.until_is("a gang is held", lambda: target.metric("inventory", "inventory_held_gangs"), 1)
    await target.pod("other", a_spec(8), annotations=LONG)
    await target.until_running("other")  # it gets all chips of the only node
    await target.api.delete(f"{path}/half")
    await target.drop_pod("half-w-0-0")
    await target.until_is("nothing is held", lambda: target.metric("inventory", "inventory_held_gangs"), 0)
    assert await target.hold(job) == ""
    assert await target.status(job) is None, "no request was made"
    await target.cell.stop()
