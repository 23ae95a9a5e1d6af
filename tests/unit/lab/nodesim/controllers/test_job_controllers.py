"""What the played controllers of Volcano and of the Ascend operator do for a job; pure."""

import re
from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.lean import Meta, OwnerReference
from berth.formats.kubernetes.objects import Pod, PodGroup, PodGroupStatus, PodStatus
from berth.lab.nodesim.controllers.ascend_operator import AscendJob, AscendRules
from berth.lab.nodesim.controllers.ascend_operator import desired_pods_of as ascend_seats
from berth.lab.nodesim.controllers.gang_children import (
    Action,
    AnnotatePod,
    Children,
    DeleteGroup,
    DeletePods,
    MakeGroup,
    MakePods,
    SetGroupSpec,
    SetJobStatus,
)
from berth.lab.nodesim.controllers.volcano import VolcanoJob, VolcanoRules

RESOURCE = "huawei.com/Ascend910"
T0 = 1_763_640_000_000
NPU = {"spec": {"containers": [{"name": "c", "resources": {"limits": {RESOURCE: 8}}}]}}
CPU = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}


def volcano(status: dict[str, Any] | None = None, **spec: Any) -> VolcanoJob:  # noqa: ANN401 - any field of a job
    tree = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "annotations": {"berth/run-for": "9s"}},
        "spec": {"schedulerName": "berth", "tasks": [{"name": "w", "replicas": 2, "template": NPU}], **spec},
        "status": status or {},
    }
    return msgspec.convert(tree, VolcanoJob)


def ascend(restart: str = "OnFailure", **policy: Any) -> AscendJob:  # noqa: ANN401 - any field of a run policy
    specs = {
        "Worker": {"replicas": 2, "restartPolicy": restart, "template": NPU},
        "Scheduler": {"replicas": 1, "restartPolicy": restart, "template": CPU},
    }
    tree = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "annotations": {"recover-strategy": "x"}},
        "spec": {"schedulerName": "berth", "runPolicy": policy, "replicaSpecs": specs},
    }
    return msgspec.convert(tree, AscendJob)


def group(phase: str = "Inqueue") -> PodGroup:
    return PodGroup(metadata=Meta(name="j-u", namespace="ns", uid="g"), status=PodGroupStatus(phase=phase))


def pod(name: str, phase: str, *, task: str = "w", owner: str = "u", ending: bool = False, uid: str = "") -> Pod:
    return Pod(
        metadata=Meta(
            name=name,
            namespace="ns",
            uid=uid or f"uid-{name}",
            labels={"training.kubeflow.org/replica-type": task},
            annotations={"volcano.sh/task-spec": task},
            owner_references=[OwnerReference(uid=owner, controller=True)],
            deletion_timestamp="2026-01-01T00:00:00Z" if ending else None,
        ),
        status=PodStatus(phase=phase),
    )


def children(*pods: Pod, phase: str = "Inqueue") -> Children:
    return Children(group(phase) if phase else None, {item.metadata.name: item for item in pods})


def made(actions: list[Action]) -> list[str]:
    return [body["metadata"]["name"] for action in actions if isinstance(action, MakePods) for body in action.bodies]


def deleted(actions: list[Action]) -> list[str]:
    return [item.metadata.name for action in actions if isinstance(action, DeletePods) for item in action.pods]


def phase_of(actions: list[Action]) -> str:
    (status,) = [action.status for action in actions if isinstance(action, SetJobStatus)]
    return str(status["state"]["phase"])


def test_no_pods_before_the_group_is_let_in() -> None:
    rules = VolcanoRules()
    actions = rules.reconcile(volcano(), children(phase=""), T0)
    (found,) = [action.body for action in actions if isinstance(action, MakeGroup)]
    assert (found["metadata"]["name"], found["status"]) == ("j-u", {})
    assert made(actions) == made(rules.reconcile(volcano(), children(phase="Pending"), T0)) == []
    assert made(rules.reconcile(volcano(), children(), T0)) == ["j-w-0", "j-w-1"]


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown"])
def test_a_pod_that_is_missing_is_made_anew_in_every_later_phase(phase: str) -> None:
    assert made(VolcanoRules().reconcile(volcano(), children(pod("j-w-0", "Running"), phase=phase), T0)) == ["j-w-1"]


