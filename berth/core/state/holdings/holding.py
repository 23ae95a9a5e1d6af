"""Holding: what an attempt of a gang owns, rank by rank, and the places that are reserved for it."""

from collections.abc import Iterable

import msgspec

from berth.core.pod_shares import PodShare, pods_at, pods_of
from berth.core.state.holdings.moves import Move
from berth.schemas.placement import ClaimVolume, Placement, Run
from berth.schemas.queues.queue import DEFAULT


class Holding(msgspec.Struct, gc=False, omit_defaults=True):
    """Chips, cpu and memory that an attempt of a gang owns."""

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    """Newest place of each rank; a rank that leaves is still at its old one."""
    ledger_seq: int
    at_ms: int
    ending: str = ""
    """Why its pods are being deleted; empty while they may run."""
    foreign: bool = False
    """Adopted: placed by another scheduler."""
    gone: list[int] = []
    """Ranks that have given back what they owned, ascending."""
    step: int = 0
    """Newest step of its recovery; 0: it never recovered."""
    moves: list[Move] = []
    """Steps that are not over, ascending; while it ends only those of backup pods, and the one with which it ends if
    places are reserved for the next attempt."""
    unplaced: list[int] = []
    """Ranks of ``gone`` that wait for a new place, ascending; the others are gone for good, or given up."""
    given_up: list[int] = []
    """Ranks of ``gone`` that left for another gang while the rest runs on, ascending: they get places again once no
    work before them waits for room."""
    step_ms: int = 0
    """Time of the newest step with which pods left."""
    freed_ms: int = 0
    """Time of the last release of ranks after a step."""
    steps: dict[int, int] = {}
    """Step that gave a rank its place, by rank; the others have that of the verdict."""
    switched: dict[int, str] = {}
    """Backup pod (uid) that took a rank over last, by rank."""
    queue: str = ""
    """Queue to which it is charged; empty if queues did nothing when it was placed."""

    def __post_init__(self) -> None:
        """Check that what was given back was there.

        Raises:
            ValueError: The placement does not have a rank that was given back.
        """
        if self.gone and not 0 <= min(self.gone) <= max(self.gone) < self.placement.pods():
            raise ValueError(f"gone: {self.gone}, the placement has {self.placement.pods()} ranks")

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the decision."""
        return (self.uid, self.attempt)

    @property
    def recovers(self) -> bool:
        """Whether a recovery is not over: ranks leave, or have no place."""
        return bool(self.unplaced) or any(move.how != "backup" and not move.is_restart for move in self.moves)

    def step_of(self, rank: int) -> int:
        """Step that gave a rank its place; 0: the verdict did."""
        return self.steps.get(rank, 0)

    def leaving(self) -> dict[int, int]:
        """Ranks whose pods are being deleted for a fault, and the step that deletes them."""
        return {rank: move.step for move in self.moves for rank in move.leaving}

    @property
    def charged_queue(self) -> str:
        """Queue to which it is charged; empty for pods of another scheduler that name none."""
        return self.queue or ("" if self.foreign else DEFAULT)

    def giving_up(self) -> list[int]:
        """Ranks that leave for another gang while the rest runs on, ascending."""
        return sorted(rank for move in self.moves if move.gives_up for rank in move.leaving)

    def backups(self) -> dict[int, Move]:
        """Ranks for whose backup pods places are reserved, and the steps that did it."""
        return {rank: move for move in self.moves if move.how == "backup" for rank in move.placed}

    def reserved(self) -> dict[int, PodShare]:
        """Places that ranks get once they have left their old ones, by rank; without those of ranks that return.

        A rank that gets the place back that it leaves owns it all the time.
        """
        found: dict[int, PodShare] = {}
        for move in self.moves:
            if move.placement is not None and move.placed:
                owned = pods_at(self.placement, set(move.placed).difference(self.gone))
                shares = dict(zip(move.ranks, pods_of(move.placement), strict=True))
                found.update((rank, shares[rank]) for rank in move.placed if shares[rank] != owned.get(rank))
        return found

    def claims(self) -> list[tuple[ClaimVolume, str]]:
        """Claims that are bound before its pods are, and the node from which each is used."""
        names = self.placement.names() if self.placement.claims else []
        found = [(claim, names[claim.rank]) for claim in self.placement.claims]
        for move in self.moves:
            if move.placement is not None and move.placement.claims:
                moved = self.reserved()
                names = move.placement.names()
                placed = [claim for claim in move.placement.claims if move.ranks[claim.rank] in moved]
                found += [(claim, names[claim.rank]) for claim in placed]
        return found


def chips_in(runs: Iterable[Run]) -> int:
    """Chips of all pods of a gang."""
    return sum(run.pods * run.chips for run in runs)


def owned_by(holding: Holding) -> list[PodShare]:
    """What each rank of a held attempt owns, in rank order; a rank that gave it back owns nothing of its node.

    Reserved places are not among it.
    """
    pods = pods_of(holding.placement)
    for rank in holding.gone:
        pods[rank] = PodShare(pods[rank].node, 0, (), 0, 0, pods=0)
    return pods
