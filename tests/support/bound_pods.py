"""Pods that a test binds by hand, as a scheduler does: one Binding with all annotations inside."""

from typing import Any

from berth.formats.ascend.pod_annotations import PREDICATE_TIME, chip_names
from berth.runtime.kube.port import Api

RESOURCE = "huawei.com/Ascend910"


def pod_body(namespace: str, name: str, chips: list[int], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """A pod with a container for each number of chips; 0 asks for none."""
    containers = [
        {
            "name": f"c{index}",
            "image": "none",
            "resources": {"limits": {RESOURCE: str(count)}} if count else {},
        }
        for index, count in enumerate(chips)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "spec": {"schedulerName": "berth", "containers": containers, "restartPolicy": "Never"},
    }


async def bind(
    api: Api, namespace: str, name: str, node: str, chips: list[int], *, at: str, annotations: dict[str, str] | None = None
) -> None:  # fmt: skip
    """Bind a pod to chips of a node.

    Args:
        api: The API server.
        namespace: Of the pod.
        name: Of the pod.
        node: The node.
        chips: Ids of chips for the annotation.
        at: Its predicate-time; empty for none.
        annotations: More annotations.
    """
    found = {RESOURCE: chip_names(RESOURCE, chips)} if chips else {}
    if at:
        found[PREDICATE_TIME] = at
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "annotations": {**found, **(annotations or {})}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)


async def bound(
    api: Api,
    namespace: str,
    name: str,
    node: str,
    chips: list[int],
    *,
    at: str = "100",
    metadata: dict[str, Any] | None = None,
) -> None:
    """Make a pod of one container and bind it."""
    await api.create(f"/api/v1/namespaces/{namespace}/pods", pod_body(namespace, name, [len(chips)], metadata))
    await bind(api, namespace, name, node, chips, at=at)
