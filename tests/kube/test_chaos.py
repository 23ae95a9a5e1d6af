"""A cell on a real API server whose processes, connections and etcd break at the same time: no job is lost."""

from pathlib import Path

import pytest

from tests.chaos.fault import Setup
from tests.chaos.schedule import kinds_for
from tests.support.chaos_runs import see_nothing_lost
from tests.support.waiting import SLACK


@pytest.mark.timeout(600)
def test_every_acknowledged_job_is_accounted_for_whatever_breaks(tmp_path: Path) -> None:
    setup = Setup("kube", 1)
    kinds = see_nothing_lost(setup, rounds=5, timeout_s=SLACK * 550, folder=tmp_path)
    assert kinds == {kind.name for kind in kinds_for(setup)}, "with this seed each kind occurs in so many rounds"
