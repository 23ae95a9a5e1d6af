"""Commands of the pages: found, and run as a reader would run them.

In a block of kind ``console`` a line that starts with ``$`` is a command; what follows until the next one is
its output, in which ``...`` stands for anything. A command without a shown output may print anything. It must succeed,
unless the shown output is an error or ``echo $?`` follows it. The commands of a page run one after the other in a
folder that looks like the tree, with a free port in place of 4222.

A busy machine is given more time than a reader's: ``berth up`` has a free port for its page and waits longer for its
scorers, ``berth submit`` waits longer for verdicts.

A comment ``<!-- Ctrl-C: COMMAND -->`` stops what a page started in another terminal.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.waiting import SLACK, until

ROOT: Final = Path(__file__).parents[2]
PORT_ON_PAGES: Final = "4222"
_FENCE: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1``` *$|<!-- Ctrl-C: (.+?) -->", re.DOTALL | re.MULTILINE)
_COMMAND_S: Final = 60.0 * SLACK
_VERDICT_S: Final = 50
_GATHER_S: Final = 20
_READY: Final = {
    "berth up": "Ctrl-C stops everything.",
    "nats-server": "Server is ready",
    "python -m berth.services.dispatcher": "became leader",
    "python -m berth.services.api": '"ready"',
}
"""Commands that go on until Ctrl-C, and what they print when they can be used."""
_IN_TREE: Final = ("docs", "k8s", "schemas", "compose.yaml", "Dockerfile", "Makefile", "pyproject.toml")


class Shown(NamedTuple):
    """A command on a page.

    Attributes:
        command: As it is typed; empty for Ctrl-C.
        output: As the page shows it; empty if it shows none.
        stopped: What Ctrl-C stops.
    """

    command: str
    output: str
    stopped: str = ""


class Block(NamedTuple):
    """A block of commands.

    Attributes:
        line: Number of its first line.
        kind: Info string of the fence.
        shown: Its commands in order.
    """

    line: int
    kind: str
    shown: list[Shown]


def blocks_of(text: str) -> list[Block]:
    """Blocks of a page that have commands, in order."""
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[4]:
            found.append(Block(line, "console", [Shown("", "", match[4])]))
            continue
        body = textwrap.dedent(match[3])
        if match[2] == "console" or re.search(r"^\$ ", body, re.MULTILINE):
            found.append(Block(line, match[2], _shown(body)))
    return found


def _shown(body: str) -> list[Shown]:
    lines = body.splitlines()
    found: list[Shown] = []
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            if found:
                found[-1] = found[-1]._replace(output=f"{found[-1].output}{line}\n")
            continue
        command = line.removeprefix("$ ")
        while lines and not _is_complete(command):
            command += "\n" + lines.pop(0).removeprefix("> ")
        found.append(Shown(command, ""))
    return found


def _is_complete(command: str) -> bool:
    """Whether a shell would wait for no further line."""
    checked = subprocess.run(  # noqa: S603  # it only parses
        ["/bin/bash", "-n", "-c", command], stderr=subprocess.PIPE, text=True, check=False
    )
    return checked.returncode == 0 and "here-document" not in checked.stderr and not command.endswith("\\")


def agrees(shown: str, printed: str) -> bool:
    """Whether an output is the shown one; ``...`` stands for anything, on a line of its own also for no line."""
    lines = [line.rstrip() for line in shown.rstrip().splitlines()]
    pattern = ""
    for number, line in enumerate(lines):
        is_last = number == len(lines) - 1
        if line.strip() == "...":
            pattern += r"(?s:.*)" if is_last else r"(?:(?s:.*)\n)?"
        else:
            pattern += r"(?s:.*)".join(re.escape(part) for part in line.split("...")) + ("" if is_last else r"\n")
    found = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, found) is not None


class Terminal:
    """Runs commands one after the other; folder and variables stay as in one shell.

    Args:
        folder: Empty; made to look like the tree.
        port: Used in place of 4222.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._port = str(port)
        self._state = folder.with_name(f"{folder.name}.state")
        self._code = 0
        self._running: dict[str, tuple[asyncio.subprocess.Process, Path]] = {}
        folder.mkdir()
        for name in _IN_TREE:
            (folder / name).symlink_to(ROOT / name)
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        (folder / "home").mkdir()
        own = Path(sys.executable).parent
        for name in ("python", "nats-server", "pytest"):
            _script(programs / name, f'exec {shlex.quote(str(own / name))} "$@"')
        real = f"{shlex.quote(sys.executable)} -m berth.cli"
        up = f"/usr/bin/env BERTH_GATHER_TIMEOUT_S={_GATHER_S} {real} up --port {port} --page-port 0"
        longer = "".join(
            f'if [ "$1" = {name} ]; then shift; exec {command} "$@"; fi\n'
            for name, command in (("up", up), ("submit", f"{real} submit --timeout {_VERDICT_S}"))
        )
        _script(programs / "berth", f'{longer}exec {real} "$@"')
        _script(programs / "nats", f'exec {shlex.quote(sys.executable)} -m tests.support.nats_request "$@"')
        variables = {
            "PATH": f"{programs}:{own}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT),
            "BERTH_NATS_URL": f"nats://127.0.0.1:{port}",
            "BERTH_BUS__URL": f"nats://127.0.0.1:{port}",
        }
        self._state.write_text("".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items()))
        self._where = folder.with_name(f"{folder.name}.where")
        self._where.write_text(str(folder))

    async def run(self, shown: Shown, *, may_fail: bool) -> None:
        """Run a command and compare its output with the shown one."""
        if shown.stopped:
            await self._stop(shown.stopped)
            return
        ready = [text for words, text in _READY.items() if _bare(shown.command).startswith(words)]
        if ready:
            printed = await self._start(shown.command, ready[0])
            code = 0
        else:
            code, printed = await self._finish(shown.command)
        printed = printed.replace(f"127.0.0.1:{self._port}", f"127.0.0.1:{PORT_ON_PAGES}")
        is_error = shown.output.startswith("error")
        assert code == 0 or may_fail or is_error, f"exit code {code} of: {shown.command}\n{printed}"
        assert not shown.output.strip() or agrees(shown.output, printed), (
            f"output of: {shown.command}\n--- shown\n{shown.output}\n--- printed\n{printed}"
        )

    async def close(self) -> None:
        """Stop what runs."""
        for process, _ in reversed(list(self._running.values())):
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            async with asyncio.timeout(_COMMAND_S):
                await process.wait()

    def _line(self, command: str) -> list[str]:
        command = command.replace(f"127.0.0.1:{PORT_ON_PAGES}", f"127.0.0.1:{self._port}")
        return ["/usr/bin/env", "-i", "/bin/bash", "-c", f'. {self._state}; cd "$(cat {self._where})"\n{command}']

    async def _finish(self, command: str) -> tuple[int, str]:
        kept = f"code=$?; export -p > {self._state}; pwd > {self._where}; exit $code"
        process = await asyncio.create_subprocess_exec(
            *self._line(f"(exit {self._code})\n{command}\n{kept}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_COMMAND_S):
                printed, _ = await process.communicate()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
            pytest.fail(f"not ended within {_COMMAND_S:g} s: {command}")
        assert process.returncode is not None
        self._code = process.returncode
        return self._code, printed.decode()

    async def _start(self, command: str, ready: str) -> str:
        log = self.folder.with_name(f"{self.folder.name}.{len(self._running)}.log")
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *self._line(_replacing_the_shell(command)), stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out
            )
        self._running[command] = (process, log)
        await until(
            lambda: ready in log.read_text("utf-8") or process.returncode is not None,
            deadline_s=_COMMAND_S / SLACK,
            what=f"{command} says {ready!r}",
        )
        assert process.returncode is None, f"{command} ended:\n{log.read_text('utf-8')}"
        return log.read_text("utf-8")

    async def _stop(self, command: str) -> None:
        (full,) = [each for each in self._running if each == command or _bare(each).startswith(command)]
        process, log = self._running[full]
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        async with asyncio.timeout(_COMMAND_S):
            code = await process.wait()
        del self._running[full]
        assert code in {0, 1, 130}, f"{full} ended with {code}:\n{log.read_text('utf-8')}"


def _replacing_the_shell(command: str) -> str:
    """The command in the process of the shell, so that signals reach it; variables stay before it."""
    words = command.split(" ")
    first = next(number for number, word in enumerate(words) if not re.fullmatch(r"\w+=\S*", word))
    return " ".join([*words[:first], "exec", *words[first:]])


def _bare(command: str) -> str:
    """A command without variables before it, and without the folder of its program."""
    words = command.split()
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words.pop(0)
    return " ".join([words[0].rpartition("/")[2], *words[1:]]) if words else ""


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
