from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from berth.core.requests.job_validation import ValidJob, validate
from berth.formats.manifests.reader import parse_jobs, read_jobs
from berth.schemas.constraints import Expression, Term, Toleration
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm, SpreadTerm
from berth.schemas.refusal import Refusal
from tests.support.manifest_text import ascend, batch, berth, pod, volcano

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def one(text: str) -> JobRequest:
    (job,) = parse_jobs(text)
    return job


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*job.yaml")), ids=lambda path: path.name)
def test_every_example_is_a_valid_request(path: Path) -> None:
    for job in parse_jobs(path.read_text("utf-8")):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=JobRequest) == job
        assert job.run_ms > 0
        assert isinstance(validate(job, Settings()), ValidJob)


def test_tasks_without_pods_are_left_out() -> None:
    tasks = f"  - {{name: none, replicas: 0, template: {pod('limits: {huawei.com/npu: 1}')}}}\n  - {{name: some, template: {pod()}}}"
    job = one(volcano(tasks))
    assert ([task.name for task in job.tasks], job.resource) == (["some"], "huawei.com/Ascend910")
    assert [task.name for task in one(berth("{tasks: [{name: a, replicas: 0}, {name: b}]}")).tasks] == ["b"]


def test_a_volcano_job() -> None:
    job = one(EXAMPLES.joinpath("volcano-job.yaml").read_text("utf-8"))
    by_volcano = {
        "volcano.sh/job-name": "resnet",
        "volcano.sh/job-namespace": "vision",
        "volcano.sh/queue-name": "default",
        "volcano.sh/task-spec": "worker",
    }
    assert job == JobRequest(
        namespace="vision",
        name="resnet",
        uid="",
        resource="huawei.com/Ascend910",
        tasks=[
            Task(
                name="worker",
                replicas=2,
                chips=8,
                cpu_milli=16_000,
                memory_mib=98_304,
                tolerations=[Toleration("node.kubernetes.io/unreachable", "Exists", "", "NoExecute")],
                labels={"ring-controller.atlas": "ascend-910b", "app": "resnet", **by_volcano},
            )
        ],
        labels={"ring-controller.atlas": "ascend-910b", "fault-scheduling": "force", "app": "resnet", **by_volcano},
        annotations={"berth/run-for": "45s", "berth/priority-class": "training"},
        node_selector={"accelerator-type": "module-910b-8"},
        min_available=2,
        run_ms=45_000,
        origin="volcano-job",
    )


def test_tasks_of_a_volcano_job_keep_their_order_and_get_names() -> None:
    job = one(volcano(f"  - {{name: ps, replicas: 2, template: {pod('limits: {cpu: 1}')}}}\n  - template: {pod()}"))
    assert [(task.name, task.replicas, task.chips) for task in job.tasks] == [("ps", 2, 0), ("default1", 1, 8)]
    assert job.namespace == "default"


def test_replica_types_of_an_ascend_job_are_ranked_by_role() -> None:
    order = [
        task.name
        for task in one(ascend(f"{{Worker: {{replicas: 2, template: {pod()}}}, Chief: {{template: {pod()}}}}}")).tasks
    ]
    assert order == ["chief", "worker"]
    job = one(EXAMPLES.joinpath("ascend-job.yaml").read_text("utf-8"))
    assert [(task.name, task.replicas, task.chips, task.cpu_milli) for task in job.tasks] == [
        ("master", 1, 8, 32_000),
        ("worker", 3, 8, 32_000),
    ]
    assert job.annotations["huawei.com/schedule_policy"] == "chip8-node8"
    assert (job.min_available, job.run_ms) == (4, 90_000)


def test_queue_and_priority_class_of_an_ascend_job() -> None:
    job = one(
        ascend(
            f"{{Worker: {{template: {pod()}}}}}",
            policy="{queue: q1, priorityClass: system-node-critical, minAvailable: 1}",
        )
    )
    assert (job.queue, job.priority, job.min_available) == ("q1", 2_000_001_000, 1)


def test_pods_of_a_batch_job() -> None:
    job = one(EXAMPLES.joinpath("batch-job.yaml").read_text("utf-8"))
    assert [(task.name, task.replicas, task.chips, task.cpu_milli, task.memory_mib) for task in job.tasks] == [
        ("worker", 2, 2, 1500, 6144)
    ]
    by_kubernetes = {"batch.kubernetes.io/job-name": job.name, "job-name": job.name}
    assert job.labels == {"duo": "true", "npu-310-strategy": "card", **by_kubernetes}
    assert job.annotations == {"huawei.com/schedule_minAvailable": "2", "berth/run-for": "10s"}
    assert (job.resource, job.min_available, job.run_ms) == ("huawei.com/Ascend310P", 2, 10_000)


