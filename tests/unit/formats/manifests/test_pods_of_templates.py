"""Pods of a template as its controller and the API server make them."""

import pytest

from berth.formats.manifests.reader import parse_jobs, read_jobs
from berth.schemas.constraints import Expression
from berth.schemas.intake import JobRequest
from berth.schemas.pod_constraints import LabelSelector
from tests.support.manifest_text import ascend, batch, pod, volcano


def one(text: str) -> JobRequest:
    (job,) = parse_jobs(text)
    return job


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (
            volcano(f"  - {{name: w, replicas: 1, template: {pod()}}}", spec="  queue: q\n"),
            {"volcano.sh/job-name": "job", "volcano.sh/job-namespace": "default", "volcano.sh/queue-name": "q",
             "volcano.sh/task-spec": "w", "volcano.sh/task-index": "0"},
        ),
        (
            ascend(f"{{Worker: {{replicas: 2, template: {pod()}}}}}"),
            {"training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-type": "worker",
             "training.kubeflow.org/operator-name": "ascendjob-controller"},
        ),
        (
            ascend(f"{{Master: {{replicas: 1, template: {pod()}}}}}"),
            {"training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-type": "master",
             "training.kubeflow.org/operator-name": "ascendjob-controller", "training.kubeflow.org/job-role": "master",
             "training.kubeflow.org/replica-index": "0"},
        ),
        (
            batch("parallelism: 2, completions: 2, completionMode: Indexed"),
            {"batch.kubernetes.io/job-name": "job", "job-name": "job"},
        ),
    ],
)  # fmt: skip
def test_pods_have_the_labels_that_their_controller_gives_them(text: str, labels: dict[str, str]) -> None:
    assert one(text).tasks[0].labels == labels


def test_the_labels_of_one_pod_alone_are_none_of_the_job() -> None:
    job = one(volcano(f"  - {{name: w, replicas: 1, template: {pod()}}}"))
    assert "volcano.sh/task-index" not in job.labels


ONE_POD = (
    "apps.kubernetes.io/pod-index",
    "apps.kubernetes.io/revision",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "controller-revision-hash",
    "controller-uid",
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "jobset.sigs.k8s.io/job-key",
    "leaderworkerset.sigs.k8s.io/subgroup-index",
    "leaderworkerset.sigs.k8s.io/subgroup-key",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
)


@pytest.mark.parametrize("key", ONE_POD)
def test_a_label_that_each_pod_has_with_its_own_value_is_none_of_the_job(key: str) -> None:
    job = one(volcano(f"  - {{name: w, replicas: 2, template: {pod(metadata=f'labels: {{app: a, {key}: b}}')}}}"))
    assert (key in job.labels, job.labels["app"]) == (False, "a")


@pytest.mark.parametrize(
    "key",
    [
        "berth/run-for",
        "huawei.com/affinity-config",
        "huawei.com/infer_service_schedule",
        "huawei.com/recover_policy_path",
        "huawei.com/schedule_minAvailable",
        "huawei.com/schedule_policy",
        "huawei.com/schedule_ubmemory",
        "huawei.com/skip-ascend-plugin",
        "ra-block",
        "sp-block",
        "sp-fit",
        "tp-block",
    ],
)
def test_an_annotation_that_steers_the_job_is_taken_from_the_first_template_that_has_it(key: str) -> None:
    templates = [pod(), *(pod(metadata=f"annotations: {{{key}: 1{unit}, other: x}}") for unit in "sm")]
    tasks = "".join(f"  - {{name: w{at}, replicas: 1, template: {text}}}\n" for at, text in enumerate(templates))
    assert one(volcano(tasks.rstrip("\n"))).annotations == {key: "1s"}


def test_keys_of_labels_select_as_the_server_writes_them() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spec = (
        f"affinity: {{podAntiAffinity: {{{required}: [{{topologyKey: zone, labelSelector: {{matchLabels: {{app: a}}}}, "
        "matchLabelKeys: [volcano.sh/job-name, absent], mismatchLabelKeys: [tenant]}]}}"
    )
    (task,) = one(
        volcano(f"  - {{name: w, replicas: 2, template: {pod(spec=spec, metadata='labels: {tenant: t}')}}}")
    ).tasks
    assert task.constraints is not None
    (term,) = task.constraints.anti_affinity
    assert term.selector == LabelSelector(
        (
            Expression("app", "In", ("a",)),
            Expression("tenant", "NotIn", ("t",)),
            Expression("volcano.sh/job-name", "In", ("job",)),
        )
    )


def test_spread_by_a_label_in_which_the_pods_of_a_task_differ_is_refused() -> None:
    spec = (
        "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, "
        "labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [volcano.sh/task-index]}]"
    )
    (error,) = read_jobs(volcano(f"  - {{name: w, replicas: 2, template: {pod(spec=spec)}}}")).errors
    assert (error.path, "matchLabelKeys" in error.expected) == ("spec.tasks[0].template.spec", True)


def test_a_null_in_a_selector_is_an_empty_value() -> None:
    (task,) = one(volcano(f"  - {{template: {pod(spec='nodeSelector: {zone: null}')}}}")).tasks
    assert one(volcano(f"  - {{template: {pod(spec='nodeSelector: {zone: null}')}}}")).node_selector == {"zone": ""}
    assert task.node_selector == {}
