"""Clusters for the comparison with kube-scheduler: nodes, namespaces, running pods, and pods that ask for a place.

Everything follows from a seed and is plain API objects. Names and values come from small sets, so that what pods ask
for is often there on some nodes and not on others. Each waiting pod combines up to three features, see
:data:`FEATURES`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.support.constraint_volumes import Volumes
from tests.support.dice import Dice
from tests.support.kube_scheduler import NAME

Tree = dict[str, Any]

CHIPS: Final = "huawei.com/Ascend910"
RDMA: Final = "rdma/hca"
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
RACK: Final = "rack"
NAMESPACES: Final = ("red", "blue", "green")
APPS: Final = ("a", "b", "c")
PORTS: Final = (8080, 9090, 53)
ADDRESSES: Final = ("", "", "0.0.0.0", "127.0.0.1", "10.0.0.1")  # noqa: S104 - values of hostIP, nobody listens
_CHIPS_A_NODE: Final = 8


class Waiting(NamedTuple):
    """A pod that asks for a place, and the features that it combines."""

    pod: Tree
    features: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])


class ClusterObjects(NamedTuple):
    """Objects by path of their collection, in the order in which they can be made, and the pods that wait.

    ``namespaces`` has the labels of each namespace. All waiting pods are in the first one.
    """

    seed: int
    namespaces: dict[str, dict[str, str]]
    objects: list[tuple[str, Tree]]
    waiting: list[Waiting]


def cluster_of(seed: int, *, pods: int) -> ClusterObjects:
    """The cluster of a seed, with ``pods`` waiting pods. Every eighth has 30 to 100 nodes, the others up to 16."""
    dice = Dice(seed)
    count = dice.number(30, 100) if seed % 8 == 7 else dice.number(5, 16)
    names = [f"n{at:02d}" for at in range(count)]
    nodes = [_node(dice, name) for name in names]
    namespaces = {name: {"team": dice.pick("x", "y"), "level": dice.pick("low", "high")} for name in NAMESPACES}
    volumes = Volumes(dice, names, NAMESPACES)
    running = [
        _running(dice, f"r{at}-{number}", name, volumes)
        for at, name in enumerate(names)
        for number in range(dice.number(0, 3) if count < 30 else dice.number(0, 1))
    ]
    _give_chips(dice, nodes, running)
    waiting = [_waiting(dice, f"w{at}", volumes) for at in range(pods)]
    objects = [("/api/v1/nodes", node) for node in nodes]
    objects += volumes.objects
    objects += [(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod) for pod in running]
    return ClusterObjects(seed, namespaces, objects, waiting)


def _node(dice: Dice, name: str) -> Tree:
    labels = {HOST: name, "accelerator": "huawei-Ascend910", "accelerator-type": "module-910b-8"}
    if dice.chance(0.85):
        labels[ZONE] = dice.pick("z1", "z2", "z3")
    if dice.chance(0.8):
        labels[RACK] = dice.pick("k1", "k2", "k3", "k4")
    if dice.chance(0.7):
        labels["disk"] = dice.pick("ssd", "hdd")
    if dice.chance(0.6):
        labels["generation"] = dice.pick("1", "3", "7", "new")
    taints = [
        taint
        for share, taint in (
            (0.15, {"key": "dedicated", "value": dice.pick("x", "y"), "effect": "NoSchedule"}),
            (0.1, {"key": "flaky", "effect": "PreferNoSchedule"}),
            (0.08, {"key": "leaving", "effect": "NoExecute"}),
        )
        if dice.chance(share)
    ]
    amounts = {
        "cpu": str(dice.number(4, 16)),
        "memory": f"{dice.number(8, 32)}Gi",
        "pods": str(dice.pick(2, 3, 5, 110, 110)),
        CHIPS: str(_CHIPS_A_NODE),
    }
    for share, resource, choices in (
        (0.8, "ephemeral-storage", ("4Gi", "20Gi", "100Gi")),
        (0.8, "hugepages-2Mi", ("0", "256Mi", "1Gi")),
        (0.8, RDMA, ("1", "4", "8")),
        (0.6, "example.com/license", ("1", "2", "4")),
    ):
        if dice.chance(share):
            amounts[resource] = dice.pick(*choices)
    infos = ",".join(f'"Ascend910-{chip}":{{}}' for chip in range(_CHIPS_A_NODE))
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {"baseDeviceInfos": f"{{{infos}}}"}},
        "spec": {"taints": taints, "unschedulable": dice.chance(0.06)},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "by a test"}],
        },
    }


def _container(requests: dict[str, str], *, name: str = "main") -> Tree:
    limits = {key: value for key, value in requests.items() if "/" in key or key.startswith("hugepages-")}
    return {"name": name, "image": "none", "resources": {"requests": dict(requests), "limits": limits}}


def _labels(dice: Dice) -> dict[str, str]:
    return {"app": dice.pick(*APPS)} | ({"tier": dice.pick("front", "back")} if dice.chance(0.5) else {})


def _running(dice: Dice, name: str, node: str, volumes: Volumes) -> Tree:
    """A pod of another scheduler on a node. Some are about to end, some have ended: the finalizer and phase say it."""
    namespace = dice.pick(*NAMESPACES)
    requests = {"cpu": dice.pick("100m", "1", "2"), "memory": dice.pick("64Mi", "1Gi", "3Gi")}
    others = ((0.15, "ephemeral-storage", "2Gi"), (0.1, RDMA, "1"), (0.1, "hugepages-2Mi", "64Mi"))
    requests |= {resource: value for share, resource, value in others if dice.chance(share)}
    spec: Tree = {"nodeName": node, "containers": [_container(requests)], "terminationGracePeriodSeconds": 0}
    if dice.chance(0.3):
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: [_pod_term(dice) for _ in range(dice.pick(1, 1, 2))]}}
    if dice.chance(0.2):
        spec["containers"][0]["ports"] = [_port(dice)]
    if dice.chance(0.3):
        volumes.mount(spec, namespace, running=True)
    meta: Tree = {"name": name, "namespace": namespace, "labels": _labels(dice)}
    if dice.chance(0.1):
        meta["finalizers"] = ["example.com/held"]
    pod: Tree = {"metadata": meta, "spec": spec}
    if dice.chance(0.08):
        pod["status"] = {"phase": dice.pick("Succeeded", "Failed")}
    return pod


def _give_chips(dice: Dice, nodes: list[Tree], running: list[Tree]) -> None:
    """Let some running pods hold chips, with the annotation of the device plug-in; no chip is held twice."""
    free = {node["metadata"]["name"]: _CHIPS_A_NODE for node in nodes}
    for pod in running:
        node, count = pod["spec"]["nodeName"], dice.pick(0, 0, 0, 1, 2, 4, 8)
        if count and count <= free[node]:
            first = _CHIPS_A_NODE - free[node]
            free[node] -= count
            named = ",".join(f"Ascend910-{chip}" for chip in range(first, first + count))
            pod["metadata"]["annotations"] = {CHIPS: named, "huawei.com/AscendReal": named}
            resources = pod["spec"]["containers"][0]["resources"]
            resources["requests"][CHIPS] = resources["limits"][CHIPS] = str(count)


REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _selector(dice: Dice) -> Tree:
    """Which pods a term or a spread counts."""
    match dice.number(0, 6):
        case 0:
            return {"matchExpressions": [{"key": "app", "operator": "In", "values": dice.some(APPS, 2)}]}
        case 1:
            return {"matchExpressions": [{"key": "tier", "operator": dice.pick("Exists", "DoesNotExist")}]}
        case 2:
            one = {"key": "app", "operator": "NotIn", "values": dice.some(APPS, 2)}
            return {"matchLabels": {"tier": dice.pick("front", "back")}, "matchExpressions": [one]}
        case 3 if dice.chance(0.4):
            return {}
        case _:
            return {"matchLabels": {"app": dice.pick(*APPS)}}


def _may_add_tier(selector: Tree) -> bool:
    """Whether ``tier`` can be a key of ``matchLabelKeys``: the server takes no key twice."""
    return bool(selector) and "tier" not in str(selector)


def _pod_term(dice: Dice) -> Tree:
    """A required term of affinity or anti-affinity."""
    term: Tree = {
        "labelSelector": _selector(dice),
        "topologyKey": "nowhere" if dice.chance(0.05) else dice.pick(ZONE, ZONE, HOST, RACK),
    }
    match dice.number(0, 7):
        case 0:
            term["namespaces"] = dice.some(NAMESPACES, 2)
        case 1:
            term["namespaceSelector"] = {"matchLabels": {"team": dice.pick("x", "y")}}
        case 2:
            term["namespaceSelector"] = {}
        case 3:
            term["namespaces"] = dice.some(NAMESPACES, 1)
            term["namespaceSelector"] = {"matchLabels": {"level": dice.pick("low", "high")}}
        case _:
            pass
    if dice.chance(0.12) and _may_add_tier(term["labelSelector"]):
        term[dice.pick("matchLabelKeys", "mismatchLabelKeys")] = ["tier"]
    return term


def _port(dice: Dice) -> Tree:
    port = dice.pick(*PORTS)
    out: Tree = {"containerPort": port, "hostPort": port, "protocol": dice.pick("TCP", "TCP", "UDP", "SCTP")}
    address = dice.pick(*ADDRESSES)
    return out | ({"hostIP": address} if address else {})


def _node_selector(dice: Dice, spec: Tree) -> None:
    spec["nodeSelector"] = dice.pick(
        {"disk": "ssd"}, {"disk": "hdd"}, {ZONE: "z1"}, {"generation": "new"}, {RACK: "k2"}
    )


def _node_affinity(dice: Dice, spec: Tree) -> None:
    choices: list[Tree] = [
        {"matchExpressions": [{"key": "generation", "operator": dice.pick("Gt", "Lt"), "values": ["3"]}]},
        {"matchExpressions": [{"key": "disk", "operator": dice.pick("Exists", "DoesNotExist")}]},
        {"matchExpressions": [{"key": ZONE, "operator": dice.pick("In", "NotIn"), "values": ["z1", "z2"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": dice.pick("In", "NotIn"), "values": ["n01"]}]},
        {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["n00", "n02"]}]},
    ]
    affinity = spec.setdefault("affinity", {})
    affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": dice.some(choices, 2)}}


def _tolerations(dice: Dice, spec: Tree) -> None:
    spec["tolerations"] = dice.some(
        [
            {"operator": "Exists"},
            {"key": "dedicated", "operator": "Equal", "value": "x"},
            {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "leaving", "operator": "Exists", "effect": dice.pick("NoExecute", "NoSchedule")},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        ],
        2,
    )


def _pod_affinity(dice: Dice, spec: Tree) -> None:
    terms = [_pod_term(dice) for _ in range(dice.pick(1, 1, 1, 2))]
    spec.setdefault("affinity", {})["podAffinity"] = {REQUIRED: terms}


def _pod_anti_affinity(dice: Dice, spec: Tree) -> None:
    terms = [_pod_term(dice) for _ in range(dice.pick(1, 1, 2))]
    spec.setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: terms}


def _spread(dice: Dice, spec: Tree) -> None:
    keys = dice.some((ZONE, HOST, RACK, "nowhere") if dice.chance(0.1) else (ZONE, HOST, RACK), 2)
    spec["topologySpreadConstraints"] = [_spread_of(dice, key) for key in keys]


def _spread_of(dice: Dice, key: str) -> Tree:
    one: Tree = {
        "topologyKey": key,
        "maxSkew": dice.pick(1, 1, 2, 3),
        "whenUnsatisfiable": dice.pick("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
        "labelSelector": _selector(dice),
    }
    if one["whenUnsatisfiable"] == "DoNotSchedule" and dice.chance(0.3):
        one["minDomains"] = dice.number(1, 5)
    if dice.chance(0.3):
        one["nodeAffinityPolicy"] = dice.pick("Honor", "Ignore")
    if dice.chance(0.3):
        one["nodeTaintsPolicy"] = dice.pick("Honor", "Ignore")
    if dice.chance(0.15) and _may_add_tier(one["labelSelector"]):
        one["matchLabelKeys"] = ["tier"]
    return one


def _ports(dice: Dice, spec: Tree) -> None:
    ports = {(one["hostPort"], one["protocol"]): one for one in (_port(dice) for _ in range(dice.pick(1, 1, 2)))}
    spec["containers"][0]["ports"] = list(ports.values())
    if dice.chance(0.15):
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": dice.pick(*PORTS)}]


def _resources(dice: Dice, spec: Tree) -> None:
    resources = spec["containers"][0]["resources"]
    for resource, value in dice.some(
        (
            (RDMA, dice.pick("1", "2")),
            ("example.com/license", dice.pick("1", "2")),
            ("hugepages-2Mi", dice.pick("64Mi", "128Mi")),
            ("ephemeral-storage", dice.pick("1Gi", "3Gi", "30Gi")),
        ),
        2,
    ):
        resources["requests"][resource] = value
        if resource != "ephemeral-storage":
            resources["limits"][resource] = value


def _sizes(dice: Dice, spec: Tree) -> None:
    spec["containers"][0]["resources"]["requests"] |= {
        "cpu": dice.pick("3", "6", "9"),
        "memory": dice.pick("4Gi", "15Gi"),
    }
    if dice.chance(0.3):
        spec["initContainers"] = [_container({"cpu": dice.pick("2", "8"), "memory": "1Gi"}, name="init")]
        if dice.chance(0.5):
            spec["initContainers"][0]["restartPolicy"] = "Always"


FEATURES: Final[dict[str, Callable[[Dice, Tree], None]]] = {
    "nodeSelector": _node_selector,
    "nodeAffinity": _node_affinity,
    "tolerations": _tolerations,
    "sizes": _sizes,
    "podAffinity": _pod_affinity,
    "podAntiAffinity": _pod_anti_affinity,
    "spread": _spread,
    "ports": _ports,
    "resources": _resources,
}
"""What a waiting pod can ask for, by name; ``volumes`` is one more."""


def _waiting(dice: Dice, name: str, volumes: Volumes) -> Waiting:
    features = list(dict.fromkeys(dice.some((*FEATURES, "volumes", "volumes"), dice.pick(1, 2, 3))))
    requests = {"cpu": "1", "memory": "512Mi"} | ({CHIPS: "1"} if dice.chance(0.7) else {})
    spec: Tree = {"schedulerName": NAME, "containers": [_container(requests)]}
    for feature in features:
        if feature == "volumes":
            volumes.mount(spec, NAMESPACES[0], running=False)
        else:
            FEATURES[feature](dice, spec)
    meta = {"name": name, "namespace": NAMESPACES[0], "labels": _labels(dice)}
    return Waiting({"metadata": meta, "spec": spec}, tuple(features))