def test_a_pod_that_still_ends_keeps_its_name() -> None:
    found = children(pod("j-w-0", "Running", ending=True), pod("j-w-1", "Running"))
    assert made(VolcanoRules().reconcile(volcano(), found, T0)) == []


def test_phases_of_a_volcano_job() -> None:
    def phase(*phases: str, **spec: Any) -> str:  # noqa: ANN401 - any field of a job
        found = children(*(pod(f"j-w-{index}", word) for index, word in enumerate(phases)))
        return phase_of(VolcanoRules().reconcile(volcano(**spec), found, T0))

    assert phase("Pending", "Running") == "Pending"
    assert phase("Running", "Running") == "Running"
    assert phase("Pending", "Running", minAvailable=1) == "Running"
    assert phase("Succeeded", "Succeeded") == "Completed"
    assert phase("Succeeded", "Failed") == "Failed"
    assert phase("Succeeded", "Failed", minSuccess=1) == "Completed"


def test_a_failed_pod_is_restarted_until_the_last_retry() -> None:
    rules = VolcanoRules()
    policies = [{"event": "PodFailed", "action": "RestartPod"}]
    job = volcano(policies=policies, maxRetry=2)
    first = children(pod("j-w-0", "Failed"), pod("j-w-1", "Running"))
    for _ in range(2):  # again, since neither deletion nor status need have come through
        actions = rules.reconcile(job, first, T0)
        assert deleted(actions) == ["j-w-0"]
        (status,) = [action.status for action in actions if isinstance(action, SetJobStatus)]
        assert (status["retryCount"], status["state"]["phase"]) == (1, "Restarting")
    second = children(pod("j-w-0", "Failed", uid="new"), pod("j-w-1", "Running"))
    for _ in range(2):
        actions = rules.reconcile(job, second, T0)
        assert phase_of(actions) == "Failed"
        assert deleted(actions) == ["j-w-1"]


def test_restarting_a_task_ends_all_pods_of_the_task_and_no_others() -> None:
    tasks = [{"name": name, "replicas": 2, "template": NPU} for name in ("w", "m")]
    job = volcano(policies=[{"event": "PodFailed", "action": "RestartTask"}], tasks=tasks)
    found = children(
        *(pod(f"j-{name}-{index}", "Running", task=name) for name in "wm" for index in range(2)),
    )
    found = Children(found.group, {**found.pods, "j-w-0": pod("j-w-0", "Failed")})
    assert deleted(VolcanoRules().reconcile(job, found, T0)) == ["j-w-0", "j-w-1"]


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask", "RestartPod"])
def test_a_restart_replaces_the_group_before_new_pods_come(action: str) -> None:
    rules, job = VolcanoRules(), volcano(policies=[{"event": "PodFailed", "action": action}])
    found = children(pod("j-w-0", "Failed"), pod("j-w-1", "Running"))
    actions = rules.reconcile(job, found, T0)
    kinds = [type(one) for one in actions]
    assert kinds.index(AnnotatePod) < kinds.index(DeletePods) < kinds.index(DeleteGroup)
    left = {} if action == "RestartJob" else {"j-w-1": pod("j-w-1", "Running")}
    while_it_goes = rules.reconcile(job, Children(group("Running"), left), T0)
    assert (made(while_it_goes), DeleteGroup in map(type, while_it_goes)) == ([], True)
    gone = rules.reconcile(job, Children(None, left), T0)
    assert (made(gone), MakeGroup in map(type, gone)) == ([], True)
    new = msgspec.structs.replace(group(""), metadata=Meta(name="j-u", namespace="ns", uid="new"))
    assert made(rules.reconcile(job, Children(new, left), T0)) == []
    new = msgspec.structs.replace(new, status=PodGroupStatus(phase="Inqueue"))
    actions = rules.reconcile(job, Children(new, left), T0)
    assert "j-w-0" in made(actions)
    (bodies,) = [one.bodies for one in actions if isinstance(one, MakePods)]
    assert bodies[0]["metadata"]["annotations"]["volcano.sh/job-retry-count"] == "1"


