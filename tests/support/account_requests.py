"""Requests to an API server by accounts of Berth and of others, and a server on which each of them means something."""

from typing import Any, Final, NamedTuple

from berth.lab.servers.kube_server import KubeServer
from tests.support.kube_api import MERGE_PATCH, STRATEGIC_PATCH, KubeApi
from tests.support.kube_objects import apply
from tests.support.kustomize import Tree

SYSTEM: Final = "berth-system"
TEAM: Final = "team"
RBAC: Final = "rbac.authorization.k8s.io"
BERTH: Final = {name: f"system:serviceaccount:{SYSTEM}:{name}" for name in ("binder", "inventory", "health", "summary")}
ACCOUNTS: Final = {
    "tenant": "tenant",
    **BERTH,
    "device plug-in": "system:serviceaccount:kube-system:ascend-device-plugin-sa-910",
    "other scheduler": "system:serviceaccount:volcano-system:volcano-scheduler",
}
STRANGER: Final = "system:serviceaccount:team:default"
"""An account with rights on pods that no parameter names."""
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"
MAPS: Final = "/api/v1/namespaces/{}/configmaps"
GROUPS: Final = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{TEAM}/podgroups"
QUEUES: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
MARK: Final = {"berth/uid": "other"}
CHIPS: Final = {"huawei.com/AscendReal": "Ascend910-0"}


class Request(NamedTuple):
    method: str
    path: str
    body: object = None
    content_type: str = "application/json"


def patch(path: str, body: object) -> Request:
    return Request("PATCH", path, body, MERGE_PATCH)


def pod(changes: Tree, name: str = "bound") -> Request:
    return patch(f"{PODS}/{name}", changes)


def meta(**changes: object) -> Tree:
    return {"metadata": changes}


def binding(annotations: dict[str, str], *, old: bool = False) -> Request:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "waiting", "namespace": TEAM, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    return Request("POST", f"/api/v1/namespaces/{TEAM}/bindings" if old else f"{PODS}/waiting/binding", body)


def a_pod(name: str, scheduler: str = "berth", **changes: Any) -> Tree:  # noqa: ANN401  # fields of the spec
    spec = {
        "schedulerName": scheduler,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "none"}],
        **changes,
    }
    return {"metadata": {"name": name, "namespace": TEAM, "annotations": {"berth/uid": "u", "note": "x"}}, "spec": spec}


def a_map(name: str) -> Tree:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "changed"}}


def a_queue(name: str) -> Tree:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1},
    }


