"""The file with the keys of pod marks."""

import stat
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.kubernetes.bound_pods import counted
from berth.formats.kubernetes.lean import Meta
from berth.runtime.config import ConfigError
from berth.runtime.keys.key_folder import KeysError
from berth.runtime.keys.mark_keys import make_mark_keys, marks_of, read_mark_keys

LOG = structlog.get_logger()
MARK = {"berth/uid": "u"}


def test_a_new_file_has_a_key_that_nobody_else_reads(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    assert make_mark_keys(path, replaces=False) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (key,) = read_mark_keys(path, field="f")
    assert len(key) == 32
    proved = Meta(uid="p", annotations=MarkProofs([key]).proved("p", MARK))
    assert counted(proved, marks_of(path, LOG)) is proved


def test_a_key_that_is_replaced_stays_behind_the_new_one_until_the_next(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    make_mark_keys(path, replaces=False)
    (first,) = read_mark_keys(path, field="f")
    assert make_mark_keys(path, replaces=True) == 2
    second, kept = read_mark_keys(path, field="f")
    assert kept == first != second
    make_mark_keys(path, replaces=True)
    assert read_mark_keys(path, field="f")[1:] == [second]


def test_a_key_is_never_lost_or_made_by_mistake(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    with pytest.raises(KeysError, match="is missing: make a key without --replace"):
        make_mark_keys(path, replaces=True)
    make_mark_keys(path, replaces=False)
    with pytest.raises(KeysError, match="exists: make a key with --replace"):
        make_mark_keys(path, replaces=False)


@pytest.mark.parametrize("text", ["", "\n", "abc\n", "0" * 63, "G" * 64, f"{'0' * 64}\n" * 3, "é" * 64])
def test_a_file_with_other_lines_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "marks"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match="64 hexadecimal digits") as error:
        marks_of(path, LOG)
    assert error.value.field == "marks_file"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="a file that can be read"):
            marks_of(path, LOG)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is no text"):
        marks_of(tmp_path / "bytes", LOG)


def test_without_a_file_the_log_says_once_that_marks_are_not_checked() -> None:
    with capture_logs() as logs:
        marks = marks_of(None, LOG)
    assert not marks.are_checked
    assert [line["event"] for line in logs] == ["marks of pods are not checked"]
