"""Checks of one shape: which rows a constraint allows for one more pod, and how that changes as pods are placed.

Each check counts pods by row or by topology value once, and then follows the pods that a round places and takes back.
The rules are those of the default plug-ins of kube-scheduler.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.selectors import NamespaceLabels, PodKey, spread_selects, term_selects
from berth.core.constraints.topology import Ints, Topology
from berth.core.constraints.usage import Amounts
from berth.core.constraints.usage_index import UsageIndex
from berth.schemas.offers import Shape
from berth.schemas.pod_constraints import HostPort, PodConstraints, PodProfile, PodTerm, SpreadTerm


class Check(Protocol):
    """One constraint of a shape."""

    def allowed(self) -> Fits:
        """Rows that it allows for one more pod, shape (rows,); not to be changed."""

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """Count a pod that was placed (1) or taken back (-1); returns whether :meth:`allowed` may differ now."""


def key_of(pod: PodProfile) -> PodKey:
    """A pod that is about to be placed, as selectors see it."""
    return PodKey(pod.namespace, pod.labels)


class PodsByValue:
    """Numbers of pods by topology value of some keys."""

    def __init__(self, topology: Topology, keys: Iterable[str]) -> None:
        self.values = {key: topology.values(key) for key in dict.fromkeys(keys)}
        self.counts = {key: np.zeros(int(values.max(initial=-1)) + 2, np.int64) for key, values in self.values.items()}
        """The last entry is for nodes without the label, and always 0."""

    def add(self, key: str, row: int, number: int) -> None:
        """Add pods on a row."""
        value = self.values[key][row]
        if value >= 0:
            self.counts[key][value] += number

    def of_rows(self, key: str) -> Ints:
        """Number at the value of each row, shape (rows,)."""
        found: Ints = self.counts[key][self.values[key]]
        return found

    def keys_at(self, rows: Fits) -> tuple[str, ...]:
        """Keys by which pods are at one of some rows, sorted."""
        return tuple(sorted(key for key in self.values if (self.of_rows(key) > 0)[rows].any()))

    def has_value(self, key: str) -> Fits:
        """Rows whose node has the label, shape (rows,)."""
        found: Fits = self.values[key] >= 0
        return found


class AffinityCheck:
    """Required pod affinity: pods that all terms select are at the node's value of each key.

    A pod that all of its own terms select is the first one of its group where no such pod is anywhere.
    """

    def __init__(
        self, terms: Sequence[PodTerm], pod: PodProfile, index: UsageIndex, topology: Topology, names: NamespaceLabels
    ) -> None:
        self.terms = terms
        self._names = names
        self._keys = [term.topology_key for term in dict.fromkeys(terms)]
        self._pods = PodsByValue(topology, self._keys)
        self._selected: dict[PodKey, bool] = {}
        self.selects_itself = self._selects(key_of(pod))
        for _, amounts in index.of_terms(tuple(terms), names):
            for row, number in amounts.items():
                self._count(row, number)

    def _selects(self, pod: PodKey) -> bool:
        known = self._selected.get(pod)
        if known is None:
            known = self._selected[pod] = all(term_selects(term, pod, self._names) for term in self.terms)
        return known

    def _count(self, row: int, number: int) -> None:
        for key in self._pods.values:
            self._pods.add(key, row, number)

    @property
    def is_first(self) -> bool:
        """Whether no pod that the terms select is anywhere."""
        return not any(counts.any() for counts in self._pods.counts.values())

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        has_values: Fits = np.logical_and.reduce([self._pods.has_value(key) for key in self._keys])
        if self.is_first and self.selects_itself:
            return has_values
        found: Fits = np.logical_and.reduce([self._pods.of_rows(key) > 0 for key in self._keys])
        return found & has_values

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        if not self._selects(key_of(pod)):
            return False
        self._count(row, sign)
        return True


class AntiAffinityCheck:
    """Required anti-affinity of the pod: no pod that a term selects is at the node's value of its key."""

    def __init__(self, terms: Sequence[PodTerm], index: UsageIndex, topology: Topology, names: NamespaceLabels) -> None:
        self._terms = tuple(dict.fromkeys(terms))
        self._names = names
        self._pods = PodsByValue(topology, (term.topology_key for term in self._terms))
        self._keys: dict[PodKey, list[str]] = {}
        for term in self._terms:
            for _, amounts in index.of_terms((term,), names):
                for row, number in amounts.items():
                    self._pods.add(term.topology_key, row, number)

    def keys_at(self, rows: Fits) -> tuple[str, ...]:
        """Topology keys that exclude one of some rows, sorted."""
        return self._pods.keys_at(rows)

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        found: Fits = np.logical_and.reduce([self._pods.of_rows(key) <= 0 for key in self._pods.values])
        return found

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        seen = key_of(pod)
        keys = self._keys.get(seen)
        if keys is None:
            chosen = [term.topology_key for term in self._terms if term_selects(term, seen, self._names)]
            keys = self._keys[seen] = chosen
        for key in keys:
            self._pods.add(key, row, sign)
        return bool(keys)


