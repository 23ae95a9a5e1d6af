"""Usage index: the usage of all sources of pods, added up, and searchable by selector.

A source is a fact of usage or a placed attempt; the sums do not depend on the order in which sources came.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from berth.core.constraints.selectors import (
    NamespaceLabels,
    PodKey,
    is_in_scope,
    pairs_of,
    selects,
    spread_selects,
    term_selects,
)
from berth.core.constraints.usage import Amounts, Limits, Usage, add_to
from berth.core.copies import copied
from berth.products.resources import RESOURCES
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodTerm, SpreadTerm
from berth.schemas.usage_facts import ClaimName

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)
Ints = npt.NDArray[np.int64]
_NO_LIMIT: Final = 1 << 40
_UNLIMITED: Final = Limits()
Pair = tuple[str, str]
Groups = dict[PodKey, None]


class UsageIndex:
    """Usage of all sources, and the limits of nodes."""

    def __init__(self) -> None:
        self.pods: Amounts = {}
        self.groups: dict[PodKey, Amounts] = {}
        self.terms: dict[PodTerm, Amounts] = {}
        self.ports: dict[int, dict[HostPort, int]] = {}
        """By row."""
        self.resources: dict[str, Amounts] = {}
        self.claims: dict[ClaimName, Amounts] = {}
        self.claims_on: dict[int, dict[ClaimName, int]] = {}
        """By row."""
        self.limits: dict[Hashable, Limits] = {}
        self._slots: Ints | None = None
        """Pods that each row still takes, kept up to date; None before it is asked for, and after limits changed."""
        self._sources: dict[Hashable, Usage] = {}
        self._by_namespace: dict[str, Groups] = {}
        self._by_pair: dict[Pair, Groups] = {}
        self._shares = False
        """A copy has the same amounts in its tables: they are replaced, not changed."""

    def fork(self) -> "UsageIndex":
        """A copy that is changed alone, while this one stays as it is."""
        return copied(
            self,
            _shares=True,
            pods=self.pods.copy(),
            groups=self.groups.copy(),
            terms=self.terms.copy(),
            ports=self.ports.copy(),
            resources=self.resources.copy(),
            claims=self.claims.copy(),
            claims_on=self.claims_on.copy(),
            _slots=None if self._slots is None else self._slots.copy(),
            _sources=self._sources.copy(),
            _by_namespace={name: groups.copy() for name, groups in self._by_namespace.items()},
            _by_pair={pair: groups.copy() for pair, groups in self._by_pair.items()},
        )

    def replace(self, source: Hashable, usage: Usage | None) -> Usage | None:
        """Set the usage of a source; None for a source that is gone.

        Returns:
            What the source had before; None for nothing.
        """
        before = self._sources.pop(source, None)
        if usage is not None:
            self._sources[source] = usage
            self._add(usage, 1)
        if before is not None:
            self._add(before, -1)
        return before

    def has_ending(self, source: Hashable) -> bool:
        """Whether some pods of a source are being deleted."""
        usage = self._sources.get(source)
        return usage is not None and any(group.ending for group in usage.groups)

    def _add(self, usage: Usage, sign: int) -> None:
        for row, number in usage.pods.items():
            add_to(self.pods, row, sign * number)
            if self._slots is not None and row < len(self._slots):
                self._slots[row] -= sign * number
        for group, amounts in usage.groups.items():
            self._add_group(group, amounts, sign)
        shares = self._shares
        _add_named(self.terms, usage.terms, sign, shares=shares)
        _add_named(self.resources, usage.resources, sign, shares=shares)
        _add_named(self.claims, usage.claims, sign, shares=shares)
        _add_on(self.ports, usage.ports, sign, shares=shares)
        _add_on(self.claims_on, usage.claims, sign, shares=shares)

    def _add_group(self, group: PodKey, amounts: Amounts, sign: int) -> None:
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = {}
            self._by_namespace.setdefault(group.namespace, {})[group] = None
            for pair in group.labels:
                self._by_pair.setdefault(pair, {})[group] = None
        elif self._shares:
            found = self.groups[group] = found.copy()
        for row, number in amounts.items():
            add_to(found, row, sign * number)
        if not found:
            del self.groups[group]
            _drop(self._by_namespace, group.namespace, group)
            for pair in group.labels:
                _drop(self._by_pair, pair, group)

    def set_limits(self, source: Hashable, limits: Limits) -> None:
        """Set the limits that a source states; without rows it states none."""
        if self.limits.get(source, _UNLIMITED) == limits:
            return
        self.limits.pop(source, None)
        if limits.rows:
            self.limits[source] = limits
        self._slots = None

    def slots(self, rows: int) -> Ints | None:
        """Pods that each row still takes, shape (rows,), not to be changed; None where no node limits them."""
        if not any(limits.pods for limits in self.limits.values()):
            return None
        if self._slots is None or len(self._slots) != rows:
            most = _smallest(limits.pods for limits in self.limits.values())
            self._slots = np.full(rows, _NO_LIMIT, np.int64)
            self._slots[list(most)] = list(most.values())
            self._slots[list(self.pods)] -= np.fromiter(self.pods.values(), np.int64, len(self.pods))
        return self._slots

    def limit_resources(self, name: str) -> Amounts:
        """What each node that offers a resource offers."""
        return _smallest(limits.resources.get(name, {}) for limits in self.limits.values())

    def left_of(self, name: str, row: int) -> int:
        """What a node has left of a resource; as in :meth:`limit_resources` what it lacks is 0."""
        offered = [of_source.resources.get(name, {}).get(row) for of_source in self.limits.values()]
        return min((most for most in offered if most is not None), default=0) - self.resources.get(name, {}).get(row, 0)

    def offered(self) -> list[str]:
        """Resources that some node offers, and those of chips, by name."""
        names = {name for limits in self.limits.values() for name, rows in limits.resources.items() if rows}
        return sorted(names.union(RESOURCES))

    def limit_volumes(self, driver: str) -> Amounts:
        """Most volumes of a CSI driver on each node that limits them."""
        return _smallest(limits.volumes.get(driver, {}) for limits in self.limits.values())

    def of_terms(self, terms: tuple[PodTerm, ...], namespaces: NamespaceLabels) -> Iterator[tuple[PodKey, Amounts]]:
        """Pods that each of some terms selects, and how many are on which row."""
        for group in self._likely(terms[0].selector, None):
            if all(term_selects(term, group, namespaces) for term in terms):
                yield group, self.groups[group]

    def of_spread(self, term: SpreadTerm, namespace: str) -> Iterator[tuple[PodKey, Amounts]]:
        """Pods that a topology spread of a pod in ``namespace`` counts, and how many are on which row."""
        for group in self._likely(term.selector, namespace):
            if spread_selects(term, namespace, group):
                yield group, self.groups[group]

    def _likely(self, selector: LabelSelector | None, namespace: str | None) -> Iterable[PodKey]:
        """Groups among which are all that a selector selects."""
        if selector is None:
            return ()
        pairs = pairs_of(selector)
        if pairs:
            return dict.fromkeys(group for pair in pairs for group in self._by_pair.get(pair, ()))
        return self.groups if namespace is None else self._by_namespace.get(namespace, ())


class TermIndex:
    """Required anti-affinity terms, searchable by the pod that they repel."""

    def __init__(self) -> None:
        self.counts: dict[PodTerm, int] = {}
        self._by_pair: dict[Pair | None, dict[PodTerm, None]] = {}
        """Terms by each label of which a pod must have one to be repelled; those that ask for none by None."""

    def add(self, term: PodTerm, number: int) -> bool:
        """Add to the number of a term; returns whether it came or went."""
        before = self.counts.get(term, 0)
        now = before + number
        if now:
            self.counts[term] = now
        else:
            self.counts.pop(term, None)
        if bool(before) == bool(now):
            return False
        for pair in dict.fromkeys(pairs_of(term.selector) or (None,)):
            if now:
                self._by_pair.setdefault(pair, {})[term] = None
            else:
                _drop(self._by_pair, pair, term)
        return True

    @property
    def selects_namespaces(self) -> bool:
        """Whether some term selects namespaces by their labels."""
        return any(term.namespace_selector is not None for term in self.counts)

    def repels(self, pod: PodKey, namespaces: NamespaceLabels) -> bool:
        """Whether some term selects a pod."""
        labels = dict(pod.labels)
        return any(
            selects(term.selector, labels) and is_in_scope(term, pod.namespace, namespaces)
            for pair in (None, *pod.labels)
            for term in self._by_pair.get(pair, ())
        )


def _add_named(sums: dict[K, Amounts], usage: Mapping[K, Amounts], sign: int, *, shares: bool) -> None:
    for key, amounts in usage.items():
        found = sums.setdefault(key, {})
        if shares:
            found = sums[key] = found.copy()
        for row, number in amounts.items():
            add_to(found, row, sign * number)
        if not found:
            del sums[key]


def _add_on(sums: dict[int, dict[K, int]], usage: Mapping[K, Amounts], sign: int, *, shares: bool) -> None:
    for key, amounts in usage.items():
        for row, number in amounts.items():
            found = sums.setdefault(row, {})
            if shares:
                found = sums[row] = found.copy()
            now = found.get(key, 0) + sign * number
            if now:
                found[key] = now
            else:
                found.pop(key, None)
            if not found:
                del sums[row]


def _drop(table: dict[K, dict[V, None]], key: K, one: V) -> None:
    found = table[key]
    del found[one]
    if not found:
        del table[key]


def _smallest(parts: Iterable[Amounts]) -> Amounts:
    found: Amounts = {}
    for part in parts:
        for row, most in part.items():
            found[row] = min(most, found.get(row, most))
    return found
