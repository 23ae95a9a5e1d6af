"""Objects of manifests on an API server: where they are, and what it makes of them."""

from typing import Any, Final

from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kustomize import Tree

_APPLY: Final = "application/apply-patch+yaml"
_PLURALS: Final = {
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
_FIRST: Final = ("Namespace", "PriorityClass", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "Role")
"""Kinds that others need, in the order in which they are made, as kubectl does it."""
_NOT_FOUND: Final = 404


def collection_of(one: Tree) -> str:
    """Path of the objects of its kind, in its namespace if it has one."""
    namespace = one["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{_version(one)}{within}/{_PLURALS.get(one['kind'], one['kind'].lower() + 's')}"


def path_of(one: Tree) -> str:
    """Path of an object."""
    return f"{collection_of(one)}/{one['metadata']['name']}"


def _version(one: Tree) -> str:
    return f"{'/apis' if '/' in one['apiVersion'] else '/api'}/{one['apiVersion']}"


def in_order(objects: list[Tree]) -> list[Tree]:
    """Objects, those that others need first."""
    return sorted(objects, key=lambda one: _FIRST.index(one["kind"]) if one["kind"] in _FIRST else len(_FIRST))


async def apply(api: KubeApi, one: Tree, *, dry: bool = False) -> Tree:
    """Apply an object on the server, which refuses unknown fields; ``dry`` stores nothing.

    Raises:
        RefusedError: It is wrong.
    """
    params = {"fieldManager": "kubectl", "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry else {})
    return await api.call("PATCH", path_of(one), one, params=params, content_type=_APPLY)


async def serves(api: KubeApi, one: Tree) -> bool:
    """Whether the server has the kind of an object.

    Raises:
        RefusedError: It does not say.
    """
    try:
        found = await api.get(_version(one))
    except RefusedError as error:
        if error.status != _NOT_FOUND:
            raise
        return False
    return one["kind"] in {resource["kind"] for resource in found["resources"]}


def lost(sent: Any, stored: Any, at: str = "") -> list[str]:  # noqa: ANN401  # trees of JSON
    """Places at which the server stored something else than it was sent; what it added does not count."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [place for key in sent for place in lost(sent[key], stored.get(key), f"{at}/{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [place for number, (mine, its) in pairs for place in lost(mine, its, f"{at}/{number}")]
    return [] if sent == stored else [at]
