"""Gangs that wait for a decision, as snapshots hold them."""

from typing import NamedTuple

import msgspec

from berth.core.changes import Changes, Pods
from berth.schemas.pod_constraints import PodTerm


class SleeperDump(msgspec.Struct, array_like=True, frozen=True, order=True, gc=False):
    """A class of request that sleeps, known by one of its gangs."""

    uid: str
    retry_at_ms: int = 0
    never: bool = False
    """It is larger than the cluster: it waits for more nodes, and does not block other gangs."""
    by_any_change: bool = False
    """Any change of a node may help it, also one for the worse."""
    keys: tuple[str, ...] = ()
    """Of a gang that is held alone: keys of a rule that wake it; none: any news does."""


class ConstraintsDump(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What changed for constraints of pods since classes were woken last."""

    freed: list[str] = []
    """Nodes on which constraints may forbid less than before, by name."""
    moved: list[Pods] = []
    """Pods that came to some nodes or left some, in order."""
    repels_less: bool = False
    """A pod with a required anti-affinity left a node."""
    relabelled: bool = False
    """Nodes or namespaces came, went, or have other labels or taints."""
    terms: list[PodTerm] = []
    """Required anti-affinity terms that bear on pods and did not before, or do no longer, in the order of their
    text."""
    renamed: bool = False
    """Namespaces came, went, or have other labels."""
    taken: list[str] = []
    """Nodes on which constraints may forbid more than before, by name."""
    terms_taken: list[PodTerm] = []
    """Required anti-affinity terms of which some node has more pods than before, in the order of their text."""


class WaitingDump(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Gangs that wait for a decision, and the changes since classes were last woken, for snapshots."""

    known: list[str]
    """Gangs (uid) that wait and had a verdict in this epoch, ascending."""
    sleeping: list[SleeperDump]
    capacity_gained: list[str]
    """As in ``berth.core.changes.Changes``; names of nodes, ascending."""
    chips_taken: list[tuple[str, int]]
    """As there: names of nodes, ascending, with masks of chips."""
    leaf_opened: bool
    """As there."""
    time_ms: int = 0
    """Last tick of the dispatcher's clock among the facts."""
    held: list[SleeperDump] = []
    """Gangs that a rule keeps back, each with the time at which it is tried again, by uid."""
    queue_unblocked: bool = False
    """As in ``Changes``."""
    capacity_lost: bool = False
    """As there."""
    chips_returned: list[str] = []
    """As there; names of nodes, ascending."""
    nodes_changed: bool = False
    """As there."""
    constraints: ConstraintsDump | None = None
    """As there; None for nothing."""
    woken: list[str] = []
    """As there, ascending."""


class Loaded(NamedTuple):
    """Result of loading a snapshot."""

    changes: Changes
    """The gangs to examine. A scheduler of the state must be given them; it tries all waiting gangs again."""
    waiting: WaitingDump | None
    """Gangs that waited; None in a snapshot of a service that does not decide."""
