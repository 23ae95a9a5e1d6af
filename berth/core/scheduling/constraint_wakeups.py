"""Classes that constraints kept from starting, and that a change of pods, nodes or namespaces may help."""

from collections.abc import Callable, Mapping, Sequence

from berth.core.changes import Changes, ConstraintChanges
from berth.core.constraints.selectors import NamespaceLabels, PodKey, spread_selects, term_selects
from berth.core.gangs import Gang, WaitKey
from berth.core.scheduling.queue import Queue
from berth.core.state.cell import State
from berth.core.state.waiting_dump import ConstraintsDump
from berth.schemas.pod_constraints import PodProfile


def is_eased(changes: Changes) -> bool:
    """Whether changes may make constraints forbid less."""
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
        self._moved = [PodKey(*pods) for pods in eased.pods_moved]

    def helps(self, key: WaitKey) -> bool:
        """Whether the changes may help a class, apart from the rows on which something is free again."""
        if self._changes is None:
            return False
        profiles = [shape.profile for shape, _ in key.request_class if shape.profile is not None]
        if profiles and (self._changes.repulsion_eased or self._changes.topology_changed):
            return True
        if any(self._is_about(profile, pods) for profile in profiles for pods in self._moved):
            return True
        if not (self._changes.terms_changed or self._changes.namespaces_changed):
            return False
        return any(is_about_gang(self._changes, gang, self._namespaces) for gang in self._queue.of_class(key))

    def _is_about(self, profile: PodProfile, pods: PodKey) -> bool:
        """Whether a constraint of a pod selects some pods, also such as are no longer counted by spreads."""
        wanted = profile.constraints
        terms = (*wanted.affinity, *wanted.anti_affinity)
        seen = pods._replace(ending=False)
        return any(term_selects(term, pods, self._namespaces) for term in terms) or any(
            spread_selects(term, profile.namespace, seen) for term in wanted.spread
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
        repulsion_eased=dump.repels_less,
        topology_changed=dump.relabelled,
        terms_changed=dict.fromkeys(dump.terms),
        namespaces_changed=dump.renamed,
    )
