"""Jobs, pods and nodes for tests of the binder on an API server in memory or a real one."""

import json
from collections.abc import Sequence
from typing import Any

from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import MembersSeen, PodPhase, PodsSeen
from berth.schemas.placement import Placement, Run, placement_of
from berth.services.binder.cluster import Gang
from tests.support.fake_kube import FakeKube

RESOURCE = "huawei.com/Ascend910"


def a_node(name: str, *, chips: int = 8, address: str = "10.1.1.1") -> dict[str, Any]:
    """A node with chips as the device plug-in describes them."""
    base = {f"Ascend910-{chip}": {"IP": f"10.0.0.{chip}", "SuperDeviceID": chip} for chip in range(chips)}
    return {
        "metadata": {
            "name": name,
            "annotations": {"baseDeviceInfos": json.dumps(base), "superPodID": "-2", "serverIndex": "3"},
        },
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def a_pod(name: str, *, chips: int = 1, node: str = "", **annotations: str) -> dict[str, Any]:
    """A pod that waits for a scheduler; ``annotations`` with ``__`` for ``/``."""
    spec: dict[str, Any] = {
        "schedulerName": "berth",
        "containers": [
            {"name": "main", "image": "none", "resources": {"limits": {RESOURCE: str(chips)}} if chips else {}}
        ],
    }
    if node:
        spec["nodeName"] = node
    marks = {key.replace("__", "/"): value for key, value in annotations.items()}
    return {"metadata": {"name": name, "annotations": marks}, "spec": spec, "status": {"phase": "Pending"}}


def owned(kube: FakeKube, *names: str, kind: str = "ReplicaSet", version: str = "apps/v1", **spec: object) -> None:
    """Give pods a controller, which is there."""
    plural = f"{kind.lower()}s"
    made = kube.put(f"/apis/{version}/namespaces/ns/{plural}", {"metadata": {"name": "owner"}, "spec": spec})
    owner = {"apiVersion": version, "kind": kind, "name": "owner", "uid": made["metadata"]["uid"], "controller": True}
    for name in names:
        pod = kube.object(f"/api/v1/namespaces/ns/pods/{name}")
        kube.put("/api/v1/namespaces/ns/pods", {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}})


def a_placement(nodes: Sequence[str], chips: Sequence[tuple[int, ...]]) -> Placement:
    """One rank a node and tuple of chips, all equally large."""
    return placement_of(list(nodes), list(chips), [Run(len(nodes), len(chips[0]))], resource=RESOURCE)


def a_gang(
    name: str, nodes: Sequence[str], chips: Sequence[tuple[int, ...]], *, namespace: str = "ns", attempt: int = 1
) -> Gang:
    """An attempt of the job ``name``."""
    return Gang(namespace, name, f"uid-{name}", attempt, a_placement(nodes, chips))


def members_of(
    gang: Gang, pods: Sequence[tuple[int, str, str]], *, stale: Sequence[int] = (), **changes: object
) -> MembersSeen:
    """Fact that says which pods (rank, name, uid) stand for ranks of a gang."""
    fields: dict[str, Any] = {
        "namespace": gang.namespace,
        "job": gang.name,
        "uid": gang.uid,
        "rank": pack([rank for rank, _, _ in pods], 4),
        "pods": [name for _, name, _ in pods],
        "pod_uids": [uid for _, _, uid in pods],
        "stale": list(stale),
    }
    return MembersSeen(**{**fields, **changes})


def pods_of(
    gang: Gang, rows: Sequence[tuple[int, str, PodPhase, int, bool]], *, foreign: bool = False, uid: str = ""
) -> PodsSeen:
    """Fact of pods: (rank, node, phase, mask of chips, whether it has got them)."""
    nodes = sorted({node for _, node, _, _, _ in rows})
    return PodsSeen(
        gang.namespace,
        gang.name,
        uid or gang.uid,
        gang.attempt,
        rank=pack([rank for rank, _, _, _, _ in rows], 4),
        nodes=pack_names(nodes),
        node_index=pack([nodes.index(node) for _, node, _, _, _ in rows], 4),
        phase=bytes(phase for _, _, phase, _, _ in rows),
        chips=pack([mask for _, _, _, mask, _ in rows], 8),
        resource=RESOURCE,
        foreign=foreign,
        consumed=bytes(consumed for _, _, _, _, consumed in rows),
    )
