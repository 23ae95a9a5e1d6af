"""Texts that UTF-8 cannot hold, given to commands: refused in one line with place, value and what would be right."""

from pathlib import Path

import pytest

from berth.cli.app import call

MANIFEST = """
apiVersion: berth.dev/v1
kind: Job
metadata:
  name: a
  labels: {team: "x\\ud800"}
spec: {}
"""


@pytest.mark.parametrize("text", [MANIFEST, '{"kind": "Job", "metadata": {"labels": {"team": "x\\ud800"}}}'])
def test_a_manifest_with_half_a_surrogate_pair_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    for words in (["submit", str(file)], ["submit", "--json", str(file)]):
        assert call(words) == 1
        out, err = capsys.readouterr()
        said = (out + err).replace("\\\\", "\\")
        assert "metadata.labels.team" in said
        assert "'x\\ud800'" in said
        assert "text without half a surrogate pair" in said
        assert "fault of Berth" not in said


@pytest.mark.parametrize(
    "words", [["cancel", "a\udcff"], ["submit", "\udcff.yaml"], ["nodes", "--cell", "c\udcff"], ["log", "--\ud800"]]
)
def test_an_argument_that_is_not_utf8_is_wrong_use(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: argument {len(words)} is {words[-1]!r}, expected text without half a surrogate pair")
    assert err.count("\n") == 1
