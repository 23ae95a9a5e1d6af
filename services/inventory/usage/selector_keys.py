"""Label keys that selectors of the cell name: facts leave out all other labels of pods. Pure.

The keys only grow while the inventory runs, so that a selector that comes and goes does not publish everything again.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from berth.schemas.pod_constraints import LabelSelector, PodConstraints

_KNOWN_MAX: Final = 4096
"""Constraints that are kept."""


class SelectorKeys:
    """Keys that selectors name, and whether there is any selector."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._known: set[PodConstraints] = set()
        """Constraints whose keys are noted, of the last ones: pods of a controller have equal ones."""
        self.has_selectors = False
        """Some selector selects pods, if only all of them."""
        self.revision = 0
        """Rises when facts must contain more than before."""

    def note(self, constraints: PodConstraints | None) -> None:
        """Note the selectors of a pod."""
        if constraints is None or constraints in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known.add(constraints)
        keys = {key for selector in _selectors(constraints) for key in _keys_of(selector)}
        has_selectors = self.has_selectors or any(True for _ in _selectors(constraints))
        if keys - self._keys or has_selectors != self.has_selectors:
            self._keys |= keys
            self.has_selectors = has_selectors
            self.revision += 1

    def selectable(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that facts contain, sorted by key."""
        return {key: labels[key] for key in sorted(self._keys & labels.keys())}


def _selectors(constraints: PodConstraints) -> Iterator[LabelSelector]:
    """Selectors of pods; one that selects nothing is left out."""
    terms = [*constraints.affinity, *constraints.anti_affinity]
    terms += [preferred.term for preferred in (*constraints.preferred_near, *constraints.preferred_apart)]
    spreads = (*constraints.spread, *constraints.preferred_spread)
    for selector in (*(term.selector for term in terms), *(spread.selector for spread in spreads)):
        if selector is not None:
            yield selector


def _keys_of(selector: LabelSelector) -> Iterator[str]:
    return (expression.key for expression in selector.expressions)
