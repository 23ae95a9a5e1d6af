"""A cell on a real API server whose processes, connections and etcd break at the same time: no job is lost."""

from pathlib import Path

import pytest

from tests.chaos.fault import Setup
from tests.support.chaos_runs import see_nothing_lost


@pytest.mark.timeout(200)
def test_every_acknowledged_job_is_accounted_for_whatever_breaks(tmp_path: Path) -> None:
    kinds = see_nothing_lost(Setup("kube", 1), rounds=3, timeout_s=550, folder=tmp_path)
    assert kinds >= {"kill", "stop server", "isolated server", "partition one way", "loss", "cut", "stall"}