@pytest.mark.parametrize(
    ("spec", "annotations", "replicas", "min_available"),
    [
        ("parallelism: 4", "", 4, 1),
        ("parallelism: 4, completions: 4, completionMode: Indexed", "", 4, 0),
        ("parallelism: 4, completions: 3", "", 3, 1),
        ("parallelism: 4", 'scheduling.volcano.sh/group-min-member: "3"', 4, 3),
        ("parallelism: 4", 'scheduling.volcano.sh/group-min-member: "3", huawei.com/schedule_minAvailable: "2"', 4, 2),
        ("completionMode: NonIndexed", "", 1, 1),
    ],
)
def test_how_many_pods_of_a_batch_job_start_together(
    spec: str, annotations: str, replicas: int, min_available: int
) -> None:
    job = one(batch(spec, annotations=annotations))
    assert (job.tasks[0].replicas, job.min_available) == (replicas, min_available)


def test_the_jobs_own_labels_and_annotations_outrank_those_of_its_pods() -> None:
    first = pod(metadata="labels: {a: pod, b: x}, annotations: {sp-block: '8', other: left, sp-fit: first}")
    second = pod(metadata="labels: {b: y, c: z}, annotations: {sp-fit: second, tp-block: '2'}")
    job = one(
        volcano(
            f"  - {{name: a, template: {first}}}\n  - {{name: b, template: {second}}}",
            metadata="name: job\n  labels: {a: job}\n  annotations: {sp-block: '16', mine: yes please}",
        )
    )
    assert {key: job.labels[key] for key in "abc"} == {"a": "job", "b": "x|y", "c": "z"}
    assert job.labels["volcano.sh/task-spec"] == "a|b"
    assert job.annotations == {"sp-block": "16", "mine": "yes please", "sp-fit": "first", "tp-block": "2"}


TOR = "labels: {tor-affinity: large-model-schema}"


@pytest.mark.parametrize(
    "text",
    [
        volcano(f"  - {{replicas: 4, template: {pod()}}}", spec="  minAvailable: 4\n", metadata=f"name: job\n  {TOR}"),
        volcano(f"  - {{replicas: 4, template: {pod(metadata=TOR)}}}", spec="  minAvailable: 4\n"),
        ascend(f"{{Worker: {{replicas: 4, template: {pod(metadata=TOR)}}}}}", policy="{minAvailable: 4}"),
        batch("parallelism: 4", template=pod(metadata=TOR), annotations='huawei.com/schedule_minAvailable: "4"'),
        berth("{resource: huawei.com/Ascend910, replicas: 4, chips: 8, minAvailable: 4}", metadata=f"{{name: job, {TOR}}}"),
    ],
)  # fmt: skip
def test_the_label_of_switch_affinity_and_the_minimum_of_every_form(text: str) -> None:
    job = one(text)
    assert (job.labels["tor-affinity"], job.min_available) == ("large-model-schema", 4)
    assert isinstance(validate(job, Settings()), ValidJob)
    fewer = validate(msgspec.structs.replace(job, min_available=3), Settings())
    assert isinstance(fewer, Refusal)
    assert fewer.field == "min_available"


def test_what_all_tasks_select_is_the_jobs_selector_and_the_rest_stays_with_the_task() -> None:
    first, second = pod(spec="nodeSelector: {zone: a, arch: arm}"), pod(spec="nodeSelector: {zone: b, arch: arm, x: y}")
    job = one(volcano(f"  - {{name: a, template: {first}}}\n  - {{name: b, template: {second}}}"))
    assert job.node_selector == {"arch": "arm"}
    assert [task.node_selector for task in job.tasks] == [{"zone": "a"}, {"zone": "b", "x": "y"}]


