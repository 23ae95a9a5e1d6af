"""Label selectors, and the pods that a term of pod affinity or a topology spread selects.

The rules are those of Kubernetes: no selector selects nothing, an empty one everything; ``NotIn`` and ``DoesNotExist``
also hold where the label is missing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from berth.core.cluster.node_classes import holds_for
from berth.schemas.pod_constraints import LabelSelector, PodTerm, SpreadTerm

Labels = tuple[tuple[str, str], ...]
"""Labels, sorted by key."""
NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels of each namespace; one that is missing has no labels."""


class PodKey(NamedTuple):
    """Pods that no selector distinguishes."""

    namespace: str
    labels: Labels
    ending: bool = False
    """They are being deleted."""


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects an object with these labels."""
    return selector is not None and holds_for(selector.expressions, labels)


def is_in_scope(term: PodTerm, namespace: str, namespaces: NamespaceLabels) -> bool:
    """Whether a term speaks of the pods of a namespace."""
    return namespace in term.namespaces or selects(term.namespace_selector, namespaces.get(namespace, {}))


def term_selects(term: PodTerm, pod: PodKey, namespaces: NamespaceLabels) -> bool:
    """Whether a term of pod affinity or anti-affinity selects a pod."""
    return is_in_scope(term, pod.namespace, namespaces) and selects(term.selector, dict(pod.labels))


def spread_selects(term: SpreadTerm, namespace: str, pod: PodKey) -> bool:
    """Whether a topology spread of a pod in ``namespace`` counts a pod: of that namespace, not being deleted."""
    return pod.namespace == namespace and not pod.ending and selects(term.selector, dict(pod.labels))


def pairs_of(selector: LabelSelector | None) -> tuple[tuple[str, str], ...]:
    """Labels one of which each selected object has; empty when no expression requires one."""
    choices = [
        tuple((expression.key, value) for value in expression.values)
        for expression in (selector.expressions if selector is not None else ())
        if expression.operator == "In"
    ]
    return min(choices, key=len, default=())
