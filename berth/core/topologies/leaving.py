"""Pods that leave a placed gang, and their own places."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from berth.core.gangs import Gang
from berth.core.pod_shares import PodShare, pods_of
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.recovery import Scope


class LeavingPods(NamedTuple):
    """Pods of a placed gang that get new places.

    Attributes:
        gang: The gang, of its request and the attempt that is placed.
        placement: Place of each of its ranks: the one that it has, or the one that is reserved for it.
        ranks: Ranks that get new places, ascending, at least one.
        faulty: Those of them that are faulty: their nodes are avoided.
        released: Ranks of the gang that own nothing any more. Those of ``ranks`` have no place to return to, others
            keep none.
        scope: What of the gang may move, for gangs with SuperPoD affinity or levels.
        steps: Number of levels by which the scope ``level`` grows around a lost pod.
        failed_nodes: Nodes that failed for the gang before; they are avoided like those of faulty pods.
        waited_ms: Scope ``job``: how long the gang has waited for the release of the nodes of its healthy pods; None:
            long enough.
        have_ended: The attempt has ended: constraints do not count its pods any more, and what the ranks own is held
            for the gang.
    """

    gang: Gang
    placement: Placement
    ranks: Sequence[int]
    faulty: Collection[int] = ()
    released: Collection[int] = ()
    scope: Scope = "pod"
    steps: int = 0
    failed_nodes: Collection[str] = ()
    waited_ms: int | None = None
    have_ended: bool = False


class Together(NamedTuple):
    """Which planned pods of a placed gang belong together.

    Attributes:
        rank_block: Ranks of a block of an Atlas 950 job; 0 or 1 without.
        superpods: Logical SuperPoD of each rank, -1 for none; empty without.
        levels: Number of pods that share a group, level 1 first; empty without.
        is_rack: It is an Atlas 950 job: process recovery goes up to its blocks of ranks.
    """

    rank_block: int = 0
    superpods: Sequence[int] = ()
    levels: tuple[int, ...] = ()
    is_rack: bool = False


class OwnPlaces:
    """Places that the pods of a gang have, and those to which leaving ones can return.

    Args:
        leaving: The leaving pods.
        row_of: Row of each known node.
        returns: Whether a rank can return to its chips on a row.

    Attributes:
        pods: What each rank of the gang owns, or the place reserved for it.
        shapes: Shape of each rank.
        staying: Ranks that keep their places, ascending.
        avoided_nodes: Nodes that new places avoid.
        avoided: Their rows.
        opened: Row of each rank whose place any pod of the gang may get.
    """

    def __init__(
        self, leaving: LeavingPods, row_of: Mapping[str, int], returns: Callable[[int, int, PodShare, Shape], bool]
    ) -> None:
        gang = leaving.gang
        self.pods: list[PodShare] = pods_of(leaving.placement)
        self.shapes: list[Shape] = [shape for shape, pods in gang.request_class for _ in range(pods)]
        moving = frozenset(leaving.ranks) | frozenset(leaving.released)
        self.staying = [rank for rank in range(len(self.pods)) if rank not in moving]
        self._row_of = row_of
        self._returns = returns
        faulty = [self.pods[rank].node for rank in sorted(leaving.faulty)]
        self.avoided_nodes = list(dict.fromkeys((*faulty, *sorted(leaving.failed_nodes))))
        self.avoided = frozenset(row_of[name] for name in self.avoided_nodes if name in row_of)
        self.opened: Mapping[int, int] = {}
        self._homes = {
            rank: row
            for rank in leaving.ranks
            if rank not in leaving.released
            and (row := self.row(rank)) >= 0
            and returns(rank, row, self.pods[rank], self.shapes[rank])
        }

    def row(self, rank: int) -> int:
        """Row of the node of a rank; -1 for an unknown node."""
        return self._row_of.get(self.pods[rank].node, -1)

    def open(self, *, planned_only: bool = True) -> None:
        """Let any pod of the gang get the places to which pods could return, or only planned ones."""
        self.opened = {
            rank: row for rank, row in self._homes.items() if self.shapes[rank].is_planned or not planned_only
        }
        self._homes = {rank: row for rank, row in self._homes.items() if rank not in self.opened}

    def could_return(self, rank: int) -> bool:
        """Whether a rank that keeps its place could return to it if it left."""
        row = self.row(rank)
        return row >= 0 and self._returns(rank, row, self.pods[rank], self.shapes[rank])

    def usable(self, rank: int) -> int | None:
        """Row to which a leaving rank can return with its own chips; None if it cannot."""
        return self._homes.get(rank)
