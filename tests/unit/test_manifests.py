from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from berth.formats.manifests import ManifestError, parse_jobs
from schemas.constraints import Expression, Term, Toleration
from schemas.intake import JobRequest, Task

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def volcano(tasks: str, *, spec: str = "", metadata: str = "name: job") -> str:
    return (
        f"apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  {metadata}\nspec:\n{spec}  tasks:\n{tasks}\n"
    )


def pod(resources: str = "limits: {huawei.com/Ascend910: 8}", *, spec: str = "", metadata: str = "") -> str:
    head = f"metadata: {{{metadata}}}, " if metadata else ""
    return f"{{{head}spec: {{{spec}{', ' if spec else ''}containers: [{{name: c, resources: {{{resources}}}}}]}}}}"


def batch(spec: str, *, annotations: str = "", template: str | None = None) -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\n"
        f"metadata: {{name: job, annotations: {{{annotations}}}}}\nspec: {{{spec}, template: {template or pod()}}}\n"
    )


def ascend(specs: str, *, policy: str = "{}") -> str:
    return (
        "apiVersion: mindxdl.gitee.com/v1\nkind: AscendJob\nmetadata: {name: job}\n"
        f"spec: {{runPolicy: {{schedulingPolicy: {policy}}}, replicaSpecs: {specs}}}\n"
    )


def berth(spec: str, *, metadata: str = "{name: job}") -> str:
    return f"apiVersion: berth/v1\nkind: Job\nmetadata: {metadata}\nspec: {spec}\n"


def one(text: str) -> JobRequest:
    (job,) = parse_jobs(text)
    return job


def refused(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        parse_jobs(text)
    return caught.value


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*job.yaml")), ids=lambda path: path.name)
def test_every_example_is_a_valid_request(path: Path) -> None:
    for job in parse_jobs(path.read_text("utf-8")):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=JobRequest) == job
        assert job.run_ms > 0


