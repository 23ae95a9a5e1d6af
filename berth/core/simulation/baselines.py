"""Baselines: simple choices of nodes for comparison, without switch and SuperPoD affinity.

A baseline has the same queue, the same queue policy and the same rules for nodes and chips. Only the choice among the
nodes that fit differs. Gangs are not planned as a whole.
"""

from typing import Final, Literal, get_args

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.view import RowState
from berth.core.gangs import Gang
from berth.core.placement.scoring import Reasons, Scorer, Scores
from berth.core.scheduling.scheduler import Scheduler
from berth.core.simulation.pseudo_random import GOLDEN, MASK, mixed, mixed_one
from berth.core.state.cell import State
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

Baseline = Literal["random", "first-fit", "spread"]
BASELINES: Final[tuple[Baseline, ...]] = get_args(Baseline)
_FITS: Final = int(NodeReason.FITS)
_SCORE_SHIFT: Final = 34
"""The upper 30 bits of a mixed number are the score, which must fit into a signed 32-bit integer."""


class BaselineScorer(Scorer):
    """Scorer with the filters of Berth and the scores of a baseline.

    ``random``: a pseudo-random number for each round, node and set of free chips. ``first-fit``: equal scores, so that
    names decide. ``spread``: the node with most free chips.

    Args:
        state: The cell; the sequence of its last record is part of the seed.
        baseline: The baseline.
        seed: Seed of ``random``.
    """

    def __init__(self, state: State, baseline: Baseline, seed: int) -> None:
        super().__init__(state.table, state.shares, state.fold.settings)
        self._state = state
        self._baseline = baseline
        self._seed = seed

    def evaluate(self, shape: Shape, without: Fits | None = None) -> tuple[Reasons, Scores]:
        """Reason and score of every row."""
        reasons, _ = super().evaluate(shape, without)
        rows = self.table.view()
        free = self.table.free[rows]
        scores = np.zeros(len(reasons), np.int32)
        if self._baseline == "spread":
            scores = np.bitwise_count(free).astype(np.int32)
        elif self._baseline == "random":
            drawn = mixed(self.table.ranks().astype(np.uint64) + np.uint64(self._turn()))
            scores = (mixed(drawn ^ free) >> np.uint64(_SCORE_SHIFT)).astype(np.int32)
        return reasons, np.where(reasons == _FITS, scores, 0).astype(np.int32)

    def evaluate_one(self, shape: Shape, row: int, state: RowState, base: RowState | None = None) -> tuple[int, int]:
        """Reason and score of one row in a given state."""
        reason, _ = super().evaluate_one(shape, row, state, base)
        if reason or self._baseline == "first-fit":
            return reason, 0
        if self._baseline == "spread":
            return reason, state.free.bit_count()
        rank = int(self.table.ranks()[row])
        return reason, mixed_one(mixed_one((rank + self._turn()) & MASK) ^ state.free) >> _SCORE_SHIFT

    def _turn(self) -> int:
        """Seed of the current round."""
        return mixed_one((self._seed * GOLDEN + self._state.fold.head) & MASK)


class BaselineScheduler(Scheduler):
    """Scheduler with the choice of a baseline.

    Args:
        state: The cell.
        baseline: The baseline.
        seed: Seed of ``random``.
    """

    def __init__(self, state: State, baseline: Baseline, seed: int) -> None:
        self._baseline: Baseline = baseline
        self._seed = seed
        super().__init__(state)

    def new_scorer(self) -> Scorer:
        """Scorer of the baseline."""
        return BaselineScorer(self.state, self._baseline, self._seed)

    def gang(self, job: JobSeen, request: JobRequest, attempt: int) -> Gang:
        """Gang of a job without its switch and SuperPoD affinity."""
        gang = super().gang(job, request, attempt)
        request_class = tuple((_plain(shape), pods) for shape, pods in gang.request_class)
        return msgspec.structs.replace(gang, request_class=request_class)


def _plain(shape: Shape) -> Shape:
    return msgspec.structs.replace(shape, demand=None) if shape.is_planned else shape
