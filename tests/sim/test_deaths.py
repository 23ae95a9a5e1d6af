"""Processes that die at fault points are counted, and die at rare ones."""

from collections import Counter
from types import SimpleNamespace

import pytest

from tests.sim.errors import Killed
from tests.sim.process import SimFaultPoints


class _Dying(SimpleNamespace):
    """As much of a process as fault points use."""

    is_dead = False
    died_at = ""

    def die(self, why: str) -> None:
        self.is_dead = True
        self.why = why


def test_the_first_process_that_passes_a_rare_point_dies() -> None:
    passed: Counter[str] = Counter()
    rare = {"mark.after"}
    first, second = _Dying(), _Dying()
    points = SimFaultPoints(first, passed, rare)  # type: ignore[arg-type]  # as much as it uses
    points.hit("mark.before")
    with pytest.raises(Killed):
        points.hit("mark.after")
    assert (first.is_dead, first.died_at, first.why) == (True, "mark.after", "at mark.after")
    SimFaultPoints(second, passed, rare).hit("mark.after")  # type: ignore[arg-type]  # as much as it uses
    assert not second.is_dead
    assert passed == {"mark.before": 1, "mark.after": 2}
