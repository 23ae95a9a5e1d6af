"""What the pods of a node use, summed up from the pods, and what the node offers. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from berth.formats.kubernetes.objects import Node
from berth.formats.quantities import QuantityError, quantity
from berth.products.resources import is_npu
from berth.schemas.facts import PodPhase
from berth.schemas.pod_constraints import HostPort, PodTerm
from berth.schemas.usage_facts import UNLIMITED
from berth.services.inventory.pod_rows import PodRow
from berth.services.inventory.usage.selector_keys import SelectorKeys

PODS: Final = "pods"
_OWN_FIELDS: Final = frozenset({"cpu", "memory", PODS})
_AMOUNT_MAX: Final = (1 << 62) - 1

SetKey = tuple[str, tuple[tuple[str, str], ...], bool]
"""Namespace, labels, and whether the pods are being deleted."""
RankKey = tuple[str, int, int]
"""Uid of the request, attempt and rank of a pod that Berth has placed."""


class Offer(NamedTuple):
    """What a node offers: most pods, and amounts of resources beside chips, cpu, memory and pods."""

    pods_max: int = UNLIMITED
    resources: Mapping[str, int] = {}


class NodeUsage(NamedTuple):
    """What the pods of a node use."""

    pods: int = 0
    resources: Mapping[str, int] = {}
    sets: Mapping[SetKey, int] = {}
    terms: Mapping[PodTerm, None] = {}
    ports: Mapping[HostPort, None] = {}
    claims: Mapping[tuple[str, str], None] = {}
    """Namespace and name."""
    relabelled: tuple[RankKey, ...] = ()


class PlacedPod(NamedTuple):
    """A bound pod.

    Attributes:
        row: The pod.
        asked_labels: Labels in its request; None for a pod that Berth has not placed.
    """

    row: PodRow
    asked_labels: Mapping[str, str] | None


def offer_of(node: Node) -> Offer:
    """What a node offers; what is no quantity counts as missing, as :func:`read_node` reports it for cpu and memory."""
    allocatable = node.status.allocatable or {}
    amounts = {
        name: _whole(value)
        for name, value in sorted(allocatable.items())
        if name not in _OWN_FIELDS and not is_npu(name)
    }
    pods_max = min(_whole(allocatable[PODS]), UNLIMITED) if PODS in allocatable else UNLIMITED
    return Offer(pods_max, {name: amount for name, amount in amounts.items() if amount})


def usage_of(pods: Iterable[PlacedPod], keys: SelectorKeys) -> NodeUsage:
    """What pods use; of a pod that Berth has placed only labels that differ from those of its request."""
    count = 0
    resources: Counter[str] = Counter()
    sets: Counter[SetKey] = Counter()
    terms: dict[PodTerm, None] = {}
    ports: dict[HostPort, None] = {}
    claims: dict[tuple[str, str], None] = {}
    relabelled: list[RankKey] = []
    for pod in pods:
        row = pod.row
        if not row.is_live:
            continue
        labels = keys.selectable(row.labels)
        group = (row.namespace, tuple(labels.items()), row.phase == PodPhase.TERMINATING)
        if pod.asked_labels is not None:
            if row.identity is not None and labels != keys.selectable(pod.asked_labels):
                relabelled.append((row.identity.uid, row.identity.attempt, row.identity.rank))
                sets[group] += 1
            continue
        count += 1
        if keys.has_selectors:
            sets[group] += 1
        found = row.constraints
        if found is None:
            continue
        resources.update(dict(found.resources))
        terms.update(dict.fromkeys(found.anti_affinity))
        ports.update(dict.fromkeys(found.ports))
        claims.update(((row.namespace, claim), None) for claim in found.claims)
    return NodeUsage(
        count,
        {name: min(amount, _AMOUNT_MAX) for name, amount in resources.items()},
        sets,
        terms,
        ports,
        claims,
        tuple(sorted(relabelled)),
    )


def _whole(value: object) -> int:
    """Whole base units in a quantity, 0 for what is none."""
    try:
        amount = quantity(value)
    except QuantityError:
        return 0
    return min(amount.numerator // amount.denominator, _AMOUNT_MAX)
