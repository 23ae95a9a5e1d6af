"""A request from a manifest asks for what the pods that the controller makes ask for, and has their labels."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pods import PodRequirements, near_of, pod_requirements
from berth.formats.manifests.reader import ManifestError, parse_jobs
from berth.lab.nodesim.controllers import ascend_operator, volcano
from berth.lab.nodesim.controllers.gang_children import DesiredPod, owner_of, pod_body
from berth.services.inventory.gangs.requests import task_requirements

CHIPS = st.sampled_from(["huawei.com/Ascend910", "huawei.com/npu", "huawei.com/Ascend910-2c", "huawei.com/rdma_shared"])
AMOUNTS = st.sampled_from([1, "2", "1500m", "64Mi", 0.5])
RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "limits": st.dictionaries(st.sampled_from(["cpu", "memory", "rdma/hca"]), AMOUNTS, max_size=2)
        | st.dictionaries(CHIPS, st.integers(0, 8), max_size=1),
        "requests": st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi"]), AMOUNTS, max_size=2),
    },
)
PORTS = st.lists(
    st.fixed_dictionaries({"containerPort": st.integers(1, 9)}, optional={"hostPort": st.integers(1, 9)}), max_size=1
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"])},
    optional={"resources": RESOURCES, "ports": PORTS, "restartPolicy": st.sampled_from(["Always", ""])},
)
SELECTOR = st.sampled_from(
    [{}, {"matchLabels": {"app": "x"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}]
)
TERM = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(["zone", "rack"])},
    optional={
        "labelSelector": SELECTOR,
        "namespaces": st.just(["other"]),
    },
)
NODE_TERM = st.fixed_dictionaries(
    {
        "matchExpressions": st.lists(
            st.fixed_dictionaries({"key": st.just("zone"), "operator": st.just("In"), "values": st.just(["z1"])}),
            max_size=1,
        )
    }
)
HARD, SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {HARD: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(NODE_TERM, max_size=2)})}
        ),
        "podAffinity": st.fixed_dictionaries(
            {SOFT: st.lists(st.fixed_dictionaries({"weight": st.integers(0, 2), "podAffinityTerm": TERM}), max_size=1)}
        ),
        "podAntiAffinity": st.fixed_dictionaries({HARD: st.lists(TERM, max_size=2)}),
    },
)
SPREAD = st.fixed_dictionaries(
    {"topologyKey": st.just("zone"), "maxSkew": st.integers(0, 2), "whenUnsatisfiable": st.just("DoNotSchedule")},
    optional={"labelSelector": SELECTOR, "matchLabelKeys": st.sampled_from([["app"], ["volcano.sh/job-name"]])},
)
VOLUME = st.sampled_from(
    [
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "w", "emptyDir": {}},
        {"name": "x", "iscsi": {"iqn": "q"}},
    ]
)
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINER, max_size=2),
        "affinity": AFFINITY,
        "nodeSelector": st.just({"accelerator-type": "module-910b-8"}),
        "tolerations": st.lists(
            st.fixed_dictionaries({}, optional={"key": st.just("k"), "operator": st.sampled_from(["Exists", "Equal"])}), max_size=1
        ),
        "overhead": st.dictionaries(st.sampled_from(["cpu", "memory"]), AMOUNTS, max_size=1),
        "topologySpreadConstraints": st.lists(SPREAD, max_size=1),
        "volumes": st.lists(VOLUME, max_size=2),
        "resources": st.fixed_dictionaries({"requests": st.dictionaries(st.just("cpu"), AMOUNTS, max_size=1)}),
    },
)  # fmt: skip
TEMPLATE = st.fixed_dictionaries(
    {"spec": SPEC}, optional={"metadata": st.fixed_dictionaries({"labels": st.just({"app": "x"})})}
)


def made(desired: list[DesiredPod], meta: Any, api_version: str, kind: str) -> list[Pod]:  # noqa: ANN401  # of either kind
    owner = owner_of(meta, api_version=api_version, kind=kind)
    return [msgspec.convert(pod_body(one, meta, owner, "g", "berth"), Pod) for one in desired]


def compare(manifest: dict[str, Any], pods: list[Pod]) -> None:
    """The request is refused if and only if a pod is wrong, and else asks for what the pods do, with their labels."""
    asks = [pod_requirements(pod.spec, pod.metadata) for pod in pods]
    try:
        (job,) = parse_jobs(json.dumps(manifest))
    except ManifestError:
        kinds = {ask.resource for ask in asks if ask.chips}
        assert len(kinds) > 1 or any(ask.wrong for ask in asks)
        return
    assert [task_requirements(job, task) for task in job.tasks for _ in range(task.replicas)] == [
        plain(ask) for ask in asks
    ]
    ranks = iter(pods)
    for task in job.tasks:
        labels = [next(ranks).metadata.labels or {} for _ in range(task.replicas)]
        assert task.labels == {key: one for key, one in labels[0].items() if all(its.get(key) == one for its in labels)}
    assert job.near == next((near for pod in pods if (near := near_of(pod.spec))), {})


def plain(ask: PodRequirements) -> PodRequirements:
    return ask if ask.chips else msgspec.structs.replace(ask, resource="")


@given(st.lists(st.tuples(st.integers(1, 3), TEMPLATE), min_size=1, max_size=2))
def test_pods_of_a_volcano_job(tasks: list[tuple[int, dict[str, Any]]]) -> None:
    manifest = {
        "apiVersion": volcano.API_VERSION,
        "kind": volcano.KIND,
        "metadata": {"name": "j", "namespace": "ns"},
        "spec": {
            "queue": "q",
            "tasks": [{"name": f"t{at}", "replicas": count, "template": one} for at, (count, one) in enumerate(tasks)],
        },
    }
    job = msgspec.convert(manifest, volcano.VolcanoJob)
    compare(manifest, made(volcano.desired_pods_of(job), job.metadata, volcano.API_VERSION, volcano.KIND))


@given(
    st.dictionaries(
        st.sampled_from(["Master", "Worker", "Scheduler"]), st.tuples(st.integers(1, 3), TEMPLATE), min_size=1
    )
)
def test_pods_of_an_ascend_job(types: dict[str, tuple[int, dict[str, Any]]]) -> None:
    manifest = {
        "apiVersion": ascend_operator.API_VERSION,
        "kind": ascend_operator.KIND,
        "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"replicaSpecs": {kind: {"replicas": count, "template": one} for kind, (count, one) in types.items()}},
    }
    job = msgspec.convert(manifest, ascend_operator.AscendJob)
    compare(
        manifest,
        made(ascend_operator.desired_pods_of(job), job.metadata, ascend_operator.API_VERSION, ascend_operator.KIND),
    )
