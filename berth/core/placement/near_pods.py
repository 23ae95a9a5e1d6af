"""Pods without chips of a gang whose other pods have chips: they are placed near those.

A node of the gang comes first, then a node in the same SuperPoD, or below the same leaf switch, as one of these, then
any other. In numbers, 20,000 or 10,000 is added to the score. Within each of these the better score wins, and of equal
ones the first name.

Nodes in one SuperPoD, or below one leaf and in no SuperPoD, are one domain, and belong to one shard. So if a shard does
not answer, none of its nodes is near a gang: the pods with chips are on nodes of shards that did.

See decision plain-pods.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final

from berth.core.cluster.domains import is_linked
from berth.core.cluster.node_table import NodeTable
from berth.core.placement.round_nodes import RoundNodes
from berth.schemas.offers import Shape

NODE_OF_GANG: Final = 20_000
"""Added to the score of a node on which the gang has pods with chips."""
DOMAIN_OF_GANG: Final = 10_000
"""Added to the score of the other nodes in the SuperPoD of such a node, or below its leaf switch."""


def neighbours(table: NodeTable, rows: Iterable[int]) -> dict[int, None]:
    """Rows in the SuperPoDs of some rows, or below their leaf switches, without these rows; by domain, then by name."""
    own = dict.fromkeys(rows)
    domains = sorted({table.domain_name(row) for row in own})
    found = (row for domain in domains if is_linked(domain) for row in table.rows_of_domain(domain))
    return {row: None for row in found if row not in own}


def near_bonus(table: NodeTable, rows: Iterable[int]) -> dict[int, int]:
    """What is added to the scores of nodes for pods without chips of a gang with chips on some rows, by row."""
    own = dict.fromkeys(rows)
    return dict.fromkeys(neighbours(table, own), DOMAIN_OF_GANG) | dict.fromkeys(own, NODE_OF_GANG)


class NearPods:
    """Chooses nodes near one gang, pod by pod.

    Args:
        nodes: Nodes as the round leaves them.
        rows: Rows on which the gang has pods with chips.
        is_full: Whether a row takes no further pod, whatever its shape.
    """

    def __init__(self, nodes: RoundNodes, rows: Iterable[int], is_full: Callable[[int], bool]) -> None:
        self._nodes = nodes
        self._is_full = is_full
        self._own = _Rows(nodes, dict.fromkeys(rows), is_full)
        self._around: _Rows | None = None

    def best(self, shape: Shape) -> int | None:
        """Row of the best node near the gang for one more pod without chips; None when none fits."""
        row = self._own.best(shape)
        if row is not None:
            return row
        if self._around is None:
            self._around = _Rows(self._nodes, neighbours(self._nodes.scorer.table, self._own.rows), self._is_full)
        return self._around.best(shape)

    def groups(self) -> list[list[int]]:
        """Rows near the gang, nearest first: those of its nodes, and those around them."""
        own = list(self._own.rows)
        return [own, list(neighbours(self._nodes.scorer.table, own))]


class _Rows:
    """Some rows, and the best of them for each shape."""

    def __init__(self, nodes: RoundNodes, rows: dict[int, None], is_full: Callable[[int], bool]) -> None:
        self.rows = rows
        self._is_full = is_full
        self._nodes = nodes
        self._heaps: dict[Shape, list[tuple[int, int, int, int]]] = {}
        """Rows that fit: negative score, rank of the name, row, revision of the row."""
        self._seen: dict[Shape, int] = {}
        """Entries of the log of touched rows that are in the heap of a shape."""

    def best(self, shape: Shape) -> int | None:
        """Row of the best node for one more pod; None when none fits."""
        nodes = self._nodes
        changed: Iterable[int] = self.rows
        if shape in self._heaps:
            changed = (row for row in dict.fromkeys(nodes.log[self._seen[shape] :]) if row in self.rows)
        heap = self._heaps.setdefault(shape, [])
        self._seen[shape] = len(nodes.log)
        scorer = nodes.scorer
        ranks, revisions = scorer.table.ranks(), nodes.revisions
        for row in changed:
            state = nodes.states.get(row)
            reason, score = scorer.evaluate_one(shape, row, scorer.row_state(row) if state is None else state)
            if not reason and not self._is_full(row):
                heapq.heappush(heap, (-score, int(ranks[row]), row, revisions.get(row, 0)))
        while heap and heap[0][3] != revisions.get(heap[0][2], 0):
            heapq.heappop(heap)
        return heap[0][2] if heap else None
