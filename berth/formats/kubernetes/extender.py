"""Calls of kube-scheduler to an extender, and the answers, as JSON.

Names of fields are those of the Go types, which have no tags. A call carries the nodes as names if the extender is
configured with ``nodeCacheCapable: true``, and as whole objects otherwise; the answer has the form of the call.

Source: Kubernetes, ``k8s.io/kube-scheduler/extender/v1``.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.shortened import cut

T = TypeVar("T")
_ERROR_MAX: Final = 500
_COMMAS_MAX: Final = 3_000_000
"""Most commas of a call, and so elements, each of which takes some 60 bytes when it is read: 5,000 whole nodes have
half of them."""
_WRONG: Final = re.compile(r"Expected `(?P<wanted>.*?)`, got `(?P<got>.*?)`(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)


class ExtenderError(ValueError):
    """A body that is no such call. The text is ``<field> is <value>, expected <what>``."""


class FilterCall(msgspec.Struct, frozen=True):
    """Which of these nodes may a pod be on?

    Attributes:
        namespace: Of the pod.
        name: Of the pod.
        uid: Of the pod.
        nodes: Names of the candidates, in the order of the call.
        objects: The candidates as JSON objects, parallel to ``nodes``; None if the call has names alone.
    """

    namespace: str
    name: str
    uid: str
    nodes: tuple[str, ...]
    objects: tuple[msgspec.Raw, ...] | None = None


class BindCall(msgspec.Struct, frozen=True):
    """Bind a pod to a node."""

    namespace: str
    name: str
    uid: str
    node: str


class _Named(Lean, frozen=True):
    metadata: Meta = Meta()


class _NodeList(Lean, frozen=True):
    items: list[msgspec.Raw] | None = None


class _FilterArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: _Named | None = None
    nodes: _NodeList | None = None
    node_names: list[str] | None = None


class _BindingArgs(msgspec.Struct, frozen=True):
    pod_name: str = msgspec.field(default="", name="PodName")
    pod_namespace: str = msgspec.field(default="", name="PodNamespace")
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = msgspec.field(default="", name="Node")


class _PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: _Named | None = None


class _Nodes(msgspec.Struct, frozen=True, rename="camel"):
    items: list[msgspec.Raw]
    kind: str = "NodeList"
    api_version: str = "v1"
    metadata: Mapping[str, str] = {}


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: _Nodes | None
    node_names: list[str] | None
    failed_and_unresolvable_nodes: Mapping[str, str]
    failed_nodes: Mapping[str, str] = {}
    error: str = ""


class _BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    error: str


_NO_VICTIMS: Final = b'{"NodeNameToMetaVictims":{}}'


def filter_call(data: bytes) -> FilterCall:
    """Read ``ExtenderArgs``.

    Raises:
        ExtenderError: The data are no ``ExtenderArgs``.
    """
    commas = data.count(b",")
    if commas > _COMMAS_MAX:
        raise ExtenderError(f"ExtenderArgs is of {commas} elements, expected at most {_COMMAS_MAX}")
    found = _decoded(data, _FilterArgs, "ExtenderArgs")
    meta = _pod(found.pod)
    if found.node_names is not None:
        return FilterCall(meta.namespace, meta.name, meta.uid, tuple(found.node_names))
    if found.nodes is None:
        raise ExtenderError("NodeNames is missing, expected the candidates there or in Nodes")
    objects = tuple(found.nodes.items or ())
    nodes = []
    for number, one in enumerate(objects):
        name = _decoded(bytes(one), _Named, f"Nodes.items[{number}]").metadata.name
        if not name:
            raise ExtenderError(f"Nodes.items[{number}].metadata.name is '', expected the name of a node")
        nodes.append(name)
    return FilterCall(meta.namespace, meta.name, meta.uid, tuple(nodes), objects)


def bind_call(data: bytes) -> BindCall:
    """Read ``ExtenderBindingArgs``.

    Raises:
        ExtenderError: The data are no ``ExtenderBindingArgs``.
    """
    found = _decoded(data, _BindingArgs, "ExtenderBindingArgs")
    for field, value in (
        ("PodName", found.pod_name),
        ("PodNamespace", found.pod_namespace),
        ("PodUID", found.pod_uid),
        ("Node", found.node),
    ):
        if not value:
            raise ExtenderError(f"{field} is '', expected a text")
    return BindCall(found.pod_namespace, found.pod_name, found.pod_uid, found.node)


def preempt_call(data: bytes) -> None:
    """Check that these are ``ExtenderPreemptionArgs``; the answer does not depend on them.

    Raises:
        ExtenderError: The data are no ``ExtenderPreemptionArgs``.
    """
    _pod(_decoded(data, _PreemptionArgs, "ExtenderPreemptionArgs").pod)


def filter_answer(call: FilterCall, node: str, reason: str) -> bytes:
    """``ExtenderFilterResult`` that leaves one node, or none.

    The others fail in a way that preemption cannot help, so that kube-scheduler evicts no pod for their sake.

    Args:
        call: The call.
        node: The node that is left, if it is among the candidates; empty for none.
        reason: Why the others are not.
    """
    kept = [number for number, name in enumerate(call.nodes) if name == node and node][:1]
    failed = {name: reason for name in call.nodes if name != node or not node}
    names, objects = [call.nodes[number] for number in kept], call.objects
    return msgspec.json.encode(
        _FilterResult(
            nodes=_Nodes([objects[number] for number in kept]) if objects is not None else None,
            node_names=names if objects is None else None,
            failed_and_unresolvable_nodes=failed,
        )
    )


def bind_answer(error: str) -> bytes:
    """``ExtenderBindingResult``.

    Args:
        error: Why the pod is not bound; empty if it is.
    """
    return msgspec.json.encode(_BindingResult(error))


def preempt_answer() -> bytes:
    """``ExtenderPreemptionResult`` that permits no victim on any node."""
    return _NO_VICTIMS


def _pod(pod: _Named | None) -> Meta:
    if pod is None:
        raise ExtenderError("Pod is missing, expected the pod")
    for field in ("name", "namespace", "uid"):
        if not getattr(pod.metadata, field):
            raise ExtenderError(f"Pod.metadata.{field} is '', expected a text")
    return pod.metadata


def _decoded(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        found = _WRONG.fullmatch(str(error))
        text = f"{what} is invalid ({error}), expected its fields"
        if found is not None:
            text = f"{found['path'] or what} is of type {found['got']}, expected {found['wanted']}"
        raise ExtenderError(cut(text, _ERROR_MAX)) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ExtenderError(cut(f"body is no JSON ({error}), expected {what}", _ERROR_MAX)) from error