def test_a_volcano_job() -> None:
    job = one(EXAMPLES.joinpath("volcano-job.yaml").read_text("utf-8"))
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
            )
        ],
        labels={"ring-controller.atlas": "ascend-910b", "fault-scheduling": "force", "app": "resnet"},
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
        ("master", 1, 16, 64_000),
        ("worker", 3, 16, 64_000),
    ]
    assert (job.min_available, job.annotations["sp-block"], job.run_ms) == (4, "32", 90_000)


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
    assert job.labels == {"duo": "true", "npu-310-strategy": "card"}
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
    assert job.labels == {"a": "job", "b": "x|y", "c": "z"}
    assert job.annotations == {"sp-block": "16", "mine": "yes please", "sp-fit": "first", "tp-block": "2"}


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
                - resources: {requests: {cpu: 1}, limits: {huawei.com/Ascend910: 1}}
              containers:
                - resources: {requests: {cpu: 250m, memory: 0.5Mi}, limits: {cpu: 4, huawei.com/Ascend910: 2}}
                - resources: {limits: {cpu: 1500m, memory: 0.25Mi, huawei.com/Ascend910: 2}}
                - {name: idle}
    """)
    (task,) = one(volcano("\n".join("  " + line for line in spec.strip().splitlines()))).tasks
    assert task.chips == 4
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


@pytest.mark.parametrize(
    "text",
    ["a: [", "a: 1\na: 2", "a: {b: 1, b: 2}", "\tx: 1", "!!int ''", "a: !!python/object:os.system {}", "a: *nowhere", "[" * 500, "{a: " * 500,
     "\x00", "? [1]\n: 2", "a: " + "1" * 5000, "a: !!timestamp x", "- &a [*a]\n- b: 1\n  b: 2"],
)  # fmt: skip
def test_what_is_not_yaml_is_refused(text: str) -> None:
    error = refused(text)
    assert error.document == 1
    assert "YAML" in error.expected


@pytest.mark.parametrize(
    ("text", "document", "path", "expected"),
    [
        ("", 0, "", "at least one job"),
        ("# nothing\n---\n", 0, "", "at least one job"),
        ("just text", 1, "", "a mapping"),
        ("- a", 1, "", "a mapping"),
        ("1: 2", 1, "1", "a key that is text"),
        ("metadata: {}", 1, "kind", "the kind"),
        ("kind: Job", 1, "apiVersion", "the version"),
        ("kind: Jobb\napiVersion: v1", 1, "kind", "'Job'?"),
        ("kind: Pod\napiVersion: v1", 1, "kind", "one of AscendJob, Job"),
        ("kind: Job\napiVersion: batch/v1beta1", 1, "apiVersion", "'batch/v1'?"),
        ("kind: 3\napiVersion: v1", 1, "kind", "quotes"),
        (berth("{}") + "---\n" + berth("{}"), 2, "metadata.name", "given twice"),
        ("kind: List\napiVersion: v1\nitems: [{kind: List, apiVersion: v1}]", 1, "items[0].kind", "one of"),
        ("kind: List\napiVersion: v1\nitems: {}", 1, "items", "a list"),
        (berth("{}", metadata="{}"), 1, "metadata.name", "a name"),
        (berth("{}", metadata="{name: Upper}"), 1, "metadata.name", "RFC 1123"),
        (berth("{}", metadata="{name: a..b}"), 1, "metadata.name", "RFC 1123"),
        (berth("{}", metadata="{name: '" + "a" * 254 + "'}"), 1, "metadata.name", "RFC 1123"),
        (berth("{}", metadata="{name: 7}"), 1, "metadata.name", "RFC 1123"),
        (berth("{}", metadata="{name: a, namespace: a.b}"), 1, "metadata.namespace", "RFC 1123 label"),
        (berth("{}", metadata="{name: a, labels: {x: 8}}"), 1, "metadata.labels.x", "quotes"),
        (berth("{}", metadata="{name: a, label: {}}"), 1, "metadata.label", "'labels'?"),
        (berth("{}", metadata="{name: a, annotations: {berth/run-for: soon}}"), 1, "metadata.annotations['berth/run-for']", "duration"),
    ],
)  # fmt: skip
def test_a_wrong_document_is_refused_with_its_place(text: str, document: int, path: str, expected: str) -> None:
    error = refused(text)
    assert (error.document, error.path) == (document, path)
    assert expected in error.expected


@pytest.mark.parametrize(
    ("spec", "path", "expected"),
    [
        ("{replcas: 2}", "spec.replcas", "'replicas'?"),
        ("{chips: 2}", "spec.resource", "or a product"),
        ("{product: module910bx9}", "spec.product", "'module910bx8'?"),
        ("{product: 310, chips: 1}", "spec.product", "'310'?"),
        ("{product: '310', resource: huawei.com/npu, chips: 1}", "spec.resource", "huawei.com/Ascend310,"),
        ("{resource: nvidia.com/gpu, chips: 1}", "spec.resource", "starts with huawei.com/"),
        ("{replicas: 0}", "spec.replicas", "at least one pod"),
        ("{replicas: -1}", "spec.replicas", "a whole number"),
        ("{replicas: true}", "spec.replicas", "a whole number"),
        ("{replicas: '2'}", "spec.replicas", "a whole number"),
        ("{cpu: much}", "spec.cpu", "a quantity"),
        ("{memory: 1Zi}", "spec.memory", "a quantity"),
        ("{chips: 1.5, resource: huawei.com/npu}", "spec.chips", "a whole number"),
        ("{minAvailable: 2}", "spec.minAvailable", "at most the number of pods, 1"),
        ("{priority: high}", "spec.priority", "a whole number"),
        ("{runFor: 10}", "spec.runFor", "a duration"),
        ("{queue: Big Queue}", "spec.queue", "RFC 1123"),
        ("{nodeSelector: [a]}", "spec.nodeSelector", "a mapping"),
        ("{tasks: []}", "spec.tasks", "at least one pod"),
        ("{tasks: [{chips: 1}]}", "spec.tasks[0].name", "a name"),
        ("{tasks: [{name: A}]}", "spec.tasks[0].name", "RFC 1123 label"),
        ("{tasks: [{name: a}, {name: a}]}", "spec.tasks[1].name", "given twice"),
        ("{tasks: [{name: a, chip: 1}]}", "spec.tasks[0].chip", "'chips'?"),
        ("{replicas: 2, tasks: [{name: a}]}", "spec.replicas", "in each of them"),
        ("{softShare: {aicore: 101, hbmMib: 1, policy: elastic}}", "spec.softShare.aicore", "1 to 100"),
        ("{softShare: {aicore: 1, hbmMib: 1, policy: elastik}}", "spec.softShare.policy", "'elastic'?"),
        ("{softShare: {aicore: 1, policy: elastic}}", "spec.softShare.hbmMib", "mebibytes"),
        ("{affinity: [{}]}", "spec.affinity", "at least one term"),
        ("{affinity: [{matchExpressions: [{key: a, operator: in}]}]}", "spec.affinity[0].matchExpressions[0].operator", "'In'?"),
        ("{affinity: [{matchExpressions: [{key: a, operator: In}]}]}", "spec.affinity[0].matchExpressions[0]", "at least one value"),
        ("{affinity: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}", "spec.affinity[0].matchExpressions[0].values", "no values"),
        ("{affinity: [{matchExpressions: [{key: a, operator: Lt, values: [b]}]}]}", "spec.affinity[0].matchExpressions[0].values", "one whole number"),
        ("{affinity: [{matchFields: [{key: a, operator: In, values: [b]}]}]}", "spec.affinity[0].matchFields[0].key", "metadata.name"),
        ("{affinity: [{matchFields: [{key: metadata.name, operator: Exists}]}]}", "spec.affinity[0].matchFields[0].operator", "In or NotIn"),
        ("{tolerations: [{value: a}]}", "spec.tolerations[0]", "a key"),
        ("{tolerations: [{key: a, operator: Exists, value: b}]}", "spec.tolerations[0].value", "no value"),
        ("{tolerations: [{key: 3}]}", "spec.tolerations[0].key", "quotes"),
        ("{tolerations: [{key: a, effect: NoWork}]}", "spec.tolerations[0].effect", "one of"),
        ("null", "spec", "what the job asks for"),
    ],
)  # fmt: skip
def test_a_wrong_berth_job_is_refused_with_its_place(spec: str, path: str, expected: str) -> None:
    error = refused(berth(spec))
    assert error.path == path
    assert expected in error.expected


def test_run_time_cannot_be_given_twice() -> None:
    error = refused(berth("{runFor: 3s}", metadata="{name: a, annotations: {berth/run-for: 5s}}"))
    assert error.path == "spec.runFor"


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        ("{}", "spec.tasks[0].template.spec", "a pod's spec"),
        ("{spec: {}}", "spec.tasks[0].template.spec.containers", "a list of containers"),
        ("{spec: {containers: []}}", "spec.tasks[0].template.spec.containers", "at least one container"),
        ("{spec: {containers: {}}}", "spec.tasks[0].template.spec.containers", "a list"),
        ("{spec: {containers: [x]}}", "spec.tasks[0].template.spec.containers[0]", "a mapping"),
        (pod("limits: {cpu: lots}"), "spec.tasks[0].template.spec.containers[0].resources.limits.cpu", "a quantity"),
        (pod("limits: {huawei.com/npu: 0.5}"), "spec.tasks[0].template.spec.containers[0].resources.limits['huawei.com/npu']", "a whole number"),
        (pod("limits: {huawei.com/npu: 2}, requests: {huawei.com/npu: 1}"), "spec.tasks[0].template.spec.containers[0].resources.requests['huawei.com/npu']", "the limit"),
        (pod("limits: {huawei.com/npu: 2, huawei.com/Ascend310: 1}"), "spec.tasks[0].template.spec.containers[0].resources.limits['huawei.com/Ascend310']", "one kind"),
        (pod("limits: {cpu: 9000000}"), "spec.tasks[0].template.spec", "at most"),
        (pod(spec="priority: big"), "spec.tasks[0].template.spec.priority", "a whole number"),
        (pod(spec="nodeSelector: {a: true}"), "spec.tasks[0].template.spec.nodeSelector.a", "quotes"),
        (pod(metadata="annotations: {sp-block: 8}"), "spec.tasks[0].template.metadata.annotations.sp-block", "quotes"),
    ],
)  # fmt: skip
def test_a_wrong_pod_template_is_refused_with_its_place(template: str, path: str, expected: str) -> None:
    error = refused(volcano(f"  - {{template: {template}}}"))
    assert error.path == path
    assert expected in error.expected


def test_chips_of_two_kinds_in_one_job_are_refused() -> None:
    error = refused(
        volcano(f"  - {{name: a, template: {pod()}}}\n  - {{name: b, template: {pod('limits: {huawei.com/npu: 1}')}}}")
    )
    assert error.path == "spec.tasks[1].template.spec.containers[0].resources.limits['huawei.com/npu']"
    assert "one kind" in error.expected


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {}", "spec.tasks", "a list of tasks"),
        ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {tasks: []}", "spec.tasks", "at least one task"),
        (volcano("  - name: a"), "spec.tasks[0].template", "a pod template"),
        (volcano(f"  - {{name: Worker, template: {pod()}}}"), "spec.tasks[0].name", "lower-case"),
        (volcano(f"  - {{name: a, template: {pod()}}}\n  - {{name: a, template: {pod()}}}"), "spec.tasks[1].name", "given twice"),
        (volcano(f"  - {{replicas: 0, template: {pod()}}}"), "spec.tasks[0].replicas", "at least one pod"),
        (volcano(f"  - {{template: {pod()}}}", spec="  minAvailable: many\n"), "spec.minAvailable", "a whole number"),
        (volcano(f"  - {{template: {pod(metadata='annotations: {berth/run-for: long}')}}}"), "annotation berth/run-for", "a duration"),
        (ascend("{}"), "spec.replicaSpecs", "Master"),
        (ascend(f"{{Wroker: {{template: {pod()}}}}}"), "spec.replicaSpecs.Wroker", "'Worker'?"),
        (ascend("{Worker: {}}"), "spec.replicaSpecs.Worker.template", "a pod template"),
        (ascend(f"{{Worker: {{template: {pod()}}}}}", policy="[]"), "spec.runPolicy.schedulingPolicy", "a mapping"),
        (batch("suspend: true"), "spec.suspend", "false"),
        (batch("parallelism: 2, completions: 4"), "spec.completions", "at most spec.parallelism, 2"),
        (batch("parallelism: 0"), "spec.replicas", "at least one pod"),
        (batch("completionMode: Indexed"), "spec.completions", "the number of completions"),
        (batch("completionMode: indexed"), "spec.completionMode", "'Indexed'?"),
        (batch("parallelism: 1", annotations="huawei.com/schedule_minAvailable: all"), "metadata.annotations['huawei.com/schedule_minAvailable']", "in quotes"),
    ],
)  # fmt: skip
def test_a_wrong_kubernetes_job_is_refused_with_its_place(text: str, path: str, expected: str) -> None:
    error = refused(text)
    assert error.path == path
    assert expected in error.expected
    assert error.path in str(error)
