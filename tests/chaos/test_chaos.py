"""A cell of real processes and three nats-servers that break at the same time: no job is lost, and none is doubled."""

from pathlib import Path

import pytest

from tests.chaos.fault import Setup
from tests.chaos.schedule import kinds_for
from tests.support.chaos_runs import chaos, see_nothing_lost


@pytest.mark.timeout(150)
def test_every_acknowledged_job_is_accounted_for_whatever_breaks(tmp_path: Path) -> None:
    setup = Setup("bus", 3)
    kinds = see_nothing_lost(setup, rounds=5, timeout_s=400, folder=tmp_path)
    assert kinds == {kind.name for kind in kinds_for(setup)}, "with this seed each kind occurs in so many rounds"


def test_a_cell_or_a_fault_that_does_not_exist_is_told(tmp_path: Path) -> None:
    wrong = chaos("--cells", "moon-2", timeout_s=60, folder=tmp_path)
    assert (wrong.code, wrong.text) == (
        2,
        "cell moon-2 is unknown: expected kube-1, bus-3, kube-3, bus-1, separated by commas\n",
    )
    wrong = chaos("--cells", "bus-1", "--faults", "kill,earthquake", timeout_s=60, folder=tmp_path)
    assert wrong.code == 2
    assert wrong.text.startswith("fault earthquake is unknown: there are kill, ")
