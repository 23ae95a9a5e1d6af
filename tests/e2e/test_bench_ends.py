"""A bench whose process ends early says so at once: which one, how, and what its log says last."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.ends import EndedError, nats_server, until_done, watched
from bench.processes import ROOT, Program
from tests.support.waiting import until

_LONG = "import time; time.sleep(600)"


def _program(folder: Path, code: str, name: str = "some service") -> Program:
    return Program(folder, name, ["-c", code])


async def test_a_wait_ends_with_the_process_that_it_depends_on(tmp_path: Path) -> None:
    async def bench() -> None:
        other = _program(tmp_path, _LONG, "other")
        other.start()
        try:
            _program(tmp_path, "print('no such setting'); raise SystemExit(3)").start()
            await asyncio.Event().wait()
        finally:
            other.kill()

    with pytest.raises(EndedError) as found:
        await watched(bench())
    assert str(found.value) == (
        "some service ended with exit code 3 before its bench was done with it; the end of its log:\nno such setting"
    )


async def test_what_follows_from_the_end_of_a_process_is_not_told_instead(tmp_path: Path) -> None:
    async def bench() -> None:
        program = _program(tmp_path, "raise SystemExit(4)")
        program.start()
        try:
            await until(lambda: program.end_text() is not None, deadline_s=20, what="its end")
            raise ValueError("nothing answers")
        finally:
            program.kill()

    with pytest.raises(EndedError, match=r"^some service ended with exit code 4 before .* its log is empty"):
        await watched(bench())


def test_a_process_that_the_bench_ends_is_no_error(tmp_path: Path) -> None:
    async def bench() -> str:
        program = _program(tmp_path, _LONG)
        for _ in range(2):
            program.start()
            program.kill()
        program.start()
        program.ask_to_stop()
        program.wait()
        await asyncio.sleep(0.3)  # longer than between two looks
        return "done"

    assert until_done(bench()) == "done"


async def test_an_error_of_the_bench_itself_is_told_as_it_is() -> None:
    async def bench() -> None:
        raise ValueError("an error")

    with pytest.raises(ValueError, match=r"^an error$"):
        await watched(bench())


async def test_the_end_of_its_server_ends_a_bench(tmp_path: Path) -> None:
    async def bench() -> None:
        async with nats_server(tmp_path) as server:
            await server.kill()
            await asyncio.Event().wait()

    with pytest.raises(EndedError, match=r"^nats-server ended before its bench was done with it; the end of its log"):
        await watched(bench())


def test_the_command_says_so_in_one_message_and_at_once(tmp_path: Path) -> None:
    package = tmp_path / "berth" / "services"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "dispatcher.py").write_text("raise SystemExit('this tree has no dispatcher')")
    command = [sys.executable, "-m", "bench", "restart", "--small", "--row", "alone", "--code", str(tmp_path)]
    began_s = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # ourselves
    assert (done.returncode, done.stdout) == (1, "")
    name, _, said = done.stderr.partition(" ended with exit code 1 before its bench was done with it; ")
    assert name.startswith("restart: dispatcher-")
    assert said == "the end of its log:\nthis tree has no dispatcher\n"
    assert time.perf_counter() - began_s < 30, "and not after the time that a placement may take"
