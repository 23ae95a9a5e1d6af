"""The last commit of release 0.4 reads the streams of simulated cells, and this release what it writes."""

from pathlib import Path

import pytest

from tests.sim.errors import Failure
from tests.sim.older import Older, see_both_read, see_same_lock, streams_of


@pytest.mark.parametrize("seed", [1, 5])  # the first with claims that do not exist
@pytest.mark.timeout(300)
def test_an_older_release_reads_the_streams_and_is_read(tmp_path: Path, seed: int) -> None:
    older = Older(tmp_path)
    figures = see_both_read(older, seed)
    assert min(figures["records"], figures["facts"], figures["statuses"]) > 0


@pytest.mark.timeout(300)
def test_what_an_older_release_reads_otherwise_is_found(tmp_path: Path) -> None:
    older = Older(tmp_path)
    ledger = tmp_path / "berth" / "core" / "ledger.py"
    ledger.write_text(ledger.read_text("utf-8") + "\nraise ImportError('planted')\n", "utf-8")
    with pytest.raises(Failure, match="planted"):
        older.read(streams_of(9))


def test_a_release_that_locks_other_versions_is_refused(tmp_path: Path) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    older.write_text("msgspec==0.1 \\\n", "utf-8")
    newer.write_text("msgspec==0.2 \\\n", "utf-8")
    with pytest.raises(RuntimeError, match="environment of its own"):
        see_same_lock(older, newer)


def test_a_commit_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="0123456 is not in the history"):
        Older(tmp_path, "0123456")
