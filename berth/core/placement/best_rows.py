"""Best rows of many shapes at one state: shapes that differ in little are scored once.

Shapes with other cpu and memory have the best rows of a pod that asks for neither, without the rows that have too
little of either. Shapes with other selectors, affinity and tolerations have the same best rows if all classes of nodes
say the same to them. So a gang with a thousand kinds of pods most often takes no longer to score than one with a few.
Nodes by reason are not counted.
"""

from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Ints, Longs
from berth.core.errors import guarded
from berth.core.placement.scoring import FAILED, Candidates, Scorer, unscored
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_MORE: Final = 2
"""Times as many rows are looked at as are asked for."""


class _Best(NamedTuple):
    """Best rows of a shape without cpu and memory, in total order."""

    rows: Longs
    scores: Ints
    is_all: bool
    """No further row fits."""
    fits: Fits
    """One mark a row, shape (rows,)."""
    lists: dict[int, tuple[list[int], list[int]]]
    """The first rows and scores as lists, by their number: most shapes have the same."""


class BestRows:
    """Candidates of shapes while the state stays as it is.

    Args:
        scorer: Scoring on the columns.
        without: Rows to leave out, shape (rows,); None leaves out no row.
    """

    def __init__(self, scorer: Scorer, without: Fits | None = None) -> None:
        self._scorer = scorer
        self._without = without
        self._best: dict[tuple[Shape, bytes], _Best] = {}
        """By what scores depend on beside cpu and memory: a shape without these and without what is asked of classes of
        nodes, and the reasons of the classes."""

    def candidates(self, shape: Shape, count: int) -> Candidates:
        """As :meth:`berth.core.placement.scoring.Scorer.candidates`."""
        return guarded(lambda: self._candidates(shape, count), unscored)

    def _candidates(self, shape: Shape, count: int) -> Candidates:
        table = self._scorer.table
        by_class = self._scorer.by_class(shape)
        if not (shape.chips or shape.share) or shape.names_nodes or FAILED in by_class:
            return self._scored(shape, count)  # without chips its score depends on cpu and memory
        best = self._best_of(shape, by_class.tobytes(), count)
        room = np.ones(len(best.rows), np.bool_)
        fits = best.fits.copy() if shape.needs_marks else None
        for need, left in ((shape.cpu_milli, table.cpu_free), (shape.memory_mib, table.memory_free)):
            if need:
                room &= left[best.rows] >= need
                if fits is not None:
                    fits &= left[table.view()] >= need
        if fits is not None and not count:
            return _uncounted([], [], exhausted=not fits.any(), fits=fits)
        found = np.flatnonzero(room)
        if len(found) <= count and not best.is_all:
            return self._scored(shape, count)
        if room[:count].all():
            rows, scores = self._first(best, min(count, len(room)))
        else:
            rows, scores = best.rows[found[:count]].tolist(), best.scores[found[:count]].tolist()
        return _uncounted(rows, scores, exhausted=len(found) <= count, fits=fits)

    def _scored(self, shape: Shape, count: int) -> Candidates:
        """Candidates of a shape that is scored by itself."""
        best = self._made(shape, count)
        rows, scores = best.rows[:count].tolist(), best.scores[:count].tolist()
        is_all = best.is_all and len(best.rows) <= count
        return _uncounted(rows, scores, exhausted=is_all, fits=best.fits if shape.needs_marks else None)

    def _best_of(self, shape: Shape, by_class: bytes, count: int) -> _Best:
        """Best rows of a pod of a shape that asks for neither cpu nor memory, more than ``count`` or all."""
        bare = msgspec.structs.replace(shape, cpu_milli=0, memory_mib=0)
        key = msgspec.structs.replace(bare, selector=(), affinity=(), tolerations=()), by_class
        found = self._best.get(key)
        if found is None or (len(found.rows) <= count and not found.is_all):
            found = self._best[key] = self._made(bare, _MORE * count)
        return found

    def _made(self, shape: Shape, count: int) -> _Best:
        """The best rows, ``count`` of them or one more, or all."""
        reasons, scores = self._scorer.evaluate(shape, self._without)
        fits: Fits = reasons == NodeReason.FITS
        if self._without is not None:
            fits &= ~self._without
        rows = np.flatnonzero(fits)
        key = (-scores[rows].astype(np.int64) << 32) | self._scorer.table.ranks()[rows]
        is_all = len(rows) <= count
        if not is_all:
            first = np.argpartition(key, count)[: count + 1]
            rows, key = rows[first], key[first]
        rows = rows[np.argsort(key)]  # no two are equal
        return _Best(rows, scores[rows], is_all, fits, {})

    def _first(self, best: _Best, count: int) -> tuple[list[int], list[int]]:
        found = best.lists.get(count)
        if found is None:
            found = best.lists[count] = best.rows[:count].tolist(), best.scores[:count].tolist()
        return found


def _uncounted(rows: list[int], scores: list[int], *, exhausted: bool, fits: Fits | None) -> Candidates:
    return Candidates(rows, scores, exhausted, total=0, fit=0, counts={}, fits=fits, is_counted=False)
