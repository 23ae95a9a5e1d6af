"""Label keys that selectors of the cell name: facts leave out all other labels of pods. Pure.

A key that nobody names any more is kept for a while, so that a selector that comes and goes does not publish everything
again.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from berth.schemas.pod_constraints import LabelSelector, PodConstraints

_SPARE_MAX: Final = 1024
"""Keys that are kept although nobody names them."""


class SelectorKeys:
    """Keys that selectors name, and whether there has been any selector."""

    def __init__(self) -> None:
        self._of: dict[Hashable, tuple[PodConstraints, ...]] = {}
        """Constraints of each user."""
        self._uses: Counter[PodConstraints] = Counter()
        """Users of each of them: pods of a controller have equal ones."""
        self._keys: Counter[str] = Counter()
        """How many of these constraints name a key; 0 for those that are spare."""
        self._spare: dict[str, None] = {}
        """Keys that nobody names any more, the one that has been so for longest first."""
        self.has_selectors = False
        """Some selector selects pods, if only all of them."""
        self.revision = 0
        """Rises when facts must contain more than before."""

    def note(self, user: Hashable, constraints: Iterable[PodConstraints | None]) -> None:
        """Note the selectors of a pod or a job.

        Args:
            user: The pod or the job: these constraints replace what it had before.
            constraints: All that it has; none once it is gone.
        """
        wanted = tuple(dict.fromkeys(one for one in constraints if one is not None))
        before = self._of.get(user, ())
        if wanted == before:
            return
        for one in wanted:
            self._add(one)
        for one in before:
            self._remove(one)
        if wanted:
            self._of[user] = wanted
        else:
            del self._of[user]

    def selectable(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that facts contain, sorted by key."""
        return {key: labels[key] for key in sorted(self._keys.keys() & labels.keys())}

    def _add(self, constraints: PodConstraints) -> None:
        self._uses[constraints] += 1
        if self._uses[constraints] > 1:
            return
        keys = _keys_of(constraints)
        has_selectors = self.has_selectors or any(True for _ in _selectors(constraints))
        if not keys.keys() <= self._keys.keys() or has_selectors != self.has_selectors:
            self.has_selectors = has_selectors
            self.revision += 1
        for key in keys:
            self._keys[key] += 1
            self._spare.pop(key, None)

    def _remove(self, constraints: PodConstraints) -> None:
        self._uses[constraints] -= 1
        if self._uses[constraints]:
            return
        del self._uses[constraints]
        for key in _keys_of(constraints):
            self._keys[key] -= 1
            if not self._keys[key]:
                self._spare[key] = None
        while len(self._spare) > _SPARE_MAX:
            oldest = next(iter(self._spare))
            del self._spare[oldest], self._keys[oldest]


def _keys_of(constraints: PodConstraints) -> dict[str, None]:
    return {expression.key: None for selector in _selectors(constraints) for expression in selector.expressions}


def _selectors(constraints: PodConstraints) -> Iterator[LabelSelector]:
    """Selectors of pods; one that selects nothing is left out."""
    terms = [*constraints.affinity, *constraints.anti_affinity]
    terms += [preferred.term for preferred in (*constraints.preferred_near, *constraints.preferred_apart)]
    spreads = (*constraints.spread, *constraints.preferred_spread)
    for selector in (*(term.selector for term in terms), *(spread.selector for spread in spreads)):
        if selector is not None:
            yield selector
