"""Recoveries: what a fault makes happen to one placed attempt, step by step, and their part of a status."""

from itertools import pairwise
from typing import Final, Literal

from berth.schemas.message import Part
from berth.schemas.placement import Placement
from berth.schemas.units import UnixMs

DRAIN: Final = "Drain"
"""Value of :attr:`Recovery.kind` for a node that is drained: its pods are evicted."""
PREEMPTED: Final = "Preempted"
"""Value of :attr:`Recovery.kind`: the gang ends for one of higher priority in its own queue."""
RECLAIMED: Final = "Reclaimed"
"""... for one whose queue gets back what the queue of this gang has borrowed."""
DISPLACED: Final = frozenset({PREEMPTED, RECLAIMED})
Scope = Literal["pod", "rank-block", "superpod", "level", "job"]
"""How much of a job leaves: the faulty pods, the blocks of ranks, logical SuperPoDs or groups of a level around them,
or the whole job."""
How = Literal["grace", "force", "mark", "place", "backup"]
"""``grace``: the pods are evicted with their own grace period; ``force``: they are deleted at once; ``mark``: they are
marked for another component, and nothing is deleted; ``place``: nothing is left to delete, only a place is given;
``backup``: a second pod of the rank gets a place, and nothing is deleted until a later step says so."""


class Recovery(Part, frozen=True):
    """One step of the recovery of an attempt.

    Ranks are those of the placement, ascending. A rank that leaves is released once its pod is gone; its new place is
    its own from this record on.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    step: int
    """Number of the step: 1, 2, ... for each attempt."""
    kind: str
    """Kind of the fault of the first faulty rank, such as ``CardUnhealthy``; of a ``place`` step that of the step
    before."""
    cause: str
    """What is broken, as one sentence."""
    scope: Scope
    how: How
    ranks: list[int]
    """Ranks that leave (``grace``, ``force``), are marked (``mark``) or get a place (``place``, ``backup``); never
    empty."""
    faulty: list[int]
    """Those of them that are faulty."""
    since_ms: UnixMs
    """Time of the first step of the recovery; a later fault of a gang that still recovers keeps it."""
    until_ms: UnixMs = 0
    """``grace``: pods that are still there at this time are deleted at once; 0: never, or they are already."""
    placement: Placement | None = None
    """Places of ``ranks``, in their order: its rank i is ``ranks[i]``; of ``job`` those that are kept for the next
    attempt. None: there are none yet, or none is kept."""
    retries_left: int = -1
    """How often failed pods may still restart the job after this step; -1: it does not count."""
    nodes: list[str] = []
    """Nodes of the faulty ranks, sorted; after ``job`` the new attempt avoids them if it can."""
    backups: list[str] = []
    """``backup``: uids of the backup pods, in the order of ``ranks``; none otherwise."""
    saves: bool = False
    """Agents in the containers are asked to save a checkpoint before the first pod is deleted."""
    for_job: str = ""
    """Job (namespace/name) for which it ends, or gives up ranks; empty for none."""

    def __post_init__(self) -> None:
        """Check that the ranks agree.

        Raises:
            ValueError: They are not ascending or none, a faulty one is not among them, there is not one place for each,
                or backup pod for each, or the step has no number.
        """
        if self.step < 1:
            raise ValueError(f"step: {self.step}, expected 1 or more")
        if not self.ranks or self.ranks[0] < 0 or any(a >= b for a, b in pairwise(self.ranks)):
            raise ValueError(f"ranks: {self.ranks}, expected at least one, ascending, from 0 on")
        if not set(self.faulty) <= set(self.ranks):
            raise ValueError(f"faulty: {self.faulty}, expected some of the ranks {self.ranks}")
        if self.placement is not None and self.placement.pods() != len(self.ranks):
            raise ValueError(f"placement: {self.placement.pods()} places for {len(self.ranks)} ranks")
        if len(self.backups) != (len(self.ranks) if self.how == "backup" else 0):
            raise ValueError(f"backups: {len(self.backups)} pods for {len(self.ranks)} ranks of a step {self.how!r}")


class HeldPlaces(Part, frozen=True):
    """Places that stay held for a job that starts anew as a whole, or the end of that.

    With ``ranks`` the attempt is released in the same record, and its places of these ranks stay the job's until it is
    placed again. Without, they are free.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    """The attempt that ends or has ended."""
    ranks: list[int] = []
    """Ascending."""
    until_ms: UnixMs = 0
    """Time at which they are free at the latest."""


class Awaited(Part, frozen=True):
    """An attempt that leaves, or ranks that it gives up."""

    uid: str
    attempt: int
    ranks: list[int] = []
    """Ranks that it gives up, ascending; empty: all of it leaves."""


class Reservation(Part, frozen=True):
    """A place of a gang that waits: it is its own from this record on, and it gets it once others have left."""

    namespace: str
    name: str
    uid: str
    attempt: int
    """The attempt that gets the place."""
    placement: Placement
    awaits: list[Awaited]
    """Attempts that leave, or give up ranks, and hold a part of it, sorted."""
    until_ms: UnixMs
    """Time at which it is free again at the latest."""
    queue: str = ""
    """Queue to which it is charged; empty where queues do nothing."""
    is_prolonged: bool = False
    """It was reserved before, and others did not leave in time."""


class BackupWaiting(Part, frozen=True):
    """A backup pod (hot switch) that has no place."""

    rank: int
    uid: str
    """The pod."""
    refusal: str = ""
    """Why no place was found for it; empty while none was sought."""


class RecoveryStatus(Part, frozen=True):
    """The newest recovery of a job."""

    step: int
    scope: Scope
    how: How
    kind: str
    """Kind of the fault, as in :class:`Recovery`."""
    cause: str
    ranks: list[int]
    faulty: list[int]
    since_ms: UnixMs
    until_ms: UnixMs = 0
    retries_left: int = -1
    nodes: list[str] = []
    attempt: int = 0
    """Attempt that recovers or has recovered; of ``job`` the attempt that ended."""
    placed: bool = False
    """Every rank of the attempt has a place."""
    open: list[int] = []
    """Ranks that still leave, or have no place or no bound pod as far as the ledger and its facts show, ascending;
    empty once the recovery is over."""
    placed_ms: UnixMs = 0
    """Time of the record since which every rank is at its place; 0: not yet."""
    held: list[int] = []
    """Ranks whose places stay held while the job starts anew as a whole, ascending."""
    held_until_ms: UnixMs = 0
    """Until when at the latest; 0 without."""
    unplaced: list[int] = []
    """Those of ``open`` whose pods are gone and that have no place, ascending."""
    refusal: str = ""
    """Why no places were found for them; empty while none were sought."""
    for_job: str = ""
    """Job (namespace/name) for which it ended, or gave up ranks; empty for none."""
    given_up: list[int] = []
    """Those of ``open`` that leave, or have left, for another job: they get places again once no job before this one
    waits for room; ascending."""
