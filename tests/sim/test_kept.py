"""Kept results of seeds: a run goes on with them, unless the code has changed."""

from collections import Counter
from pathlib import Path

import pytest

from tests.sim import kept
from tests.sim.batch import Result
from tests.sim.kept import KeptError, KeptResults
from tests.sim.run import Lived


def test_clean_batches_are_found_again_and_failed_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "results"
    first = KeptResults(path)
    assert first.find([0, 1]) is None
    first.keep([0, 1], Result(Counter({"steps": 7, "event: job": 2}), [], 2, [3, 4]))
    first.keep([2, 3], Result(Counter({"steps": 9}), [Lived(2, [], 0, "wrong")], 2, [4, 5]))
    again = KeptResults(path)
    found = again.find([0, 1])
    assert found is not None
    assert (found.count, found.failed, found.seeds, found.steps) == (
        Counter({"steps": 7, "event: job": 2}),
        [],
        2,
        [3, 4],
    )
    assert found.count["event: other"] == 0
    assert again.find([2, 3]) is None


def test_results_of_other_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results"
    KeptResults(path)
    monkeypatch.setattr(kept, "code_digest", lambda: "0123456789abcdef")
    with pytest.raises(KeptError, match=r"was made with other code .*, now 0123456789abcdef"):
        KeptResults(path)


@pytest.mark.parametrize("text", ["", "{}", "seeds"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results"
    path.write_text(text, "utf-8")
    with pytest.raises(KeptError, match="is no file of results"):
        KeptResults(path)
