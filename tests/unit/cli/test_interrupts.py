"""The first Ctrl-C ends commands that compute, read a file or stdin, or ask."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.process_state import process_state
from tests.support.waiting import SLACK, until

ASK: Final = """
import sys
from berth.cli.cell import run
from berth.cli.consent import ask_consent
sys.exit(run(lambda: ask_consent("Purge it", "berth purge --yes", yes=False)))
"""


async def started(*words: str, stdin: int = asyncio.subprocess.PIPE) -> asyncio.subprocess.Process:
    """Python as a shell starts it in the foreground, where SIGINT is not ignored."""
    return await asyncio.create_subprocess_exec(
        "/usr/bin/env", "--default-signal=INT", sys.executable, *words,
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    """Exit code and output of a process that ends."""
    try:
        async with asyncio.timeout(10 * SLACK):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        return None, out.decode(), err.decode()
    return process.returncode, out.decode(), err.decode()


async def reads(process: asyncio.subprocess.Process) -> None:
    """Wait until a process waits for input. A signal just before it does is only seen with the next one."""
    await until(lambda: process_state(process.pid) == "S", deadline_s=10, what="the process waits")


async def writer_of(pipe: Path) -> int:
    """The other end of a named pipe, once a process opens it to read."""
    found: list[int] = []

    def is_open() -> bool:
        try:
            found.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    await until(is_open, deadline_s=20, what=f"a reader of {pipe}")
    return found[0]


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--trace"),
        ("what-if", "--set", "queue_policy=easy"),
        ("replay",),
        ("page",),
        ("log",),
        ("explain", "train", "--log"),
        ("submit",),
    ],
    ids=lambda words: words[0],
)
async def test_a_command_that_reads_a_file_ends(words: Sequence[str], tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.csv")
    process = await started("-m", "berth.cli", *words, str(pipe))
    writer = await writer_of(pipe)
    try:
        await reads(process)
        process.send_signal(signal.SIGINT)
        assert await ended(process) == (130, "", "")
    finally:
        os.close(writer)


async def test_submit_ends_while_it_reads_stdin(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "first.yaml")
    process = await started("-m", "berth.cli", "submit", str(pipe), "-")
    os.close(await writer_of(pipe))  # it reads stdin next
    await reads(process)
    process.send_signal(signal.SIGINT)
    assert process.stdin is not None
    try:
        async with asyncio.timeout(10 * SLACK):
            assert await process.wait() == 130
    finally:
        process.stdin.close()
        await ended(process)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\x04", 1), ("", 130)])
async def test_a_question_takes_an_answer_or_ctrl_c(answer: str, code: int) -> None:
    here, there = pty.openpty()
    try:
        process = await started("-c", ASK, stdin=there)
        assert process.stderr is not None
        async with asyncio.timeout(10 * SLACK):
            assert await process.stderr.readuntil(b"[y/N] ") == b"Purge it? [y/N] "
        if answer:
            os.write(here, answer.encode())
        else:
            process.send_signal(signal.SIGINT)
        found, _, err = await ended(process)
        assert found == code
        assert ("nothing was changed" in err) == (code == 1)
        assert "Traceback" not in err
        assert os.get_blocking(there), "the shell has the same terminal"
    finally:
        os.close(here)
        os.close(there)
