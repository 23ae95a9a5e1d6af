"""Node classes: labels, taints, cordon and readiness of nodes, and the constraints of a pod on them.

Nodes with equal labels, taints, cordon and readiness share a class, so that a constraint is checked once per class
instead of once per node. The node's own name (``kubernetes.io/hostname``, ``metadata.name``) is not part of the class;
conditions on it are checked by name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.schemas.constraints import NAME_KEYS, Expression, Taint, Term, Toleration
from berth.schemas.facts import NodeClass
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
"""Values that Kubernetes compares as integers."""
_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


class ClassKey(msgspec.Struct, frozen=True):
    """Properties in which the nodes of a class are equal."""

    product: str
    resource: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    cordoned: bool
    ready: bool


def key_of(node_class: NodeClass) -> ClassKey:
    """Hashable form of a class of a fact."""
    return ClassKey(
        product=node_class.product,
        resource=node_class.resource,
        labels=tuple(sorted(node_class.labels.items())),
        taints=tuple(sorted(node_class.taints, key=lambda taint: (taint.key, taint.value, taint.effect))),
        cordoned=node_class.cordoned,
        ready=node_class.ready,
    )


def class_reason(shape: Shape, key: ClassKey) -> NodeReason:
    """Reason why no node of the class can take a pod of the shape. Conditions on node names are ignored.

    A term of the required node affinity with conditions on names is met if its other conditions are met.
    """
    if shape.resource and shape.resource != key.resource:
        return NodeReason.OTHER_RESOURCE
    if not key.ready:
        return NodeReason.NOT_READY
    if key.cordoned and not _tolerated(_CORDON, shape.tolerations):
        return NodeReason.CORDONED
    if not selects_labels(shape, dict(key.labels)):
        return NodeReason.SELECTOR
    if untolerated(shape, key):
        return NodeReason.TAINT
    return NodeReason.FITS


def unwanted_taints(shape: Shape, key: ClassKey) -> int:
    """Taints with the effect ``PreferNoSchedule`` of a class that a pod does not tolerate."""
    return sum(taint.effect == "PreferNoSchedule" and not _tolerated(taint, shape.tolerations) for taint in key.taints)


def selects_labels(shape: Shape, labels: Mapping[str, str]) -> bool:
    """Whether the selector and the affinity hold for labels of a node. Conditions on node names are ignored."""
    if any(labels.get(name) != value for name, value in shape.selector if name not in NAME_KEYS):
        return False
    return not shape.affinity or any(_term_holds(term, labels) for term in shape.affinity)


def is_tolerated(shape: Shape, key: ClassKey) -> bool:
    """Whether a pod tolerates all taints of a class that keep pods away, and its cordon."""
    return not untolerated(shape, key) and (not key.cordoned or _tolerated(_CORDON, shape.tolerations))


def untolerated(shape: Shape, key: ClassKey) -> list[Taint]:
    """Taints of a class that keep pods of a shape away, its cordon left out."""
    return [taint for taint in key.taints if taint.effect in _KEEPS_AWAY and not _tolerated(taint, shape.tolerations)]


def name_fits(shape: Shape, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the selector and the affinity hold for the node ``name`` when its name is added to its labels."""
    seen = dict(labels) | dict.fromkeys(NAME_KEYS, name)
    if any(seen.get(key) != value for key, value in shape.selector):
        return False
    return not shape.affinity or any(term.expressions and holds_for(term.expressions, seen) for term in shape.affinity)


_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (
            (not toleration.key and toleration.operator == "Exists")
            or (toleration.key == taint.key and (toleration.operator == "Exists" or toleration.value == taint.value))
        )
        for toleration in tolerations
    )


def _term_holds(term: Term, labels: Mapping[str, str]) -> bool:
    rest = [expression for expression in term.expressions if expression.key not in NAME_KEYS]
    return bool(term.expressions) and holds_for(rest, labels)


def holds_for(expressions: Sequence[Expression], labels: Mapping[str, str]) -> bool:
    """Whether all conditions hold for labels, of a node or of another object."""
    return all(_holds(expression, labels.get(expression.key)) for expression in expressions)


def _holds(expression: Expression, value: str | None) -> bool:
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(expression, value)


def _compares(expression: Expression, value: str | None) -> bool:
    if value is None or len(expression.values) != 1:
        return False
    if not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(expression.values[0]):
        return False
    left, right = int(value), int(expression.values[0])
    return left > right if expression.operator == "Gt" else left < right
