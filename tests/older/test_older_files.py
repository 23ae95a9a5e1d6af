"""Commands end with exit code 2 on a recording and a backup of 0.4, say what to do, and write nothing."""

from pathlib import Path

import pytest

from berth.cli.app import call
from berth.runtime.backups.checks import check_file
from berth.schemas.envelope import OlderVersionError
from tests.older.files import BACKUP, RECORDING

TOLD = "of version 1 was written by a release before 0.5, of which this one reads nothing: use that release"


@pytest.mark.parametrize(
    "words",
    [
        ["replay"],
        ["replay", "--salvage"],
        ["log"],
        ["explain", "job-1", "--log"],
        ["what-if", "--set", "queue_policy=easy"],
        ["page"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_recording_is_named_as_older(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cell.berthlog"
    file.write_bytes(RECORDING.read_bytes())
    assert call([*words, str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"{file}: recording.head {TOLD}" in err
    assert [path.name for path in tmp_path.iterdir()] == ["cell.berthlog"]


def test_a_backup_is_named_as_older_and_not_as_damaged() -> None:
    with pytest.raises(OlderVersionError, match=f"backup.head {TOLD}"):
        check_file(BACKUP)
