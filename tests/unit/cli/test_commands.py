"""The list of commands: complete, in agreement with the commands, and imported without them."""

import asyncio
import inspect
import socket
import subprocess
import sys

import pytest

from berth.cli.app import call
from berth.cli.cell import cause
from berth.cli.commands import GROUPS, Command, all_commands
from berth.runtime.errors import TransientError
from tests.support.command import berth

COMMANDS = all_commands()
EVERY = [one for command in COMMANDS for one in (command, *command.parts)]


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.name)
def test_a_summary_is_the_first_line_of_the_command(command: Command) -> None:
    text = inspect.getdoc(command.load())
    assert text is not None
    assert command.summary == text.splitlines()[0]


def test_each_command_is_below_one_title_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(one.name for one in COMMANDS)
    assert call(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"─ {title} ─") for title in GROUPS]
    assert places == sorted(places)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_has_its_options(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([command.name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "─ Parameters ─" in out
    for part in command.parts:
        assert part.name in out
    assert ("─ Commands ─" in out) == bool(command.parts)


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        ("--help", "berth.cli.cell berth.core asyncio numpy nats"),
        ("--version", "berth.cli.cell berth.core numpy nats"),
        ("jobs --help", "berth.cli.cluster numpy aiohttp"),
    ],
)
def test_a_command_imports_no_other(words: str, unwanted: str) -> None:
    code = (
        "import sys; from berth.cli.app import call; call(sys.argv[2:]); "
        "print(*[name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", code, unwanted, *words.split()], capture_output=True, text=True, check=True
    )
    assert done.stdout
    assert done.stderr.split() == []


def test_a_server_that_refuses_connections_is_reported_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.cli.cell._SILENT_S", 2.5)  # a busy machine may take longer than the usual time
    assert call(["jobs", "--url", "nats://127.0.0.1:9,nats://127.0.0.1:19"]) == 1
    err = capsys.readouterr().err
    assert "no NATS server answers at nats://127.0.0.1:9,nats://127.0.0.1:19 (connection refused)" in err
    assert "waiting for" not in err


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "connect: UnexpectedEOF('nats: empty response from server when expecting INFO message'))",
            "empty response from server when expecting INFO message",
        ),
        ("ClientConnectionResetError('Cannot write to closing transport')", "Cannot write to closing transport"),
        ("nats: TimeoutError()", "no answer"),
        ("gaierror(-2, 'Name or service not known')", "Name or service not known"),
        ("ConnectionRefusedError(111, 'Connect call failed, refused')", "connection refused"),
        ("permission (a, 'b') is missing", "permission (a, 'b') is missing"),
    ],
)
def test_a_cause_has_no_form_of_an_exception(reason: str, words: str) -> None:
    assert cause(TransientError(reason)) == words


async def test_a_server_without_websocket_is_one_line() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, _, err = await berth("jobs", url=url, cell="default")
    *before, line = err.splitlines()
    assert line.startswith(f"error: no NATS server answers at {url} (200, message='Invalid response status'")
    assert all(one.startswith("waiting for the NATS server") for one in before)
    assert code == 1


def test_a_server_that_says_nothing_is_reported_before_the_command_gives_up(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        assert call(["jobs", "--url", url]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"waiting for the NATS server at {url}, up to 3 s"
    assert second.startswith(f"error: no NATS server answers at {url} (no answer)")
