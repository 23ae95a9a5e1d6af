"""Preferences of a pod among nodes with equal scores.

They are preferred node affinity, preferred pod affinity, and topology spread with ``ScheduleAnyway``. Each of them is a
number from 0 to 100 for each node that is allowed, as kube-scheduler's plug-ins compute it, and counts with the default
weight of its plug-in there. The sum decides between nodes with equal scores, before the name.
"""

from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.checks import PodsByValue, key_of
from berth.core.constraints.selectors import NamespaceLabels, spread_selects, term_selects
from berth.core.constraints.topology import Ints, Topology
from berth.core.constraints.usage_index import UsageIndex
from berth.schemas.offers import Shape
from berth.schemas.pod_constraints import PodConstraints, PodProfile, PodTerm, SpreadTerm

NODE_WEIGHT: Final = 2
"""Weight of preferred node affinity."""
POD_WEIGHT: Final = 2
"""Weight of preferred pod affinity and anti-affinity."""
SPREAD_WEIGHT: Final = 2
"""Weight of topology spread."""
_MOST: Final = 100


def has_preferences(wanted: PodConstraints) -> bool:
    """Whether a pod prefers some nodes."""
    return bool(wanted.preferred_nodes or wanted.preferred_near or wanted.preferred_apart or wanted.preferred_spread)


class Preferences:
    """How well each node suits the preferences of a shape, the pods of the round included."""

    def __init__(
        self, shape: Shape, pod: PodProfile, index: UsageIndex, topology: Topology, names: NamespaceLabels
    ) -> None:
        wanted = pod.constraints
        self._pod = pod
        self._names = names
        self._topology = topology
        self._nodes: Ints = np.zeros(topology.rows, np.int64)
        for preferred in wanted.preferred_nodes:
            self._nodes += preferred.weight * topology.matching((preferred.term,))
        self._terms: list[tuple[PodTerm, int]] = [
            *((preferred.term, preferred.weight) for preferred in wanted.preferred_near),
            *((preferred.term, -preferred.weight) for preferred in wanted.preferred_apart),
        ]
        self._pods = PodsByValue(topology, (term.topology_key for term, _ in self._terms))
        for term, weight in self._terms:
            for _, amounts in index.of_terms((term,), names):
                for row, number in amounts.items():
                    self._pods.add(term.topology_key, row, weight * number)
        self._spread = [_SoftSpread(term, shape, pod, index, topology) for term in wanted.preferred_spread]

    def add(self, pod: PodProfile, row: int, sign: int) -> None:
        """Count a pod that was placed (1) or taken back (-1)."""
        seen = key_of(pod)
        for term, weight in self._terms:
            if term_selects(term, seen, self._names):
                self._pods.add(term.topology_key, row, sign * weight)
        for spread in self._spread:
            spread.add(pod, row, sign)

    def scores(self, allowed: Fits) -> Ints:
        """Preference for each row, the better the higher; only those of allowed rows mean something."""
        found = NODE_WEIGHT * _normal(self._nodes, allowed)
        if self._terms:
            near = np.sum([self._pods.of_rows(key) for key in self._pods.values], axis=0)
            found += POD_WEIGHT * _normal(near, allowed)
        if self._spread:
            crowd = np.sum([spread.of_rows() for spread in self._spread], axis=0)
            found += SPREAD_WEIGHT * _normal(-crowd, allowed)
        return found


class _SoftSpread:
    """Number of pods at the value of each node that a topology spread counts."""

    def __init__(self, term: SpreadTerm, shape: Shape, pod: PodProfile, index: UsageIndex, topology: Topology) -> None:
        self._term = term
        self._namespace = pod.namespace
        self._counted = topology.counted(shape, by_affinity=term.by_affinity, by_taints=term.by_taints)
        self._pods = PodsByValue(topology, [term.topology_key])
        for _, amounts in index.of_spread(term, pod.namespace):
            for row, number in amounts.items():
                self._count(row, number)

    def _count(self, row: int, number: int) -> None:
        if self._counted[row]:
            self._pods.add(self._term.topology_key, row, number)

    def add(self, pod: PodProfile, row: int, sign: int) -> None:
        if spread_selects(self._term, self._namespace, key_of(pod)):
            self._count(row, sign)

    def of_rows(self) -> Ints:
        """Pods at the value of each row; a node without the label counts as the fullest value."""
        key = self._term.topology_key
        crowd = self._pods.of_rows(key)
        return np.where(self._pods.has_value(key), crowd, crowd.max(initial=0))


def _normal(raw: Ints, allowed: Fits) -> Ints:
    """Numbers from 0 to 100, in proportion to ``raw``: 0 for the least of the allowed rows, 100 for the most."""
    seen = raw[allowed]
    if not len(seen) or seen.min() == seen.max():
        return np.zeros_like(raw)
    least, most = int(seen.min()), int(seen.max())
    found: Ints = (raw - least) * _MOST // (most - least)
    return found
