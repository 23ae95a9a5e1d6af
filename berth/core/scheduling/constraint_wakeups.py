"""Classes that constraints kept from starting, and that a change of pods, nodes or namespaces may help."""

import functools
from collections.abc import Callable, Mapping, Sequence

from berth.core.changes import Changes, ConstraintChanges
from berth.core.constraints.checks import has_taken
from berth.core.constraints.selectors import NamespaceLabels, PodKey, spread_selects, term_selects
from berth.core.gangs import ClassKey, Gang, WaitKey
from berth.core.scheduling.queue import Queue
from berth.core.state.cell import State
from berth.core.state.waiting_dump import ConstraintsDump
from berth.schemas.pod_constraints import PodConstraints, PodProfile, PodTerm, SpreadTerm


def is_eased(changes: Changes) -> bool:
    """Whether changes may make constraints forbid less, or leave other nodes."""
    return changes.constraints != ConstraintChanges()


def is_about_gang(changes: ConstraintChanges, gang: Gang, namespaces: NamespaceLabels) -> bool:
    """Whether other required anti-affinity terms of other pods may bear on a gang than before."""
    if changes.namespaces_changed:
        return bool(gang.profiles)
    pods = [PodKey(profile.namespace, profile.labels) for profile in dict.fromkeys(gang.profiles)]
    return any(term_selects(term, pod, namespaces) for term in changes.terms_changed for pod in pods)


class ConstraintsEased:
    """What changes may make of constraints.

    Args:
        state: The cell.
        queue: The queue.
        changes: The changes.
    """

    def __init__(self, state: State, queue: Queue, changes: Changes) -> None:
        self._queue = queue
        eased = changes.constraints
        self.rows: Mapping[int, None] = eased.rows_freed
        """Rows on which a pod may fit that did not."""
        self._changes = eased if is_eased(changes) else None
        self._namespaces = state.constraints.namespaces
        self._moved = [PodKey(namespace, labels) for namespace, labels, _ in eased.pods_moved]
        self._view = state.constraints.view
        self._rows_taken = [row for row in eased.rows_taken if row < self._view.rows]
        self._closed: dict[PodConstraints, list[int]] = {}
        """Those of them that turn a pod away, by its constraints."""

    def helps(self, key: WaitKey) -> bool:
        """Whether the changes may help a class, apart from the rows on which something is free again."""
        if self._changes is None:
            return False
        profiles = [shape.profile for shape, _ in key.request_class if shape.profile is not None]
        if profiles and (self._changes.repulsion_eased or self._changes.topology_changed):
            return True
        if any(map(self._is_about, profiles)):
            return True
        if not (self._changes.terms_changed or self._changes.namespaces_changed):
            return False
        return any(is_about_gang(self._changes, gang, self._namespaces) for gang in self._queue.of_class(key))

    @functools.cached_property
    def _rows_full(self) -> list[int]:
        """Rows of which pods have taken something, and that take no further pod."""
        slots = self._view.usage.slots(self._view.rows) if self._rows_taken else None
        return [] if slots is None else [row for row in self._rows_taken if slots[row] <= 0]

    def rows_closed(self, request_class: ClassKey) -> list[int]:
        """Rows of which pods have taken something, and that for that take no pod of some shape of a class."""
        rows = self._rows_full
        for shape, _ in request_class if self._rows_taken else ():
            wanted = shape.profile.constraints if shape.profile is not None else None
            if wanted is not None and (wanted.ports or wanted.resources):
                rows = rows + self._rows_closed_to(wanted)
        return rows

    def _rows_closed_to(self, wanted: PodConstraints) -> list[int]:
        found = self._closed.get(wanted)
        if found is None:
            usage = self._view.usage
            found = self._closed[wanted] = [row for row in self._rows_taken if has_taken(usage, wanted, row)]
        return found

    def redirects(self, request_class: ClassKey) -> bool:
        """Whether pods that came or left change where pods of a class go, apart from what they take of their nodes.

        Pods that came may repel them from other nodes too. Because of either they may prefer another node.
        """
        for shape, _ in request_class if self._changes is not None else ():
            profile = shape.profile
            if profile is not None and (self._is_repelled(profile) or self._is_drawn(profile)):
                return True
        return False

    def _is_repelled(self, profile: PodProfile) -> bool:
        if self._changes is None or not (self._changes.terms_taken and profile.is_whole):
            return False
        pod = PodKey(profile.namespace, profile.labels)
        return any(term_selects(term, pod, self._namespaces) for term in self._changes.terms_taken)

    def _is_drawn(self, profile: PodProfile) -> bool:
        """Whether a preference of a pod selects some of the pods that came or left."""
        wanted = profile.constraints
        if not (wanted.preferred_near or wanted.preferred_apart or wanted.preferred_spread):
            return False
        terms = [preferred.term for preferred in (*wanted.preferred_near, *wanted.preferred_apart)]
        return self._selects(terms, wanted.preferred_spread, profile.namespace)

    def _is_about(self, profile: PodProfile) -> bool:
        """Whether a constraint of a pod selects some of them."""
        wanted = profile.constraints
        return self._selects((*wanted.affinity, *wanted.anti_affinity), wanted.spread, profile.namespace)

    def _selects(self, terms: Sequence[PodTerm], spread: Sequence[SpreadTerm], namespace: str) -> bool:
        """Whether a term selects some of the pods that came or left, also such as are no longer counted by spreads."""
        return any(term_selects(term, pods, self._namespaces) for term in terms for pods in self._moved) or any(
            spread_selects(term, namespace, pods) for term in spread for pods in self._moved
        )


def dump_changes(changes: ConstraintChanges, names: Sequence[str]) -> ConstraintsDump | None:
    """Changes as a snapshot holds them; None for none.

    Args:
        changes: The changes.
        names: Name of each row.
    """
    if changes == ConstraintChanges():
        return None
    return ConstraintsDump(
        freed=sorted(names[row] for row in changes.rows_freed),
        moved=sorted(changes.pods_moved),
        taken=sorted(names[row] for row in changes.rows_taken),
        terms_taken=sorted(changes.terms_taken, key=repr),
        repels_less=changes.repulsion_eased,
        relabelled=changes.topology_changed,
        terms=sorted(changes.terms_changed, key=repr),
        renamed=changes.namespaces_changed,
    )


def load_changes(dump: ConstraintsDump | None, row: Callable[[str], int]) -> ConstraintChanges:
    """Changes out of a snapshot; ``row`` is the row of a name."""
    if dump is None:
        return ConstraintChanges()
    return ConstraintChanges(
        rows_freed=dict.fromkeys(row(name) for name in dump.freed),
        pods_moved=dict.fromkeys(dump.moved),
        rows_taken=dict.fromkeys(row(name) for name in dump.taken),
        terms_taken=dict.fromkeys(dump.terms_taken),
        repulsion_eased=dump.repels_less,
        topology_changed=dump.relabelled,
        terms_changed=dict.fromkeys(dump.terms),
        namespaces_changed=dump.renamed,
    )
