"""What facts and records change, as values.

What applies a fact or a record returns the changes that later decisions depend on. The scheduler merges them until a
turn consumes them, and merges them in again when the turn is taken back. The tables themselves carry no mark of a
change, so no reader has to clear one.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from berth.schemas.pod_constraints import PodTerm

JobKey = tuple[str, str]
"""(namespace, name)"""
Pods = tuple[str, tuple[tuple[str, str], ...], bool]
"""Pods that no selector distinguishes: namespace, labels, whether they are being deleted."""
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


class ConstraintChanges(msgspec.Struct, frozen=True, gc=False):
    """Changes of what constraints of pods depend on; without arguments none."""

    rows_freed: Mapping[int, None] = _EMPTY
    """Rows on which constraints may forbid less than before: a pod, a host port or a claim left, or a resource is
    free."""
    pods_moved: Mapping[Pods, None] = _EMPTY
    """Pods that came to some nodes or left some."""
    rows_taken: Mapping[int, None] = _EMPTY
    """Rows on which constraints may forbid more than before: a pod came, or took a host port or a resource, or a limit
    fell."""
    terms_taken: Mapping[PodTerm, None] = _EMPTY
    """Required anti-affinity terms of which some node has more pods than before."""
    repulsion_eased: bool = False
    """A pod with a required anti-affinity left a node, or one with a claim came or left."""
    topology_changed: bool = False
    """Nodes or namespaces came, went, or have other labels or taints."""
    terms_changed: Mapping[PodTerm, None] = _EMPTY
    """Required anti-affinity terms that bear on pods and did not before, or do no longer."""
    namespaces_changed: bool = False
    """Any such term may bear on other pods than before."""


_NO_CONSTRAINTS: Final = ConstraintChanges()
TOPOLOGY_CHANGED: Final = ConstraintChanges(topology_changed=True)


class Changes(msgspec.Struct, frozen=True, gc=False):
    """Changes of one or more facts and records; without arguments none.

    Rows are those of the node table. A mapping to None is a set that keeps the order in which its members came.
    """

    capacity_gained: Mapping[int, None] = _EMPTY
    """Rows of nodes that may take a pod that they could not take before: more free chips, cpu or memory, a better
    level, another class, SuperPoD or rack."""
    chips_taken: Mapping[int, int] = _EMPTY
    """Rows on which chips that were free are free no longer, with the mask of the chips that were free before. A node
    with more free chips than a product form has counts as another product, and ceases to. A network fault of a free
    chip counts as its loss."""
    chips_returned: Mapping[int, None] = _EMPTY
    """Rows on which chips became usable, whether or not pods hold them: healthy again, no longer withheld, or there
    again. This matters to pods that share chips, and so do chips that go: a node may list more of them than can be
    shared."""
    capacity_lost: bool = False
    """By the facts some node is less than it was: what is reserved on it may be reserved for nothing."""
    nodes_changed: bool = False
    """Some row of the node table changed, for the better or for the worse."""
    leaf_opened: bool = False
    """Some leaf switch may be open to more jobs than before."""
    queue_unblocked: bool = False
    """A gang that ran, slept or was held has left, and may have blocked gangs that are held."""
    jobs_changed: Mapping[JobKey, None] = _EMPTY
    """Jobs whose fact changed, or whose gang goes back to the queue."""
    pods_changed: Mapping[JobKey, None] = _EMPTY
    """Jobs whose pods or whose outcome of binding changed."""
    gangs_to_examine: Mapping[str, None] = _EMPTY
    """Gangs (uid) that may have to be evicted, released or adopted."""
    applied: int = 0
    """Facts and records that these changes come from, those without any change left out."""
    constraints: ConstraintChanges = _NO_CONSTRAINTS
    """What constraints of pods depend on."""
    woken: Mapping[str, None] = _EMPTY
    """Keys of rules that wake: gangs that sleep under one of them are tried again."""


NO_CHANGES: Final = Changes()


class ChangesBuilder:
    """Collects changes while one fact or record is applied, or while several changes are merged."""

    __slots__ = Changes.__struct_fields__

    def __init__(self) -> None:
        self.capacity_gained: dict[int, None] = {}
        self.chips_taken: dict[int, int] = {}
        self.chips_returned: dict[int, None] = {}
        self.capacity_lost = self.nodes_changed = self.leaf_opened = self.queue_unblocked = False
        self.jobs_changed: dict[JobKey, None] = {}
        self.pods_changed: dict[JobKey, None] = {}
        self.gangs_to_examine: dict[str, None] = {}
        self.applied = 0
        self.constraints = _NO_CONSTRAINTS
        self.woken: dict[str, None] = {}

    def add(self, changes: Changes) -> None:
        """Merge changes in."""
        if changes is NO_CHANGES:
            return
        self._add_nodes(changes)
        self.leaf_opened |= changes.leaf_opened
        self.queue_unblocked |= changes.queue_unblocked
        if changes.jobs_changed:
            self.jobs_changed.update(changes.jobs_changed)
        if changes.pods_changed:
            self.pods_changed.update(changes.pods_changed)
        if changes.gangs_to_examine:
            self.gangs_to_examine.update(changes.gangs_to_examine)
        self.applied += changes.applied
        if changes.constraints is not _NO_CONSTRAINTS:
            self.constraints = _both(self.constraints, changes.constraints)
        if changes.woken:
            self.woken.update(changes.woken)

    def _add_nodes(self, changes: Changes) -> None:
        self.nodes_changed |= changes.nodes_changed
        self.capacity_lost |= changes.capacity_lost
        if changes.capacity_gained:
            self.capacity_gained.update(changes.capacity_gained)
        for row, chips in changes.chips_taken.items():
            self.take_chips(row, chips)
        if changes.chips_returned:
            self.chips_returned.update(changes.chips_returned)

    def take_chips(self, row: int, chips: int) -> None:
        """Note that chips of a row are free no longer; ``chips`` is the mask of those that were free before."""
        self.chips_taken[row] = self.chips_taken.get(row, 0) | chips

    def build(self, *, applied: int = 0) -> Changes:
        """All that was collected; the builder must not be used afterwards.

        Args:
            applied: Facts and records that were applied, beside those of the changes that were merged in.
        """
        if not (
            self.nodes_changed
            or self.capacity_gained
            or self.capacity_lost
            or self.chips_taken
            or self.chips_returned
            or self.leaf_opened
            or self.queue_unblocked
            or self.jobs_changed
            or self.pods_changed
            or self.gangs_to_examine
            or self.applied
            or self.constraints is not _NO_CONSTRAINTS
            or self.woken
        ):
            return NO_CHANGES
        return Changes(
            self.capacity_gained,
            self.chips_taken,
            self.chips_returned,
            self.capacity_lost,
            self.nodes_changed,
            self.leaf_opened,
            self.queue_unblocked,
            self.jobs_changed,
            self.pods_changed,
            self.gangs_to_examine,
            self.applied + applied,
            self.constraints,
            self.woken,
        )


class ConstraintChangesBuilder:
    """Collects changes of what constraints depend on."""

    __slots__ = ConstraintChanges.__struct_fields__

    def __init__(self) -> None:
        self.rows_freed: dict[int, None] = {}
        self.pods_moved: dict[Pods, None] = {}
        self.rows_taken: dict[int, None] = {}
        self.terms_taken: dict[PodTerm, None] = {}
        self.terms_changed: dict[PodTerm, None] = {}
        self.repulsion_eased = self.topology_changed = self.namespaces_changed = False

    def add(self, changes: ConstraintChanges) -> None:
        """Merge changes in."""
        self.rows_freed.update(changes.rows_freed)
        self.pods_moved.update(changes.pods_moved)
        self.rows_taken.update(changes.rows_taken)
        self.terms_taken.update(changes.terms_taken)
        self.terms_changed.update(changes.terms_changed)
        self.repulsion_eased |= changes.repulsion_eased
        self.topology_changed |= changes.topology_changed
        self.namespaces_changed |= changes.namespaces_changed

    def build(self) -> Changes:
        """All that was collected; the builder must not be used afterwards."""
        found = ConstraintChanges(
            self.rows_freed,
            self.pods_moved,
            self.rows_taken,
            self.terms_taken,
            self.repulsion_eased,
            self.topology_changed,
            self.terms_changed,
            self.namespaces_changed,
        )
        return (
            NO_CHANGES if found == ConstraintChanges({}, {}, {}, {}, terms_changed={}) else Changes(constraints=found)
        )


def _both(one: ConstraintChanges, other: ConstraintChanges) -> ConstraintChanges:
    if one is _NO_CONSTRAINTS:
        return other
    found = ConstraintChangesBuilder()
    found.add(one)
    found.add(other)
    return found.build().constraints


def merged(parts: Iterable[Changes]) -> Changes:
    """Changes of several, as one value; the order of the parts does not matter to any decision."""
    some = [part for part in parts if part is not NO_CHANGES]
    if len(some) <= 1:
        return some[0] if some else NO_CHANGES
    found = ChangesBuilder()
    for part in some:
        found.add(part)
    return found.build()
