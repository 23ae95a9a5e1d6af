"""Compiled files of tests: one process makes them, and the others wait for it once."""

import threading
from pathlib import Path

from tests.support.compiled_files import FirstCompiler


def test_others_wait_until_the_first_one_has_compiled_and_later_runs_wait_for_nobody(tmp_path: Path) -> None:
    first, other = FirstCompiler("gw0", tmp_path), FirstCompiler("gw1", tmp_path)
    waiting = threading.Thread(target=other.wait)
    waiting.start()
    first.wait()
    other.finish()
    waiting.join(0.2)
    assert waiting.is_alive(), "only the first one says that all is compiled"
    first.finish()
    waiting.join(5)
    assert not waiting.is_alive()
    FirstCompiler("gw2", tmp_path).wait()


def test_a_process_that_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    FirstCompiler("", tmp_path).wait()


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    FirstCompiler("gw1", tmp_path).wait(longest_s=0.1)


def test_nothing_is_written_where_nothing_is_compiled(tmp_path: Path) -> None:
    FirstCompiler("gw0", tmp_path / "none").finish()
    assert not (tmp_path / "none").exists()