class RepelledCheck:
    """Required anti-affinity of other pods: none whose term selects the pod is at the node's value of its key."""

    def __init__(self, pod: PodProfile, index: UsageIndex, topology: Topology, names: NamespaceLabels) -> None:
        self._pod = key_of(pod)
        self._names = names
        self._topology = topology
        self._selected: dict[tuple[PodTerm, ...], list[str]] = {}
        found = {term: amounts for term, amounts in index.terms.items() if term_selects(term, self._pod, names)}
        self._pods = PodsByValue(topology, (term.topology_key for term in found))
        for term, amounts in found.items():
            for row, number in amounts.items():
                self._pods.add(term.topology_key, row, number)

    def keys_at(self, rows: Fits) -> tuple[str, ...]:
        """Topology keys that exclude one of some rows, sorted."""
        return self._pods.keys_at(rows)

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        rows = len(self._topology.values("kubernetes.io/hostname"))
        found = np.ones(rows, np.bool_)
        for key in self._pods.values:
            found &= self._pods.of_rows(key) <= 0
        return found

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        terms = pod.constraints.anti_affinity
        keys = self._selected.get(terms)
        if keys is None:
            chosen = [term.topology_key for term in terms if term_selects(term, self._pod, self._names)]
            keys = self._selected[terms] = chosen
            for key in chosen:
                if key not in self._pods.values:
                    more = PodsByValue(self._topology, [key])
                    self._pods.values |= more.values
                    self._pods.counts |= more.counts
        for key in keys:
            self._pods.add(key, row, sign)
        return bool(keys)


class SpreadCheck:
    """One topology spread: with the pod the node's value has at most ``max_skew`` pods more than that with fewest.

    Values count that a counted node has: a node with all topology keys of the pod's spreads, subject to the policies.
    """

    def __init__(self, term: SpreadTerm, shape: Shape, pod: PodProfile, index: UsageIndex, topology: Topology) -> None:
        self._term = term
        self._namespace = pod.namespace
        key = term.topology_key
        self._values = topology.values(key)
        self._counted = topology.counted(shape, by_affinity=term.by_affinity, by_taints=term.by_taints)
        for other in pod.constraints.spread:
            self._counted = self._counted & (topology.values(other.topology_key) >= 0)
        self._domains = np.unique(self._values[self._counted])
        self._counts = np.zeros(int(self._values.max(initial=-1)) + 2, np.int64)
        self._selected: dict[PodKey, bool] = {}
        self._itself = int(self._selects(key_of(pod)))
        for _, amounts in index.of_spread(term, pod.namespace):
            for row, number in amounts.items():
                self._count(row, number)

    def _selects(self, pod: PodKey) -> bool:
        known = self._selected.get(pod)
        if known is None:
            known = self._selected[pod] = spread_selects(self._term, self._namespace, pod)
        return known

    def _count(self, row: int, number: int) -> None:
        if self._counted[row]:
            self._counts[self._values[row]] += number

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        few = len(self._domains) < max(self._term.min_domains, 1)
        least = 0 if few else int(self._counts[self._domains].min())
        ok = self._counts + self._itself - least <= self._term.max_skew
        ok[-1] = False  # nodes without the label
        found: Fits = ok[self._values]
        return found

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        if not self._selects(key_of(pod)) or not self._counted[row]:
            return False
        self._count(row, sign)
        return True


class PortCheck:
    """Host ports: no pod on the node has one of the same protocol and number, on the same address or on all."""

    def __init__(self, ports: Sequence[HostPort], index: UsageIndex, rows: int) -> None:
        self._ports = ports
        self._taken = np.zeros(rows, np.int64)
        for row, taken in index.ports.items():
            if row < rows and _collide(ports, taken):
                self._taken[row] = 1

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        found: Fits = self._taken <= 0
        return found

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        if not _collide(self._ports, pod.constraints.ports):
            return False
        self._taken[row] += sign
        return True


def _collide(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    return any(
        (one.port, one.protocol) == (other.port, other.protocol)
        and (one.address == other.address or not one.address or not other.address)
        for one in wanted
        for other in taken
    )


class ResourceCheck:
    """A resource beside chips, cpu and memory: the node has enough left."""

    def __init__(self, name: str, need: int, index: UsageIndex, rows: int) -> None:
        self._name = name
        self._need = need
        self._free = _column(index.limit_resources(name), rows) - _column(index.resources.get(name, {}), rows)

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        found: Fits = self._free >= self._need
        return found

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        amount = sum(number for name, number in pod.constraints.resources if name == self._name)
        self._free[row] -= sign * amount
        return bool(amount)


def has_taken(index: UsageIndex, wanted: PodConstraints, row: int) -> bool:
    """Whether pods on a node keep one from it whose host ports or resources they have; the same as the checks say."""
    if _collide(wanted.ports, index.ports.get(row, ())):
        return True
    return bool(index.limits) and any(index.left_of(name, row) < need for name, need in wanted.resources)


def _column(amounts: Amounts, rows: int) -> Ints:
    found = np.zeros(rows, np.int64)
    for row, amount in amounts.items():
        if row < rows:
            found[row] = amount
    return found
