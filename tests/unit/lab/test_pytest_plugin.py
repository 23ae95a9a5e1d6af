"""Recordings in tests of others: the option, the fixtures, and what they cost those who do not use them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recordings import decision, file_of, history, tick

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "tests" / "replay" / "v0.5" / "refusals.berthlog"
TEST = """
def test_a_log_replays(berth_log, berth_replay):
    outcome = berth_replay(berth_log)
    assert outcome.is_identical, "\\n".join(outcome.lines)
"""


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with the test of a user."""
    pytester.makepyfile(TEST)
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def test_a_test_runs_once_for_each_recording(inner: pytest.Pytester) -> None:
    other = RECORDING.with_name("restarts.berthlog")
    done = inner.runpytest_subprocess("-v", f"--berth-log={RECORDING}", f"--berth-log={other}")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*[[]refusals.berthlog[]] PASSED*", "*[[]restarts.berthlog[]] PASSED*"])


def test_without_a_recording_it_is_skipped_in_words(inner: pytest.Pytester) -> None:
    done = inner.runpytest_subprocess("-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*no recording: name one with --berth-log FILE*"])


def test_a_recording_that_differs_fails_the_test_with_the_difference(inner: pytest.Pytester) -> None:
    entries = [tick(1), decision(1, 1), decision(2, 1)]
    (inner.path / "empty.berthlog").write_bytes(file_of(entries))
    done = inner.runpytest_subprocess("--berth-log=empty.berthlog")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*difference at record 2: round 1 of epoch 1*", "*replayed: nothing was to be decided*"])


def test_a_file_that_is_not_there_is_told_before_anything_runs(inner: pytest.Pytester) -> None:
    done = inner.runpytest_subprocess("--berth-log=gone.berthlog")
    assert done.ret in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED}
    done.stdout.fnmatch_lines(["*--berth-log: no such file: gone.berthlog*"])


def test_settings_of_a_replay_are_those_of_the_command(pytester: pytest.Pytester) -> None:
    (pytester.path / "cut.berthlog").write_bytes(file_of(history([1], facts=3))[:-4])
    pytester.makepyfile(
        """
        import pytest
        from berth.formats.recordings.recording import RecordingError

        def test_salvage(berth_replay):
            with pytest.raises(RecordingError, match="cut off"):
                berth_replay("cut.berthlog")
            outcome = berth_replay("cut.berthlog", salvage=True, to_end=False)
            assert "cut off" in outcome.damage
            assert not outcome.is_identical
            assert any("cut off" in line for line in outcome.lines)
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_who_does_not_use_it_loads_nothing_of_berth() -> None:
    code = "import berth.lab.pytest_plugin, sys; print([name for name in sys.modules if name.startswith(('berth.', 'schemas', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603  # ourselves
    assert done.stdout.strip() == "['berth.lab', 'berth.lab.pytest_plugin']"