def test_a_pod_that_is_taken_away_restarts_the_job_only_where_it_says_so() -> None:
    for policies, gone, anew in (
        ([{"event": "PodEvicted", "action": "RestartJob"}], ["j-w-1"], []),
        ([], [], ["j-w-0"]),
    ):
        rules, job = VolcanoRules(), volcano(policies=policies)
        rules.reconcile(job, children(pod("j-w-0", "Running"), pod("j-w-1", "Running")), T0)
        actions = rules.reconcile(job, children(pod("j-w-1", "Running")), T0)
        assert (deleted(actions), made(actions)) == (gone, anew)


def test_a_job_that_is_made_larger_or_smaller_changes_its_group_and_its_last_pods() -> None:
    rules, job = VolcanoRules(), volcano(minAvailable=1)
    (body,) = [one.body for one in rules.reconcile(job, children(phase=""), T0) if isinstance(one, MakeGroup)]
    known = msgspec.convert(
        {**body, "metadata": {**body["metadata"], "uid": "g"}, "status": {"phase": "Running"}}, PodGroup
    )
    pods = {name: pod(name, "Running") for name in ("j-w-0", "j-w-1")}
    assert [type(one) for one in rules.reconcile(job, Children(known, pods), T0)] == [SetJobStatus]
    larger = volcano(minAvailable=3, tasks=[{"name": "w", "replicas": 3, "template": NPU}])
    actions = rules.reconcile(larger, Children(known, pods), T0)
    (spec,) = [one.spec for one in actions if isinstance(one, SetGroupSpec)]
    assert (spec["minMember"], spec["minTaskMember"], made(actions)) == (3, {"w": 3}, ["j-w-2"])
    smaller = volcano(minAvailable=1, tasks=[{"name": "w", "replicas": 1, "template": NPU}])
    actions = rules.reconcile(smaller, Children(known, pods), T0)
    assert (deleted(actions), phase_of(actions)) == (["j-w-1"], "Running")
    assert made(rules.reconcile(smaller, Children(known, {"j-w-0": pods["j-w-0"]}), T0)) == []


def test_restarting_a_job_ends_all_its_pods() -> None:
    job = volcano(policies=[{"events": ["*"], "action": "RestartJob"}])
    actions = VolcanoRules().reconcile(job, children(pod("j-w-0", "Failed"), pod("j-w-1", "Running")), T0)
    assert sorted(deleted(actions)) == ["j-w-0", "j-w-1"]


@pytest.mark.parametrize(
    ("rules", "job", "old", "new"),
    [
        (VolcanoRules(), volcano(), "j-w-0", ["j-w-1"]),
        (AscendRules(), ascend(), "j-worker-0", ["j-scheduler-0", "j-worker-1"]),
    ],
)
def test_children_of_an_earlier_job_of_the_name_go_and_block_nothing_for_ever(
    rules: Any,  # noqa: ANN401 - of either kind
    job: Any,  # noqa: ANN401 - as above
    old: str,
    new: list[str],
) -> None:
    actions = rules.reconcile(job, children(pod(old, "Running", owner="old")), T0)
    assert (deleted(actions), made(actions)) == ([old], new)


@pytest.mark.parametrize("rules", [VolcanoRules(), AscendRules()])
def test_a_job_that_is_gone_takes_its_children_with_it(rules: VolcanoRules | AscendRules) -> None:
    actions = rules.reconcile(None, children(pod("a", "Running"), pod("b", "Running", ending=True)), T0)
    assert deleted(actions) == ["a"]
    assert [type(action) for action in actions] == [DeletePods, DeleteGroup]


def test_a_job_that_is_over_makes_no_more_pods_and_has_no_group() -> None:
    job = volcano(status={"state": {"phase": "Completed"}})
    assert VolcanoRules().reconcile(job, children(), T0) == [DeleteGroup(group())]
    assert VolcanoRules().reconcile(job, children(phase=""), T0) == []


