"""Connection of a command to its cell, and the execution of commands."""

import asyncio
import getpass
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

import uvloop
from cyclopts import Parameter

from berth.cli.addresses import checked
from berth.cli.link import LinkWatch
from berth.cli.output import FAILED, INTERRUPTED, OK, WRONG_USE, CommandError, complain, lost_output, print_progress
from berth.core.errors import LedgerBrokenError
from berth.runtime import logs
from berth.runtime.bus.access import access_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import ConfigError, LogConfig, bus_from_environment, bus_url_from_environment
from berth.runtime.errors import FatalError, ShellError, TransientError, UntrustedError, other_version
from berth.runtime.inboxes import inbox_of_person
from berth.schemas.envelope import VersionError
from berth.schemas.subjects import StreamName

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
_CONNECT_S: Final = 3.0
_SILENT_S: Final = 0.4
"""Without an answer for so long, users are told what the command waits for."""
_REPR: Final = re.compile(r"""^\w+\(['"](?=.*['"]\))|['"]\)+$""")
"""Begin and end of the form of an exception around its message; the begin may be cut off."""
_NUMBERED: Final = re.compile(r"^\w+\(-?\d+, '(?P<words>[^']*)'\)$")
"""Text of an operating system error in Python's format."""


def caller() -> str:
    """User and machine that call the command; empty where they have no name."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return ""


@Parameter(name="*")
@dataclass(frozen=True)
class Form:
    """Options of commands that connect to no cell.

    Attributes:
        json: Print JSON instead of text.
    """

    json: Annotated[bool, Parameter(negative=())] = False


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that connects to a cell.

    Attributes:
        url: Address of NATS; several are separated by commas. Default: $BERTH_NATS_URL, or $BERTH_BUS__URL, or
            nats://127.0.0.1:4222.
        cell: Name of the cell.
        json: Print JSON instead of text.
    """

    url: Annotated[str, Parameter(show_default=False)] = ""
    cell: str = "default"
    json: Annotated[bool, Parameter(negative=())] = False

    @property
    def address(self) -> str:
        """Address of NATS.

        Raises:
            CommandError: It is invalid.
        """
        if self.url:
            return checked("--url", self.url)
        return checked("the address of NATS in the environment", bus_url_from_environment() or DEFAULT_URL)


@asynccontextmanager
async def connected(common: Common, *, needs_cell: bool = True, reports_outages: bool = True) -> AsyncIterator[NatsBus]:
    """Connection to the bus of the cell.

    Args:
        common: Options.
        needs_cell: Whether the server must have the cell already.
        reports_outages: Whether to print that the connection is lost, and that it is back; False where the command
            draws on the terminal, and shows it itself.

    Raises:
        CommandError: The address is invalid, no server answers, the server rejects the connection or does not permit
            what is needed, or it does not have the cell.
        OlderVersionError: The cell is of a release before 0.5.
    """
    url = common.address
    access = access_of(bus_from_environment(url))
    waiting = asyncio.get_running_loop().call_later(
        _SILENT_S, print_progress, f"waiting for the NATS server at {url}, up to {_CONNECT_S:g} s"
    )
    try:
        bus = await NatsBus.connect(
            url.split(","),
            common.cell,
            name="berth",
            inbox=inbox_of_person(access.name or "berth"),
            timeout_s=_CONNECT_S,
            access=access,
            is_patient=False,
        )
    except UntrustedError as error:
        raise CommandError(
            f"the server at {url}: {error.reason}; in the environment: BERTH_BUS__TLS_CA_FILE, BERTH_BUS__TLS_HOSTNAME",
            code=WRONG_USE,
        ) from error
    except FatalError as error:
        raise CommandError(
            f"the server at {url} rejects the connection ({cause(error)}); set BERTH_BUS__USER and"
            " BERTH_BUS__PASSWORD_FILE, or other credentials of section bus",
            code=WRONG_USE,
        ) from error
    except TransientError as error:
        raise CommandError(
            f"no NATS server answers at {url} ({cause(error)}); start everything with: berth up, or name another"
            " address with --url"
        ) from error
    finally:
        waiting.cancel()
    async with bus:
        try:
            if needs_cell:
                await bus.check_format(StreamName.STATUS)
        except TransientError as error:
            if bus.lost.done():
                raise CommandError(
                    f"the server at {url} does not permit these credentials what the command needs"
                    f" ({bus.lost.result().reason}); use those of a person: berth keys add --kind person",
                    code=WRONG_USE,
                ) from error
            raise CommandError(
                f"the server at {url} has no cell {common.cell!r} ({cause(error)}); start one with: berth up, or name"
                " another with --cell"
            ) from error
        watch = LinkWatch(bus, print_progress) if reports_outages else None
        try:
            yield bus
        finally:
            if watch is not None:
                watch.end()


def cause(error: ShellError) -> str:
    """Last part of an error message; the names of exceptions before it do not help users."""
    words = str(error).rpartition(": ")[2] or str(error)
    words = _REPR.sub("", _NUMBERED.sub(r"\g<words>", words))
    if "refused" in words.lower():
        return "connection refused"
    return "no answer" if words == "TimeoutError()" else words


def run(work: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
    """Run a command. Returns its exit code; errors are printed one per line, without a traceback."""
    logs.configure("berth", LogConfig(level="error"))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work()) or OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the reader closed the pipe, which rich reports by the latter
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # buffered output is dropped
        return OK
    except Exception as error:  # noqa: BLE001  # outermost handler: every error becomes a line and an exit code
        lost = lost_output(error)
        return report(error) if lost is None else lost


def report(error: Exception) -> int:
    """Print an error. Returns its exit code."""
    code = FAILED
    for leaf in _leaves(error):
        match leaf:
            case CommandError():
                complain(leaf.lines)
                code = max(code, leaf.code)
            case ConfigError():
                complain([str(leaf)])
                code = WRONG_USE
            case ShellError() | VersionError() | LedgerBrokenError():
                other = other_version(leaf)
                complain([str(other or leaf)])
                code = WRONG_USE if other is not None else code
            case _:
                complain([f"internal error of Berth, please report it: {leaf!r}"])
    return code


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
