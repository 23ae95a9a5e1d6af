"""Candidates that are kept from turn to turn: a shape is scored once, and brought up to date when it is decided on.

Nodes that have changed since then are left out of what was kept and are scored again, as if they were the nodes of a
shard of their own; the two are merged as offers of shards are. So the candidates are those of the newest state, and a
round decides the same on them as on offers. Only nodes by reason are not counted again.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Longs
from berth.core.cluster.node_table import NodeTable
from berth.core.placement.best_rows import BestRows
from berth.core.placement.offers import merge
from berth.core.placement.scoring import Candidates, Scorer
from berth.schemas.offers import Shape


class _Kept(NamedTuple):
    asked: int
    """How many were asked for."""
    found: Candidates

    def is_enough(self, count: int) -> bool:
        """Whether the shape need not be scored: errors are not brought up to date."""
        return self.asked >= count and self.found.error is None


class KeptCandidates:
    """Candidates of some shapes.

    Args:
        scorer: Scoring on the columns of the cell.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._kept: dict[Shape, _Kept] = {}
        self._revision = 0
        """Of the table, when the oldest of them were scored."""

    def has_any(self, shapes: Iterable[Shape]) -> bool:
        """Whether candidates of one of the shapes are kept."""
        return any(shape in self._kept for shape in shapes)

    def __len__(self) -> int:
        return len(self._kept)

    def keep_only(self, shapes: Container[Shape]) -> None:
        """Forget the candidates of all other shapes."""
        self._kept = {shape: kept for shape, kept in self._kept.items() if shape in shapes}

    def score(self, asks: Mapping[Shape, int], candidates: Callable[[Shape, int], Candidates]) -> Iterator[Shape]:
        """Score, one by one, the shapes of which fewer candidates are kept than asked for.

        Args:
            asks: Candidates by shape.
            candidates: Scores a shape on all rows.

        Yields:
            Each of these shapes, before it is scored.
        """
        if not self._kept:
            self._revision = self.scorer.table.revision
        for shape, count in asks.items():
            kept = self._kept.get(shape)
            if kept is None or not kept.is_enough(count):
                yield shape
                self._kept[shape] = _Kept(count, candidates(shape, count))

    def now(self, without: Fits | None) -> Iterator[tuple[Shape, Candidates]]:
        """All shapes and their candidates, one by one. The state stays as it is until the last of them.

        Args:
            without: Rows of shards that do not answer, shape (rows,), the same as for those that are kept; None for no
                such row.
        """
        rows = self.scorer.table.changed_since(self._revision)
        if not len(rows):
            yield from ((shape, kept.found) for shape, kept in self._kept.items())
            return
        part = BestRows(self.scorer.part(rows), None if without is None else without[rows])
        joined = _Joined(self.scorer.table, rows)
        for shape, kept in self._kept.items():
            if not kept.is_enough(0):  # scored at this state
                yield shape, kept.found
            else:
                yield shape, joined.of(kept.found, part.candidates(shape, kept.asked))


class _Joined:
    """Joins candidates among rows that are as they were, and among rows that were scored again.

    Args:
        table: All rows.
        rows: Those that were scored again.
    """

    def __init__(self, table: NodeTable, rows: Longs) -> None:
        self._table = table
        self._rows = rows
        self._has_changed = np.zeros(len(table), np.bool_)
        self._has_changed[rows] = True
        self._last: tuple[Candidates, Candidates, Candidates] | None = None

    def of(self, kept: Candidates, again: Candidates) -> Candidates:
        """Candidates among all rows; they are not counted.

        Args:
            kept: Candidates of all rows as they were.
            again: Candidates of the rows that were scored again; a row is its place among them.
        """
        if again.error is not None:
            return again
        fits = None
        if kept.fits is not None and again.fits is not None:
            fits = np.zeros(len(self._table), np.bool_)
            fits[: len(kept.fits)] = kept.fits
            fits[self._rows] = again.fits
        last = self._last
        if last is not None and _are_alike(last[0], kept) and _are_alike(last[1], again):
            return last[2]._replace(fits=fits)
        stay = ~self._has_changed[kept.rows]
        old = kept._replace(
            rows=np.array(kept.rows, np.int64)[stay].tolist(),
            scores=np.array(kept.scores, np.int64)[stay].tolist(),
            fits=None,
        )
        new = again._replace(rows=self._rows[again.rows].tolist(), fits=None)
        found = merge(self._table, (old, new), missing_nodes=0)._replace(is_counted=False)
        self._last = kept, again, found
        return found._replace(fits=fits)


def _are_alike(one: Candidates, other: Candidates) -> bool:
    """Whether two have the same rows, other than marks; most often it is the same list."""
    return one.exhausted == other.exhausted and one.rows == other.rows and one.scores == other.scores
