"""Log files that are put aside while a process goes on writing."""

import subprocess
import sys
from pathlib import Path

import pytest

from berth.lab.servers.log_files import put_aside


def names(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def test_a_small_file_and_a_missing_one_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    assert not put_aside(path, size_max_bytes=10)
    path.write_bytes(b"123456789")
    assert not put_aside(path, size_max_bytes=10)
    assert names(tmp_path) == {"x.log": 9}


def test_so_many_are_kept_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for size in range(10, 16):
        path.write_bytes(b"x" * size)
        assert put_aside(path, size_max_bytes=10, kept=3)
    assert names(tmp_path) == {"x.log": 0, "x.log.1": 15, "x.log.2": 14, "x.log.3": 13}


def test_a_process_goes_on_at_the_new_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with path.open("ab") as log:
        writer = subprocess.Popen(
            [sys.executable, "-c", "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)"],
            stdin=subprocess.PIPE,
            stdout=log,
            text=True,
        )
    assert writer.stdin is not None
    writer.stdin.write("first\n")
    writer.stdin.flush()
    while not path.stat().st_size:  # the process has no event to wait for
        assert writer.poll() is None
    assert put_aside(path, size_max_bytes=1)
    writer.communicate("second\n", timeout=30)
    assert (tmp_path / "x.log.1").read_text() == "got first\n"
    assert path.read_text() == "got second\n"


def test_without_room_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"x" * 10)
    (tmp_path / "x.log.0").mkdir()  # as if no file could be made there
    with pytest.raises(OSError, match="directory"):
        put_aside(path, size_max_bytes=10)
    assert path.stat().st_size == 10
