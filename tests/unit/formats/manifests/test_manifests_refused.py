import pytest

from berth.formats.kubernetes.pod_terms import PREFERRED, REQUIRED
from berth.formats.manifests.reader import ManifestError, parse_jobs
from tests.support.manifest_text import ascend, batch, berth, pod, volcano


def refused(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        parse_jobs(text)
    return caught.value


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
        ("kind: Jobb\napiVersion: batch/v1", 1, "kind", "'Job'?"),
        ("kind: job\napiVersion: batch/v1", 1, "kind", "'Job'?"),
        ("kind: AscendJobs\napiVersion: mindxdl.gitee.com/v1", 1, "kind", "'AscendJob'?"),
        ("kind: Pod\napiVersion: v1", 0, "kind", "at least one job: AscendJob (mindxdl.gitee.com/v1), Job (batch.volcano.sh/v1alpha1)"),
        ("kind: Secret\napiVersion: v1\n---\nkind: ConfigMap\napiVersion: v1", 0, "kind", "at least one job"),
        ("kind: ConfigMap\napiVersion: berth/v1", 1, "kind", "one of AscendJob, Job"),
        ("kind: Cluster\napiVersion: berth/v1", 1, "kind", "not a job"),
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
        (berth("{}", metadata="{name: a, uid: " + "u" * 1_001 + "}"), 1, "metadata.uid", "at most 1000 characters that can be printed"),
        (berth("{}", metadata="{name: a, uid: \"a\\r\\nb\"}"), 1, "metadata.uid", "characters that can be printed"),
        (berth("{}", metadata="{name: a, uid: intake-17}"), 1, "metadata.uid", "another uid"),
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
        ("{product: module910bx8}", "spec.chips", "at least one chip"),
        ("{product: module910bx8, chips: 0}", "spec.chips", "at least one chip"),
        ("{resource: huawei.com/npu, tasks: [{name: a}]}", "spec.tasks", "at least one chip"),
        ("{product: soft-share, cpu: 1}", "spec.chips", "or softShare"),
        ("{product: module910bx9}", "spec.product", "'module910bx8'?"),
        ("{product: 310, chips: 1}", "spec.product", "'310'?"),
        ("{product: '310', resource: huawei.com/npu, chips: 1}", "spec.resource", "huawei.com/Ascend310,"),
        ("{resource: nvidia.com/gpu, chips: 1}", "spec.resource", "one of huawei.com/Ascend310,"),
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
        ("{affinity: [{matchExpressions: [{key: a, operator: in}]}]}", "spec.affinity[0].matchExpressions[0].operator", "one of In,"),
        ("{affinity: [{matchExpressions: [{key: a, operator: In}]}]}", "spec.affinity[0].matchExpressions[0].values", "at least one value"),
        ("{affinity: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}", "spec.affinity[0].matchExpressions[0].values", "no values"),
        ("{affinity: [{matchExpressions: [{key: a, operator: Lt, values: [b]}]}]}", "spec.affinity[0].matchExpressions[0].values", "one whole number"),
        ("{affinity: [{matchFields: [{key: a, operator: In, values: [b]}]}]}", "spec.affinity[0].matchFields[0].key", "metadata.name"),
        ("{affinity: [{matchFields: [{key: metadata.name, operator: Exists}]}]}", "spec.affinity[0].matchFields[0].operator", "In or NotIn"),
        ("{tolerations: [{value: a}]}", "spec.tolerations[0].key", "a key"),
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
        (pod("limits: {huawei.com/npu: 2, huawei.com/Ascend310: 1}"), "spec.tasks[0].template.spec.containers[0].resources.limits['huawei.com/npu']", "one kind"),
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
        (volcano(f"  - {{template: {pod(metadata='annotations: {berth/run-for: long}')}}}"), "spec.tasks[0].template.metadata.annotations['berth/run-for']", "a duration"),
        (ascend("{}"), "spec.replicaSpecs", "Master"),
        (ascend(f"{{Wroker: {{template: {pod()}}}}}"), "spec.replicaSpecs.Wroker", "'Worker'?"),
        (ascend("{Worker: {}}"), "spec.replicaSpecs.Worker.template", "a pod template"),
        (ascend(f"{{Worker: {{template: {pod()}}}}}", policy="[]"), "spec.runPolicy.schedulingPolicy", "a mapping"),
        (batch("suspend: true"), "spec.suspend", "false"),
        (batch("parallelism: 2, completions: 4"), "spec.completions", "at most spec.parallelism, 2"),
        (batch("parallelism: 0"), "spec.parallelism", "at least one pod"),
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


@pytest.mark.parametrize(
    ("spec", "path", "expected"),
    [
        ("affinity: {podAffinity: {REQUIRED: [{labelSelector: {}}]}}", "affinity.podAffinity.REQUIRED[0].topologyKey", "the key of a label of nodes"),
        ("affinity: {podAntiAffinity: {PREFERRED: [{weight: 0, podAffinityTerm: {topologyKey: zone}}]}}", "affinity.podAntiAffinity.PREFERRED[0].weight", "1 to 100"),
        ("schedulingGates: [{name: quota}]", "schedulingGates", "none: nobody removes the gates"),
        ("nodeName: n1", "nodeName", "use nodeSelector"),
        ("tolerations: [{key: a, operator: exists}]", "tolerations[0].operator", "one of Equal, Exists"),
        ("initContainers: [{name: i, resources: {limits: {huawei.com/Ascend910: 1}}}]", "containers[0].resources.limits['huawei.com/Ascend910']", "chips in one container: i asks for 1"),
        ("overhead: {cpu: lots}", "overhead.cpu", "a quantity"),
        ("resources: {limits: {cpu: true}}", "resources.limits.cpu", "a quantity"),
        ("topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: 1}}}]", "topologySpreadConstraints[0].labelSelector.matchLabels.a", "quotes"),
        ("topologySpreadConstraints: [{topologyKey: zone, maxSkew: 0, whenUnsatisfiable: DoNotSchedule}]", "topologySpreadConstraints[0].maxSkew", "at least 1"),
        ("topologySpreadConstraints: [{topologyKey: zone, maxSkew: one}]", "topologySpreadConstraints[0].maxSkew", "a whole number"),
        ("topologySpreadConstraints: none", "topologySpreadConstraints", "a list"),
        ("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {}}}]", "volumes[0].ephemeral", "a persistentVolumeClaim in its place"),
        ("volumes: [{name: v, iscsi: {iqn: x}}]", "volumes[0].iscsi", "a persistentVolumeClaim in its place"),
        ("resourceClaims: [{name: r}]", "resourceClaims", "none: dynamic resource allocation"),
        ("hostNetwork: true, initContainers: [{name: i, restartPolicy: Always, ports: [{containerPort: 80}]}, {name: j, restartPolicy: Always, ports: [{containerPort: 80}]}]", "initContainers[1].ports[0].hostPort", "another port"),
    ],
)  # fmt: skip
def test_a_wrong_constraint_is_refused_with_its_place(spec: str, path: str, expected: str) -> None:
    def long(text: str) -> str:
        return text.replace("REQUIRED", REQUIRED).replace("PREFERRED", PREFERRED)

    error = refused(volcano(f"  - {{template: {pod(spec=long(spec))}}}"))
    assert error.path == f"spec.tasks[0].template.spec.{long(path)}"
    assert expected in error.expected