def test_pods_of_a_volcano_job_carry_its_run_time_group_and_index() -> None:
    (found,) = [
        action.bodies for action in VolcanoRules().reconcile(volcano(), children(), T0) if isinstance(action, MakePods)
    ]
    notes = found[1]["metadata"]["annotations"]
    assert notes["berth/run-for"] == "9s"
    assert notes["scheduling.k8s.io/group-name"] == "j-u"
    assert notes["volcano.sh/task-index"] == "1"
    assert found[1]["spec"]["containers"][0]["env"][0] == {"name": "VC_TASK_INDEX", "value": "1"}
    assert found[1]["metadata"]["ownerReferences"][0]["apiVersion"] == "batch.volcano.sh/v1alpha1"


def test_ranks_of_an_ascend_job_leave_out_pods_without_chips() -> None:
    assert [(seat.name, seat.annotations.get("hccl/rankIndex")) for seat in ascend_seats(ascend())] == [
        ("j-scheduler-0", None),
        ("j-worker-0", "0"),
        ("j-worker-1", "1"),
    ]


def test_the_group_of_an_ascend_job() -> None:
    rules = AscendRules()
    actions = rules.reconcile(
        ascend(schedulingPolicy={"minAvailable": 2, "priorityClass": "p"}), children(phase=""), T0
    )
    (body,) = [action.body for action in actions if isinstance(action, MakeGroup)]
    assert body["spec"] == {
        "minMember": 2,
        "minTaskMember": {"scheduler": 1, "worker": 2},
        "priorityClassName": "p",
        "minResources": {"cpu": "2000m", RESOURCE: "8"},
    }
    assert body["metadata"]["labels"] == {"process-recover-enable": "on"}
    assert body["metadata"]["annotations"] == {"recover-strategy": "x"}


def test_a_failed_pod_of_an_ascend_job_comes_back_until_the_limit() -> None:
    rules, job = AscendRules(), ascend(backoffLimit=1)
    rest = [pod("j-scheduler-0", "Running", task="scheduler"), pod("j-worker-1", "Running", task="worker")]
    actions = rules.reconcile(job, children(pod("j-worker-0", "Failed", task="worker"), *rest), T0)
    assert deleted(actions) == ["j-worker-0"]
    assert made(rules.reconcile(job, children(*rest), T0)) == ["j-worker-0"]
    actions = rules.reconcile(job, children(pod("j-worker-0", "Failed", task="worker", uid="new"), *rest), T0)
    assert sorted(deleted(actions)) == ["j-scheduler-0", "j-worker-1"]
    (status,) = [action.status for action in actions if isinstance(action, SetJobStatus)]
    assert status["conditions"][-1]["type"] == "Failed"


def test_an_ascend_job_whose_pods_may_not_restart_fails() -> None:
    found = children(pod("j-worker-0", "Failed", task="worker"))
    actions = AscendRules().reconcile(ascend("Never"), found, T0)
    assert made(actions) == deleted(actions) == []
    (status,) = [action.status for action in actions if isinstance(action, SetJobStatus)]
    assert [(item["type"], item["status"]) for item in status["conditions"]] == [("Failed", "True")]
    assert status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 0, "failed": 1}


def test_an_ascend_job_runs_and_succeeds() -> None:
    rules, job = AscendRules(), ascend()
    names = [("j-scheduler-0", "scheduler"), ("j-worker-0", "worker"), ("j-worker-1", "worker")]
    for phase, state in (("Running", "Running"), ("Succeeded", "Succeeded")):
        actions = rules.reconcile(job, children(*(pod(name, phase, task=task) for name, task in names)), T0)
        (status,) = [action.status for action in actions if isinstance(action, SetJobStatus)]
        assert [item["type"] for item in status["conditions"] if item["status"] == "True"] == [state]


def of_operator(name: str, phase: str, **marks: str) -> Pod:
    found = pod(name, phase, task="worker")
    meta = msgspec.structs.replace(found.metadata, annotations={**(found.metadata.annotations or {}), **marks})
    return msgspec.structs.replace(found, metadata=meta)


