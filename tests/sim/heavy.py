"""Heavy gangs in a simulation: gangs of many different tasks, which take several rounds to score.

Simulated clusters are small, so fewer tasks make a gang heavy than in a real one, and scoring takes time of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from berth.core.placement import round_demand
from berth.core.placement.kept_candidates import KeptCandidates
from berth.core.placement.scoring import Candidates
from berth.schemas.offers import Shape
from tests.sim.loop import SimLoop

TASKS: Final = (17, 18, 24)
"""Tasks of a heavy gang, of a pod each, all different."""
_WORK_LEAST: Final = 20_000
"""Work above which a gang of more than ``SHAPES_LEAST`` shapes is heavy: each of :data:`TASKS` is, on any cluster."""


@contextmanager
def heavy_gangs(loop: SimLoop, shape_s: float) -> Iterator[None]:
    """Let gangs of :data:`TASKS` be heavy.

    Args:
        loop: The simulation.
        shape_s: How long it takes to score one of their shapes, in virtual time.
    """
    score = KeptCandidates.score

    def slow(
        self: KeptCandidates, asks: Mapping[Shape, int], candidates: Callable[[Shape, int], Candidates]
    ) -> Iterator[Shape]:
        for shape in score(self, asks, candidates):
            loop.now_s += shape_s
            yield shape

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(round_demand, "_WORK_LEAST", _WORK_LEAST)
        patch.setattr(KeptCandidates, "score", slow)
        yield
