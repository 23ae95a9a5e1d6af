"""The command ``berth`` while it runs: its output so far, on a pipe or a terminal, and Ctrl-C."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.waiting import until


class Live:
    """A command that goes on: its output so far, and its end."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int | None) -> None:
        self.process = process
        self.out = ""
        self._terminal = terminal
        if terminal is not None:
            asyncio.get_running_loop().add_reader(terminal, self._read)

    def _read(self) -> None:
        assert self._terminal is not None
        try:
            self.out += os.read(self._terminal, 65_536).decode()
        except OSError:  # the process has closed the terminal
            asyncio.get_running_loop().remove_reader(self._terminal)

    async def lines(self, count: int) -> list[str]:
        """The next lines of a pipe."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            return [(await self.process.stdout.readline()).decode().rstrip("\n") for _ in range(count)]

    async def shows(self, text: str) -> None:
        await until(lambda: text in self.out, deadline_s=10, what=f"{text!r} on the terminal")

    async def interrupted(self) -> int:
        """Exit code after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return await self.ends()

    async def ends(self) -> int:
        """Its exit code, once it has ended."""
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def live(*words: str, url: str, cell: str, on_terminal: bool = False) -> AsyncIterator[Live]:
    """The command, with its output in pipes or on a terminal of 24 lines."""
    here, there = pty.openpty() if on_terminal else (None, asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(  # a shell lets what it starts in the background ignore Ctrl-C
        "/usr/bin/env", "--default-signal=INT", "TERM=xterm", "COLUMNS=100", "LINES=24", sys.executable, "-m", "berth.cli", *words,
        "--url", url, "--cell", cell, stdin=asyncio.subprocess.DEVNULL, stdout=there, stderr=there,
    )  # fmt: skip
    if here is not None:
        os.close(there)
    found = Live(process, here)
    try:
        yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if here is not None:
            asyncio.get_running_loop().remove_reader(here)
            os.close(here)