OWNER: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "plain", "uid": "0"}
TOLERATIONS: Final = [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]
OF_TEAM: Final = MAPS.format(TEAM)
VOLUME: Final = "/api/v1/persistentvolumes/volume"
CLAIM: Final = {"kind": "PersistentVolumeClaim", "namespace": TEAM, "name": "claim"}
REQUESTS: Final = {
    "patch a mark of a pod": pod(meta(annotations=MARK)),
    "patch a mark of a pod as a label": pod(meta(labels=MARK)),
    "patch a mark of a pod with its status": patch(f"{PODS}/bound/status", meta(annotations=MARK)),
    "remove a mark of a pod": pod(meta(annotations={"berth/uid": None})),
    "create a pod with a mark": Request("POST", PODS, a_pod("new")),
    "bind a pod": binding({}),
    "bind a pod with a mark": binding(MARK),
    "bind a pod with chips": binding(CHIPS),
    "bind a pod with a mark by the old path": binding(MARK, old=True),
    "patch chips of a pod": pod(meta(annotations=CHIPS)),
    "patch chips of a pod with its status": patch(f"{PODS}/bound/status", meta(annotations=CHIPS)),
    "patch another annotation of a pod": pod(meta(annotations={"note": "y"})),
    "patch the image of a pod": Request(
        "PATCH", f"{PODS}/bound", {"spec": {"containers": [{"name": "main", "image": "other"}]}}, STRATEGIC_PATCH
    ),
    "patch the tolerations of a pod": pod({"spec": {"tolerations": TOLERATIONS}}, "gated"),
    "patch a label of a pod": pod(meta(labels={"app": "other"})),
    "patch the owner of a pod": pod(meta(ownerReferences=[OWNER])),
    "remove a gate of a pod": pod({"spec": {"schedulingGates": []}}, "gated"),
    "patch the status of a pod": patch(f"{PODS}/bound/status", {"status": {"message": "x"}}),
    "delete a pod of Berth": Request("DELETE", f"{PODS}/bound"),
    "delete a pod of another scheduler": Request("DELETE", f"{PODS}/foreign"),
    "evict a pod of another scheduler": Request(
        "POST",
        f"{PODS}/foreign/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "foreign", "namespace": TEAM}},
    ),
    "create a summary of a job": Request("POST", OF_TEAM, a_map("job-summary-new")),
    "create another ConfigMap": Request("POST", OF_TEAM, a_map("new")),
    "create a summary of a job in kube-system": Request("POST", MAPS.format("kube-system"), a_map("job-summary-new")),
    "update a summary of a job": Request("PUT", f"{OF_TEAM}/job-summary-llm", a_map("job-summary-llm")),
    "update another ConfigMap": Request("PUT", f"{OF_TEAM}/plain", a_map("plain")),
    "delete a summary of a job": Request("DELETE", f"{OF_TEAM}/job-summary-llm"),
    "delete another ConfigMap": Request("DELETE", f"{OF_TEAM}/plain"),
    "patch the phase of a PodGroup": patch(f"{GROUPS}/group", {"status": {"phase": "Inqueue"}}),
    "patch the time of the queue of a PodGroup": patch(
        f"{GROUPS}/group", meta(annotations={"huawei.com/schedule_enqueue_time": "5"})
    ),
    "patch the expected start of a PodGroup": patch(
        f"{GROUPS}/group", meta(annotations={"berth/expected-start": "no-end"})
    ),
    "patch another annotation of a PodGroup": patch(f"{GROUPS}/group", meta(annotations={"sp-block": "8"})),
    "remove another annotation of a PodGroup": patch(f"{GROUPS}/group", meta(annotations={"note": None})),
    "patch the minimum of a PodGroup": patch(f"{GROUPS}/group", {"spec": {"minMember": 9}}),
    "patch a label of a PodGroup": patch(f"{GROUPS}/group", meta(labels={"fault-scheduling": "off"})),
    "create the queue default": Request("POST", QUEUES, a_queue("default")),
    "create another queue": Request("POST", QUEUES, a_queue("mine")),
    "patch what a queue has": patch(f"{QUEUES}/team/status", {"status": {"allocated": {"cpu": "1"}}}),
    "patch the limit of a queue": patch(f"{QUEUES}/team", {"spec": {"capability": {"cpu": "1"}}}),
    "patch the node of a claim": patch(
        f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims/claim",
        meta(annotations={"volume.kubernetes.io/selected-node": "n1"}),
    ),
    "patch the claim of a volume": patch(VOLUME, {"spec": {"claimRef": CLAIM}}),
    "patch what becomes of a volume": patch(VOLUME, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
}


async def fill(server: KubeServer, objects: list[Tree]) -> None:
    """Give the accounts their roles, and make an object for each request.

    Args:
        server: Where nothing is yet but the definitions of custom resources.
        objects: Roles and policies.
    """
    async with KubeApi(server) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": TEAM}})
        for one in objects:
            await apply(api, one)
        on_pods = [
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["patch"]},
        ]
        binds = [
            {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        ]
        for name, rules, user in (
            ("plug-in", on_pods, ACCOUNTS["device plug-in"]),
            ("binds", binds, ACCOUNTS["other scheduler"]),
            ("stranger", [*on_pods, *binds], STRANGER),
        ):
            await give(api, name, user, rules)
        await give(api, "edit", "tenant", None)
        await api.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
        for made in (
            a_pod("bound", nodeName="n1"),
            a_pod("waiting"),
            a_pod("gated", schedulingGates=[{"name": "example.com/wait"}]),
            a_pod("foreign", "default-scheduler", nodeName="n1"),
        ):
            await api.post(PODS, made)
        for name in ("plain", "job-summary-llm"):
            await api.post(OF_TEAM, a_map(name))
        await api.post(GROUPS, {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "group", "annotations": {"note": "x"}}, "spec": {"minMember": 1},
        })  # fmt: skip
        await api.post(QUEUES, a_queue("team"))
        size = {"storage": "1Gi"}
        await api.post(f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims", {
            "metadata": {"name": "claim"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": size}},
        })  # fmt: skip
        await api.post("/api/v1/persistentvolumes", {
            "metadata": {"name": "volume"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": size, "hostPath": {"path": "/none"},
                     "storageClassName": "other"},
        })  # fmt: skip


async def give(api: KubeApi, name: str, user: str, rules: list[Tree] | None) -> None:
    """A role for a user; without rules the role ``edit`` of the server, in the namespace of the objects."""
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    if rules is not None:
        await api.post(f"/apis/{RBAC}/v1/clusterroles", {"metadata": {"name": f"test-{name}"}, "rules": rules})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name if rules is None else f"test-{name}"}
    body = {"metadata": {"name": f"test-{name}"}, "roleRef": reference, "subjects": [subject]}
    where = f"namespaces/{TEAM}/rolebindings" if rules is None else "clusterrolebindings"
    await api.post(f"/apis/{RBAC}/v1/{where}", body)
