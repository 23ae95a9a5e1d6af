"""Early ends: when a process that a bench depends on ends before the bench is done with it, the bench ends at once.

:func:`until_done` runs a bench and looks at all processes that were started meanwhile; no wait of a bench has to do so.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import uvloop

from berth.lab.servers.kube_server import CONTROLLERS, KubeServer
from berth.lab.servers.nats_server import EmbeddedServer

_LOOK_S: Final = 0.1
_TAIL: Final = 2_000
_Found = TypeVar("_Found")


class EndedError(RuntimeError):
    """A process ended before its bench was done with it; the text names it, its exit code and the end of its log."""


class Watched(ABC):
    """A process that must not end by itself.

    Attributes:
        name: Its name in messages.
        log_path: Its log.
    """

    name: str
    log_path: Path

    @abstractmethod
    def end_text(self) -> str | None:
        """How it ended; None while it runs."""

    def watch(self) -> None:
        """Take its end for an error from now on."""
        if (watch := _WATCH.get()) is not None and self not in watch.running:
            watch.running.append(self)

    def forget(self) -> None:
        """Do not take its end for an error any more; if it has ended already, it is one."""
        if (watch := _WATCH.get()) is not None and self in watch.running:
            watch.look(self)
            watch.running.remove(self)

    def error(self) -> EndedError:
        """The error that says how it ended, with the end of its log."""
        log = self.log_path.read_text("utf-8", errors="replace") if self.log_path.exists() else ""
        return EndedError(ended_text(self.name, self.end_text() or "does not run", log))


def ended_text(name: str, how: str, log: str) -> str:
    """What is said of a process that ended early."""
    said = f"the end of its log:\n{log.strip()[-_TAIL:]}" if log.strip() else "its log is empty"
    return f"{name} {how} before its bench was done with it; {said}"


class _Watch:
    """Processes of a bench that must not end, and the first error of one that did."""

    def __init__(self) -> None:
        self.running: list[Watched] = []
        self.error: EndedError | None = None

    def look(self, one: Watched) -> None:
        """Note the end of a process."""
        if self.error is None and one.end_text() is not None:
            self.error = one.error()

    async def until_one_ends(self) -> None:
        """Wait for an early end.

        Raises:
            EndedError: There was one.
        """
        while True:
            for one in self.running:
                self.look(one)
            if self.error is not None:
                raise self.error
            await asyncio.sleep(_LOOK_S)


_WATCH: Final[ContextVar[_Watch | None]] = ContextVar("bench_watch", default=None)


def until_done(work: Coroutine[Any, Any, _Found]) -> _Found:
    """Run a bench in an event loop of its own.

    Raises:
        EndedError: A process that it had started ended early.
    """
    return uvloop.run(watched(work))


async def watched(work: Coroutine[Any, Any, _Found]) -> _Found:
    """Run a bench; it is cancelled when a process that it has started ends early.

    Raises:
        EndedError: A process ended early; it is told instead of what followed from it.
    """
    watch = _Watch()
    token = _WATCH.set(watch)
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.until_one_ends())
            found = await work
            watching.cancel()
    except BaseExceptionGroup as several:
        for one in watch.running:
            watch.look(one)
        raise watch.error or _first(several) from None
    finally:
        _WATCH.reset(token)
    return found


def _first(error: BaseException) -> BaseException:
    """The first error in groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Server(Watched):
    """A server of several programs, or of one."""

    def __init__(self, server: EmbeddedServer | KubeServer, program: str, log_path: Path) -> None:
        self.name = program
        self.log_path = log_path
        self._server = server

    def end_text(self) -> str | None:
        """How it ended; None while it runs."""
        pids = {"nats-server": self._server.pid} if isinstance(self._server, EmbeddedServer) else self._server.pids
        return "ended" if pids.get(self.name) is None else None


@asynccontextmanager
async def nats_server(
    folder: Path, *, sync: Literal["interval", "always"] = "interval"
) -> AsyncIterator[EmbeddedServer]:
    """A NATS server with file storage, whose early end is an error."""
    async with EmbeddedServer(folder, sync=sync) as server:
        watched_one = _Server(server, "nats-server", server.log_path)
        watched_one.watch()
        try:
            yield server
        finally:
            watched_one.forget()


@asynccontextmanager
async def kube_server(
    folder: Path, *, users: tuple[str, ...] = (), controllers: tuple[str, ...] = CONTROLLERS
) -> AsyncIterator[KubeServer]:
    """A Kubernetes API server with users without groups; the early end of one of its programs is an error."""
    server = KubeServer(folder, users=dict.fromkeys(users, ()), controllers=controllers)
    async with server:
        programs = [_Server(server, name, server.log_path(name)) for name in server.pids]
        for one in programs:
            one.watch()
        try:
            yield server
        finally:
            for one in programs:
                one.forget()