def test_a_backup_pod_is_made_with_the_rank_of_the_old_one_and_takes_its_place() -> None:
    rules = AscendRules()
    others = [pod("j-scheduler-0", "Running", task="scheduler"), pod("j-worker-0", "Running", task="worker")]
    asked = of_operator("j-worker-1", "Running", needOperatorOpe="create", inHotSwitchFlow="true")
    actions = rules.reconcile(ascend(), children(*others, asked), T0)
    (name,) = made(actions)
    assert re.fullmatch(r"j-worker-1-hot-\d{4}", name)
    (body,) = [body for action in actions if isinstance(action, MakePods) for body in action.bodies]
    annotations = body["metadata"]["annotations"]
    assert (annotations["hccl/rankIndex"], annotations["backupSourcePodName"]) == ("1", "j-worker-1")
    assert (annotations["podType"], annotations["inHotSwitchFlow"]) == ("backup", "true")
    (marked,) = [action for action in actions if isinstance(action, AnnotatePod)]
    assert marked.annotations == {"needOperatorOpe": None, "backupNewPodName": name}

    flow = {"podType": "backup", "backupSourcePodName": "j-worker-1"}
    assert made(rules.reconcile(ascend(), children(*others, of_operator(name, "Running", **flow)), T0)) == []
    again = rules.reconcile(ascend(), children(*others, of_operator(name, "Running", needOperatorOpe="create")), T0)
    assert [one.startswith("j-worker-1-hot-") for one in made(again)] == [True], "it can be switched itself"
    late = of_operator(name, "Pending", needOperatorOpe="delete", **flow)
    old = of_operator("j-worker-1", "Running")
    assert deleted(rules.reconcile(ascend(), children(*others, old, late), T0)) == [name]
    assert made(rules.reconcile(ascend(), children(*others), T0)) == ["j-worker-1"], "without either it is made anew"


@pytest.mark.parametrize(("times", "state"), [(1, "Restarting"), (0, "Failed")])
def test_with_counters_of_the_scheduler_a_failed_pod_restarts_or_fails_the_job(times: int, state: str) -> None:
    asked: list[str] = []

    def retries(key: str) -> int:
        asked.append(key)
        return times

    rules = AscendRules(retries)
    job = ascend("Never")
    job = msgspec.structs.replace(
        job, metadata=msgspec.structs.replace(job.metadata, labels={"fault-retry-times": "2"})
    )
    pods = [pod("j-scheduler-0", "Running", task="scheduler"), pod("j-worker-0", "Failed", task="worker")]
    actions = rules.reconcile(job, children(*pods, pod("j-worker-1", "Running", task="worker")), T0)
    assert asked == ["ns/j-u"]
    (status,) = [action.status for action in actions if isinstance(action, SetJobStatus)]
    assert status["conditions"][-1]["type"] == state
    assert deleted(actions) == ([] if times else ["j-scheduler-0", "j-worker-1"])


@pytest.mark.parametrize(
    ("rules", "job", "version", "kind"),
    [
        (VolcanoRules(), volcano(), "batch.volcano.sh/v1alpha1", "Job"),
        (AscendRules(), ascend(), "mindxdl.gitee.com/v1", "AscendJob"),
    ],
    ids=["Volcano", "Ascend"],
)
def test_what_a_job_has_made_says_what_it_is_and_that_the_job_is_its_controller(
    rules: Any,  # noqa: ANN401 - of either kind
    job: Any,  # noqa: ANN401 - as above
    version: str,
    kind: str,
) -> None:
    groups = [one.body for one in rules.reconcile(job, children(phase=""), T0) if isinstance(one, MakeGroup)]
    pods = [body for one in rules.reconcile(job, children(), T0) if isinstance(one, MakePods) for body in one.bodies]
    assert {(body["apiVersion"], body["kind"]) for body in groups} == {("scheduling.volcano.sh/v1beta1", "PodGroup")}
    assert {(body["apiVersion"], body["kind"]) for body in pods} == {("v1", "Pod")}
    for body in (*groups, *pods):
        assert body["metadata"]["namespace"] == "ns"
        assert body["metadata"]["ownerReferences"] == [
            {
                "apiVersion": version,
                "kind": kind,
                "name": "j",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
