"""Services that are forked behave as processes that are started."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forks import ForkedProcess, Forker, Start
from tests.support.waiting import until

SERVER = ("http.server", "--bind", "127.0.0.1", "0")


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    made = Forker()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def forked(forker: Forker, log: Path, module: str, *words: str, **environment: str) -> ForkedProcess:
    return forker.start(Start(module, [*words], environment, str(log)))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(["2026", "11"], 0, "November 2026"), (["2026", "13"], 1, "IndexError"), (["x"], 2, "usage")],
)
def test_output_and_exit_code_are_those_of_the_program(
    forker: Forker, log: Path, words: list[str], code: int, said: str
) -> None:
    log.write_text("what was there\n")
    assert forked(forker, log, "calendar", *words).wait() == code
    assert log.read_text().startswith("what was there\n")
    assert said in log.read_text()


async def test_a_process_runs_in_a_session_of_its_own_until_a_signal_ends_it(forker: Forker, log: Path) -> None:
    process = forked(forker, log, *SERVER)
    await until(lambda: os.getsid(process.pid) == process.pid, deadline_s=10, what="a session of its own")
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait() == process.poll() == -signal.SIGKILL
    process.send_signal(signal.SIGKILL)


def test_the_environment_is_the_one_that_is_given(forker: Forker, log: Path) -> None:
    assert forked(forker, log, "berth.services.scorer", BERTH_GRACE_S="never").wait() == 2
    assert "grace_s" in log.read_text()


def test_cpu_time_is_counted_when_a_process_has_ended(forker: Forker, log: Path) -> None:
    before_s = forker.cpu_s
    forked(forker, log, "timeit", "-n", "3000000", "pass").wait()
    assert forker.cpu_s > before_s + 0.02


async def test_all_end_with_the_process_that_asked_for_them(log: Path) -> None:
    made = Forker()
    process = forked(made, log, *SERVER)
    made.close()
    await until(lambda: not Path(f"/proc/{process.pid}").exists(), deadline_s=10, what="its end")


def test_what_a_process_says_is_wrong_is_kept_apart_where_that_is_asked_for(forker: Forker, tmp_path: Path) -> None:
    out, errors = tmp_path / "out", tmp_path / "errors"
    assert forker.start(Start("calendar", ["x"], {}, str(out), str(errors))).wait() == 2
    assert (out.read_text(), "usage" in errors.read_text()) == ("", True)