def test_containers_add_up_init_containers_count_as_the_largest() -> None:
    spec = dedent("""
        - name: w
          template:
            spec:
              overhead: {cpu: 10m, memory: 1Mi}
              initContainers:
                - resources: {requests: {cpu: 9, memory: 10Mi}}
                - {restartPolicy: Always, resources: {requests: {cpu: 500m, memory: 1Gi}}}
                - resources: {requests: {cpu: 1}}
              containers:
                - resources: {requests: {cpu: 250m, memory: 0.5Mi}, limits: {cpu: 4, huawei.com/Ascend910: 2}}
                - resources: {limits: {cpu: 1500m, memory: 0.25Mi}}
                - {name: idle}
    """)
    (task,) = one(volcano("\n".join("  " + line for line in spec.strip().splitlines()))).tasks
    assert task.chips == 2
    assert task.cpu_milli == 9010
    assert task.memory_mib == 1024 + 1 + 1


def test_a_request_without_a_limit_counts_as_chips() -> None:
    assert one(volcano(f"  - {{template: {pod('requests: {huawei.com/npu: 4}')}}}")).tasks[0].chips == 4


def test_required_affinity_and_tolerations() -> None:
    affinity = (
        "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}, nodeAffinity: "
        "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}, {matchExpressions: "
        "[{key: a, operator: In, values: [x, '']}, {key: b, operator: Exists}], matchFields: "
        "[{key: metadata.name, operator: NotIn, values: [n1]}]}, {matchExpressions: [{key: c, operator: Gt, values: ['3']}]}]}}}"
    )
    tolerations = "tolerations: [{operator: Exists}, {key: k, value: v, effect: NoExecute, tolerationSeconds: 3}]"
    (task,) = one(volcano(f"  - {{template: {pod(spec=f'{affinity}, {tolerations}')}}}")).tasks
    assert task.affinity == [
        Term(
            (
                Expression("a", "In", ("x", "")),
                Expression("b", "Exists"),
                Expression("metadata.name", "NotIn", ("n1",)),
            )
        ),
        Term((Expression("c", "Gt", ("3",)),)),
    ]
    assert task.tolerations == [Toleration(operator="Exists"), Toleration("k", "Equal", "v", "NoExecute")]


@pytest.mark.parametrize(
    ("spec", "priority", "kept"),
    [
        ("priorityClassName: system-cluster-critical", 2_000_000_000, None),
        ("priorityClassName: gold", 0, "gold"),
        ("priority: 7, priorityClassName: gold", 7, "gold"),
        ("priority: -3", -3, None),
    ],
)
def test_priority_of_a_pod_template(spec: str, priority: int, kept: str | None) -> None:
    job = one(volcano(f"  - {{template: {pod(spec=spec)}}}"))
    assert (job.priority, job.annotations.get("berth/priority-class")) == (priority, kept)


def test_a_berth_job_may_name_a_product_instead_of_its_labels() -> None:
    assert one(berth("{product: chip4-node8, chips: 4}")) == JobRequest(
        namespace="default",
        name="job",
        uid="",
        resource="huawei.com/npu",
        tasks=[Task(name="worker", replicas=1, chips=4)],
        annotations={"huawei.com/schedule_policy": "chip4-node8"},
    )
    assert one(berth("{product: 310p-duo, chips: 1}")).labels == {"duo": "true"}
    by_hand = one(berth("{product: module910bx8, chips: 4, nodeSelector: {accelerator-type: other}, policy: mine}"))
    assert by_hand.node_selector == {"accelerator-type": "other"}
    assert by_hand.annotations == {"huawei.com/schedule_policy": "mine"}


def test_a_soft_share_job() -> None:
    job = one(EXAMPLES.joinpath("soft-share-job.yaml").read_text("utf-8"))
    assert job.labels == {
        "huawei.com/scheduler.softShareDev.aicoreQuota": "25",
        "huawei.com/scheduler.softShareDev.hbmQuota": "16384",
        "huawei.com/scheduler.softShareDev.policy": "elastic",
    }
    assert job.annotations == {"huawei.com/schedule_policy": "chip1-softShareDev"}
    assert job.tasks[0].chips == 1


def test_a_berth_job_without_chips() -> None:
    job = one(berth("{cpu: 1}", metadata="{name: job, uid: u1, namespace: ns, annotations: {berth/run-for: 5s}}"))
    assert (job.resource, job.uid, job.namespace, job.run_ms) == ("", "u1", "ns", 5000)


