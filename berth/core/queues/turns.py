"""Turns of leaf queues: from the root down, the branch that stands best, with what is given meanwhile."""

import heapq
import itertools
from collections.abc import Iterable, Mapping

from berth.core.queues.charges import Usage
from berth.core.queues.order import Rank, next_leaf, rank_of
from berth.core.queues.shares import Shares
from berth.schemas.queues.queue import ROOT


class LeafTurns:
    """Turns of the queues of a tree that have a gang to take. Queues that let no gang in come last, by name.

    Args:
        shares: Entitlements.
        usage: What queues hold; it stays as it is.
    """

    def __init__(self, shares: Shares, usage: Usage) -> None:
        self._shares = shares
        self._usage = usage.fork()
        self._below: dict[str, list[tuple[Rank, str]]] = {}
        """Heaps of the children of queues that have a gang to take, themselves or below."""
        self._others: list[str] = []
        """Queues that are no valid leaves, the first one last."""
        self._open: set[str] = set()

    def open(self, queues: Iterable[str]) -> None:
        """Begin with queues that may have a gang to take."""
        tree = self._shares.tree
        leaves = [name for name in queues if name in tree.paths and name not in tree.children]
        self._open = set(leaves)
        self._others = sorted(set(queues).difference(leaves), reverse=True)
        awake = {step for leaf in leaves for step in tree.paths[leaf]}
        self._below = {
            name: [(rank_of(self._shares, self._usage, child), child) for child in children if child in awake]
            for name, children in tree.children.items()
            if name in awake
        }
        for heap in self._below.values():
            heapq.heapify(heap)

    def next(self) -> str | None:
        """The queue that has the next turn; None without one."""
        if not self._open:
            return self._others[-1] if self._others else None
        if not self._shares.tree.differs.branch_priority:
            return next_leaf(self._shares, self._usage, self._open)
        name = ROOT
        while name in self._below:
            name = self._below[name][0][1]
        return name

    def took(self, queue: str, charge: Mapping[str, int]) -> None:
        """Count what the first gang of the queue that has its turn is charged."""
        if queue not in self._open:
            return
        self._usage.charge(queue, charge)
        path = self._shares.tree.paths[queue]
        for child, name in itertools.pairwise(path):
            heap = self._below[name]
            if heap[0][1] == child:  # in the order of the reference any may have its turn
                heapq.heapreplace(heap, (rank_of(self._shares, self._usage, child), child))

    def close(self, queue: str) -> None:
        """Note that the queue that has its turn has no further gang."""
        if queue not in self._open:
            self._others.remove(queue)
            return
        self._open.discard(queue)
        path = self._shares.tree.paths[queue]
        for child, name in itertools.pairwise(path):
            heap = self._below[name]
            heap[:] = [entry for entry in heap if entry[1] != child]
            heapq.heapify(heap)
            if heap:
                break
            del self._below[name]
