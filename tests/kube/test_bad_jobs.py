"""Wrong jobs: each is refused or held with a sentence where one looks for it, and the others go on."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from berth.formats.ascend.pod_annotations import ASCEND_REAL, CONSUMED, JOB_UID, KLT_DEV, PREDICATE_TIME, RANK_INDEX
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import Tree, a_container, a_spec, a_volcano_job
from tests.support.kube_history import History, recording
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)
RESOURCE: Final = "huawei.com/Ascend910"
LONG: Final = {"berth/run-for": "600s"}
GROUP: Final = "scheduling.k8s.io/group-name"
POLICY: Final = "huawei.com/schedule_policy"
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}"}
"""
QUICK: Final[dict[str, object]] = {
    "retry_s": 1,
    "look_again_s": 1,
    "groups_without_scheduler": True,
}

SETTLE_S: Final = 2.0
"""Longer than the pause between two pods that a test makes of one gang: nobody is told of a part of it."""


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    return target_of(TOPOLOGY, {"inventory": {"gangs": QUICK, "settle_s": SETTLE_S}})


async def submit(target: InvalidInputCell, job: Tree) -> Tree:
    return await target.api.post(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs", job)


async def at_once(*calls: Coroutine[Any, Any, Tree]) -> None:
    """Make the pods of a gang concurrently: how long a call takes on a busy machine is then no pause between them."""
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


async def others_go_on(target: InvalidInputCell, name: str) -> None:
    """A job that nothing is wrong with is placed."""
    await target.pod(name, a_spec(1), annotations=LONG)
    await target.until_running(name)


async def told_once(target: InvalidInputCell, kind: str, name: str, reason: str, sentence: str) -> None:
    """One Event with this reason is about the object, and it says the sentence."""

    async def events() -> list[tuple[str, str, int]]:
        return [event for event in await target.events(kind, name) if event[0] == reason]

    await target.until_is(f"an Event on {kind} {name}", events, [(reason, sentence, 1)])


async def group_says(target: InvalidInputCell, name: str, reason: str, sentence: str) -> None:
    """The PodGroup's condition Unschedulable says the sentence."""

    async def condition() -> list[tuple[str, str, str]]:
        found = (await target.podgroup(name))["status"].get("conditions", [])
        return [(one["type"], one.get("reason", ""), one.get("message", "")) for one in found]

    await target.until_is(f"condition of PodGroup {name}", condition, [("Unschedulable", reason, sentence)])


async def test_gangs_that_lack_pods_and_pods_that_ask_wrongly(target: InvalidInputCell) -> None:
    await target.cell.start()
    await minimum_above_pods(target)
    await others_go_on(target, "good-1")
    await minimum_above_size(target)
    await chips_in_two_containers(target)
    await others_go_on(target, "good-2")
    await chips_of_two_kinds(target)
    await target.until_is("held gangs", lambda: target.metric("inventory", "inventory_held_gangs"), 3)
    assert await target.cell.check_chips(target.namespace) == 2 + 3 * 2
    await target.cell.stop()


async def minimum_above_pods(target: InvalidInputCell) -> None:
    """A PodGroup of three of which two pods are there is held, and starts when the third comes."""
    await target.group("short", {"minMember": 3, "minResources": {RESOURCE: "6"}})
    await at_once(*(target.pod(f"short-{n}", a_spec(2), annotations={**LONG, GROUP: "short"}) for n in range(2)))
    sentence = "2 of at least 3 pods exist"
    await target.until_is("hold", lambda: target.hold("podgroup.short"), sentence)
    await target.until_told(["short-0", "short-1"], sentence)
    await told_once(target, "PodGroup", "short", "FailedScheduling", sentence)
    await group_says(target, "short", "JobValidateFailed", sentence)
    await target.until_is("held gangs", lambda: target.metric("inventory", "inventory_held_gangs"), 1)

    async def are_counted() -> bool:
        return await target.metric("binder", "binder_notices_total", result="written") >= 3

    await target.until("notices on two pods and their PodGroup are counted", are_counted)
    await others_go_on(target, "good-0")
    await target.drop_pod("good-0")
    await target.pod("short-2", a_spec(2), annotations={**LONG, GROUP: "short"})
    await target.until_running("short-0", "short-1", "short-2")
    await target.until_is("no hold", lambda: target.hold("podgroup.short"), "")
    assert (await target.condition("short-0"))[0] == "True"
    await told_once(target, "PodGroup", "short", "FailedScheduling", sentence)


async def minimum_above_size(target: InvalidInputCell) -> None:
    """A Volcano Job whose minimum is above its own pods can never start."""
    made = await submit(target, a_volcano_job("over", 2, 2, minimum=5))
    group = f"over-{made['metadata']['uid']}"
    sentence = "minMember 5 is more than the 2 pods of the job: a configuration error"
    await target.until_is("hold", lambda: target.hold("vcjob.over"), sentence)
    await target.until_told(["over-worker-0", "over-worker-1"], sentence)
    await told_once(target, "PodGroup", group, "FailedScheduling", sentence)
    await group_says(target, group, "JobValidateFailed", sentence)


async def chips_in_two_containers(target: InvalidInputCell) -> None:
    spec = a_spec(1)
    spec["containers"].append({**a_container(1), "name": "side"})
    await target.pod("twice", spec, annotations=LONG)
    sentence = "pod twice asks for chips in two containers: main and side; ask in one"
    await target.until_is("hold", lambda: target.hold("pod.twice"), sentence)
    await target.until_told(["twice"], sentence)
    await told_once(target, "Pod", "twice", "FailedScheduling", sentence)


async def chips_of_two_kinds(target: InvalidInputCell) -> None:
    spec = a_spec(1)
    spec["containers"].append({**a_container(1, resource="huawei.com/npu"), "name": "side"})
    await target.pod("mixed", spec, annotations=LONG)
    await target.until("hold", lambda: target.hold("pod.mixed"))
    sentence = await target.hold("pod.mixed")
    assert sentence.startswith("pod mixed asks for chips"), sentence
    await target.until_told(["mixed"], sentence)


async def test_jobs_that_name_what_is_unknown_or_ask_for_too_much(target: InvalidInputCell) -> None:
    await target.cell.start()
    await unknown_policy(target)
    await no_policy(target)
    await unknown_form(target)
    await job_in_parts_of_a_node(target)
    await others_go_on(target, "good-1")
    await larger_than_cluster(target)
    await group_larger_than_cluster(target)
    await others_go_on(target, "good-2")
    await target.cell.stop()


async def unknown_policy(target: InvalidInputCell) -> None:
    """The selection goes on with the node selector; it is said which form is assumed, and why."""
    await target.pod("odd", a_spec(2), annotations={**LONG, POLICY: "chip9-node9"})
    await target.until_running("odd")
    because = (
        f"annotation {POLICY} has the unknown value 'chip9-node9', and node selector accelerator-type is module-910b-8"
    )
    await told_once(target, "Pod", "odd", "FormAssumed", f"product form module910bx8 is assumed, because {because}")
    told = await target.berth("explain", "pod.odd", "--namespace", target.namespace)
    assert any(because in sentence for sentence in told["sentences"]), told
    await target.until_is(
        "inventory_problems_total", lambda: target.metric("inventory", "inventory_problems_total", kind="Pod"), 1
    )


async def no_policy(target: InvalidInputCell) -> None:
    """Jobs for huawei.com/npu must name one."""
    spec = a_spec(0)
    spec["containers"] = [a_container(2, resource="huawei.com/npu")]
    await target.pod("npu", spec, annotations=LONG)
    await rejected(target, "npu", f"annotations.{POLICY} is ''")


async def unknown_form(target: InvalidInputCell) -> None:
    spec = a_spec(2) | {"nodeSelector": {"accelerator-type": "module-777"}}
    await target.pod("form", spec, annotations={**LONG, POLICY: "chip9-node9"})
    await rejected(target, "form", "node_selector.accelerator-type is 'module-777', expected one of ")


async def job_in_parts_of_a_node(target: InvalidInputCell) -> None:
    """On 910A a gang with parts of nodes is told which setting forbids it, and what would be accepted."""
    await target.group("parts", {"minMember": 2})
    spec = a_spec(4) | {"nodeSelector": {"accelerator-type": "module"}}
    await at_once(*(target.pod(f"parts-{n}", spec, annotations={**LONG, GROUP: "parts"}) for n in range(2)))
    sentence = (
        "tasks is '8 chips in 2 pods', expected one pod with 1, 2, 4 or 8 chips, or 8 chips in every pod"
        " (setting strict_job_shape)"
    )
    await target.until_told(["parts-0", "parts-1"], sentence)
    await told_once(target, "PodGroup", "parts", "JobRejected", sentence)
    await group_says(target, "parts", "JobValidateFailed", sentence)


async def rejected(target: InvalidInputCell, pod: str, words: str) -> None:
    status = await target.cell.until_status(target.namespace, f"pod.{pod}", "rejected")
    assert status.sentence.startswith(words), status.sentence
    await target.until_told([pod], status.sentence)
    await told_once(target, "Pod", pod, "JobRejected", status.sentence)


async def larger_than_cluster(target: InvalidInputCell) -> None:
    """A pod that wants more chips than any node has, and more of them than the cluster has."""
    await target.pod("nine", a_spec(9), annotations=LONG)
    await rejected(target, "nine", "tasks[0].chips is '9'")
    await target.group("huge", {"minMember": 5})
    await at_once(*(target.pod(f"huge-{n}", a_spec(8), annotations={**LONG, GROUP: "huge"}) for n in range(5)))
    status = await target.cell.until_status(target.namespace, "podgroup.huge", "waiting", "rejected")
    assert "larger than the cluster" in status.sentence or "pods find room" in status.sentence, status
    await target.until_told([f"huge-{number}" for number in range(5)], status.sentence)
    await told_once(target, "PodGroup", "huge", "FailedScheduling", status.sentence)
    await group_says(target, "huge", "JobValidateFailed", status.sentence)


async def group_larger_than_cluster(target: InvalidInputCell) -> None:
    """A Volcano Job that asks for more than there is gets no pods, and its PodGroup says why."""
    made = await submit(target, a_volcano_job("vast", 9, 8))
    group = f"vast-{made['metadata']['uid']}"

    async def message() -> str:
        found = (await target.podgroup(group))["status"].get("conditions", [])
        return next((one["message"] for one in found if one["reason"] == "JobEnqueueFailed"), "")

    await target.until("a condition", message)
    sentence = await message()
    assert sentence.startswith(f"asks for 72 {RESOURCE}, "), sentence
    assert (await target.podgroup(group))["status"]["phase"] == "Pending"

    async def told() -> list[str]:
        return [reason for reason, text, _ in await target.events("PodGroup", group) if text.startswith("asks for 72 ")]

    await target.until_is("an Event on the PodGroup", told, ["EnqueueFailed"])


async def test_labels_for_faults_that_contradict_one_another(target_of: TargetOf) -> None:
    target = target_of(TOPOLOGY, {"inventory": {"gangs": QUICK}})
    await target.cell.start()
    await target.group("torn", {"minMember": 2})
    for number, way in enumerate(("grace", "force")):
        meta = {"labels": {"fault-scheduling": way}, "annotations": {GROUP: "torn"}}
        await target.pod(f"torn-{number}", a_spec(1), **meta)
    words = "labels.fault-scheduling is 'grace|force': expected one of grace, force, off,"
    await target.until_event("PodGroup", "torn", "FaultLabelIgnored", words)
    status = await target.cell.until_status(target.namespace, "podgroup.torn", "rejected")
    refusal = status.refusal
    assert refusal is not None
    assert (refusal.field, refusal.value) == ("labels.fault-scheduling", "grace|force")


async def test_pods_that_wait_for_gates_and_owners_and_those_of_a_rolled_back_attempt(
    target: InvalidInputCell, tmp_path: Path
) -> None:
    await target.cell.start()
    async with recording(target.api, tmp_path, target.namespace) as history:
        stale = {
            RESOURCE: "Ascend910-6,Ascend910-7",
            PREDICATE_TIME: CONSUMED,
            ASCEND_REAL: "Ascend910-6,Ascend910-7",
            KLT_DEV: "Ascend910-6,Ascend910-7",
            JOB_UID: "another",
            "distributed-job": "true",
        }
        await target.pod("stale", a_spec(2), annotations=LONG | stale)
        await target.until_running("stale")
        await until(lambda: is_bound(history), deadline_s=20, what="the watch has shown the binding")
        versions = history.pods.of["stale"]
        bound = next(pod for pod in versions if pod.spec.node_name)
        cleaned = [pod for pod in versions if not pod.spec.node_name][-1]
        assert not {key for key in stale if cleaned.metadata.annotation(key)}, cleaned.metadata.annotations
        assert bound.metadata.annotation(RESOURCE) == "Ascend910-0,Ascend910-1"
        assert bound.metadata.annotation(PREDICATE_TIME) != CONSUMED
        assert not bound.metadata.annotation(ASCEND_REAL)
        assert bound.metadata.annotation(JOB_UID) != "another"
        assert bound.metadata.annotation("distributed-job") == "false"
        assert not bound.metadata.annotation(RANK_INDEX)
    await gated(target)
    await suspended_set(target)
    await suspended_job(target)
    await others_go_on(target, "good")
    await target.cell.check_chips(target.namespace)
    await target.cell.stop()


def is_bound(history: History) -> bool:
    return any(pod.spec.node_name for pod in history.pods.of.get("stale", ()))


async def gated(target: InvalidInputCell) -> None:
    """A pod with a scheduling gate waits with a reason, and goes when the gate is gone."""
    gates = [{"name": "example.com/later"}]
    made = await target.pod("gated", a_spec(1) | {"schedulingGates": gates}, annotations=LONG)
    if "schedulingGates" not in made["spec"]:
        print("schedulingGates: this server drops it, pods with gates are proved on decoded objects")  # noqa: T201  # cases that a server lacks are named
        await target.until_running("gated")
        return
    sentence = "pod gated waits for scheduling gate example.com/later"
    await target.until_is("hold", lambda: target.hold("pod.gated"), sentence)
    wanted = ("False", "SchedulingGated", sentence)
    await target.until_is("condition of gated", lambda: target.condition("gated"), wanted)
    await told_once(target, "Pod", "gated", "FailedScheduling", sentence)
    await others_go_on(target, "beside")
    assert not (await target.api.get(f"/api/v1/namespaces/{target.namespace}/pods/gated"))["spec"].get("nodeName")
    await target.api.patch(f"/api/v1/namespaces/{target.namespace}/pods/gated", {"spec": {"schedulingGates": []}})
    await target.until_running("gated")


async def suspended_set(target: InvalidInputCell) -> None:
    """Pods of a suspended JobSet wait with a reason, and go when it is resumed."""
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{target.namespace}/jobsets"
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1, "completions": 1}}}]
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "rest"},
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }
    made = await target.api.post(path, body)
    pods = ["rest-w-0-0", "rest-w-1-0"]
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "rest",
        "jobset.sigs.k8s.io/jobset-uid": made["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": "w",
    }
    await at_once(
        *(
            target.pod(pod, a_spec(1), labels=labels | {"jobset.sigs.k8s.io/job-index": str(n)}, annotations=LONG)
            for n, pod in enumerate(pods)
        )
    )
    sentence = "its job is suspended"
    await target.until_is("hold", lambda: target.hold("jobset.rest"), sentence)
    await target.until_told(pods, sentence)
    await told_once(target, "JobSet", "rest", "FailedScheduling", sentence)
    await target.api.patch(f"{path}/rest", {"spec": {"suspend": False}})
    await target.until_running(*pods)


async def suspended_job(target: InvalidInputCell) -> None:
    """A suspended batch Job gets its pods, and these their chips, once it is resumed."""
    path = f"/apis/batch/v1/namespaces/{target.namespace}/jobs"
    template = {"metadata": {"annotations": LONG}, "spec": a_spec(1)}
    spec: dict[str, Any] = {"parallelism": 1, "completions": 1, "suspend": True, "template": template}
    made = await target.api.post(path, {"metadata": {"name": "later"}, "spec": spec})
    selector = "job-name=later"
    if "suspend" not in made["spec"]:
        print("suspend: this server drops it, suspended Jobs are proved on decoded objects")  # noqa: T201  # cases that a server lacks are named
    else:

        async def seen() -> bool:
            found = await target.api.get(f"{path}/later")
            return any(one["type"] == "Suspended" for one in found["status"].get("conditions", ()))

        await target.until("the controller has seen the Job", seen)
        assert not await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods", labelSelector=selector)
        await target.api.patch(f"{path}/later", {"spec": {"suspend": False}})
    await target.cell.until_pods(target.namespace, {"Running": 1}, selector=selector)