def test_several_documents_and_lists_give_jobs_in_order() -> None:
    text = "---\n" + berth("{}", metadata="{name: a}") + "---\n---\n"
    text += "apiVersion: v1\nkind: List\nitems:\n"
    text += "  - {apiVersion: berth/v1, kind: Job, metadata: {name: b}, spec: {}}\n"
    text += "  - {apiVersion: berth/v1, kind: Job, metadata: {name: c}, spec: {}}\n"
    assert [job.name for job in parse_jobs(text)] == ["a", "b", "c"]


def test_json_is_yaml() -> None:
    assert one('{"apiVersion": "berth/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {}}').name == "a"


def test_merge_keys_and_shared_anchors_work() -> None:
    text = "apiVersion: berth/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  resource: huawei.com/npu\n  tasks:\n"
    text += "    - &t {name: x, chips: 1}\n    - &u {<<: *t, name: y}\n    - {<<: *u, name: z, chips: 2}\n"
    assert [(task.name, task.chips) for task in one(text).tasks] == [("x", 1), ("y", 1), ("z", 2)]


def test_labels_and_constraints_of_the_pods_of_every_form() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spec = (
        f"affinity: {{podAntiAffinity: {{{required}: [{{topologyKey: zone, labelSelector: {{matchLabels: {{app: a}}}}}}]}}}}, "
        "topologySpreadConstraints: [{topologyKey: rack, maxSkew: 2, whenUnsatisfiable: DoNotSchedule, "
        "labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [run]}], hostNetwork: true, "
        "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: w, emptyDir: {}}], "
        "initContainers: [{name: i, restartPolicy: Always, ports: [{containerPort: 90, protocol: null}]}]"
    )
    template = pod("limits: {huawei.com/Ascend910: 8, rdma/hca: 2}", spec=spec, metadata="labels: {app: a, run: r1}")
    selector = LabelSelector((Expression("app", "In", ("a",)),))
    with_run = LabelSelector((Expression("app", "In", ("a",)), Expression("run", "In", ("r1",))))
    wanted = PodConstraints(
        anti_affinity=(PodTerm("zone", selector, ("default",)),),
        spread=(SpreadTerm("rack", 2, with_run),),
        ports=(HostPort(90),),
        resources=(("rdma/hca", 2),),
        claims=("data",),
    )
    texts = [
        volcano(f"  - {{template: {template}}}"),
        ascend(f"{{Worker: {{template: {template}}}}}"),
        batch("parallelism: 1", template=template),
    ]
    for text in texts:
        (task,) = one(text).tasks
        assert task.labels.items() >= {"app": "a", "run": "r1"}.items()
        assert task.constraints == wanted


def test_pods_that_never_end_have_no_run_time() -> None:
    assert one(berth("{}", metadata="{name: job, annotations: {berth/run-for: forever}}")).run_ms == 0


@pytest.mark.parametrize(
    ("overhead", "cpu_milli", "memory_mib"),
    [("{}", 1_000, 2), ("{memory: 1Mi}", 1_000, 3), ("{cpu: 10m}", 1_010, 2)],
)
def test_an_overhead_adds_what_it_names(overhead: str, cpu_milli: int, memory_mib: int) -> None:
    template = pod("requests: {cpu: 1, memory: 2Mi}", spec=f"overhead: {overhead}")
    (task,) = one(volcano(f"  - {{name: w, replicas: 1, template: {template}}}")).tasks
    assert (task.cpu_milli, task.memory_mib) == (cpu_milli, memory_mib)


def test_a_job_that_names_no_number_of_pods_is_one_pod() -> None:
    (task,) = one(berth("{product: module910bx8, chips: 8}")).tasks
    assert (task.replicas, task.chips) == (1, 8)


def test_what_is_no_job_is_skipped_by_name() -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rings-config-job}\n---\n"
        + volcano(f"  - {{template: {pod()}}}")
        + "---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Service, metadata: {name: s}}, "
        "{apiVersion: batch/v1, kind: CronJob}, {apiVersion: kubeflow.org/v1, kind: MPIJob, metadata: []}]\n"
    )
    reading = read_jobs(text)
    assert ([job.name for job in reading.jobs], reading.errors) == (["job"], [])
    assert [one.sentence for one in reading.skipped] == [
        "document 1: ConfigMap rings-config-job (v1) is no job; it is skipped",
        "document 3: Service s (v1) is no job; it is skipped",
        "document 3: CronJob (batch/v1) is no job; it is skipped",
        "document 3: MPIJob (kubeflow.org/v1) is no job; it is skipped",
    ]
