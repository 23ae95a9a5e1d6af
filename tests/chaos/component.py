"""Components of a cell: processes that can be killed, stopped for a while, and started again."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from berth.lab.servers.kube_assets import API_SERVER, ETCD
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from tests.chaos.network import Host
from tests.support.process_state import stands
from tests.support.processes import Service
from tests.support.waiting import until

UNREACHED: Final = 1
"""How a service ends by itself: it found no bus, or a history that it followed broke. Somebody starts it again."""
_STATE_S: Final = 5.0


class Component:
    """One component; the subclasses know how it starts and dies.

    Attributes:
        host: Where it runs.
        before_start: Called before each start.
        is_down: Whether a fault keeps it from running, so nobody else starts it.
    """

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self.host = host
        self.before_start: list[Callable[[], Awaitable[None]]] = []
        self.is_down = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of it that run; none when it is dead."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        """Whether all of it runs."""
        return bool(self.pids)

    async def start(self) -> None:
        """Start it; returns when it listens, if it listens at all."""
        for prepare in self.before_start:
            await prepare()
        await self._start()
        self.is_down = False

    async def kill(self) -> None:
        """End it as a power cut would; returns when it is dead."""
        self.is_down = True
        self.resume_now()
        await self._kill()

    async def pause(self) -> None:
        """Stop all its processes with SIGSTOP; returns when they stand."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in self.pids:
            await until(lambda: stands(pid), deadline_s=_STATE_S, what=f"{self.name} stands")  # noqa: B023  # waited for here

    def resume_now(self) -> None:
        """Let its processes go on."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        """End of its log."""
        return ""

    async def _start(self) -> None:
        raise NotImplementedError

    async def _kill(self) -> None:
        raise NotImplementedError


class ServiceComponent(Component):
    """A service of Berth."""

    def __init__(self, name: str, host: Host, service: Service) -> None:
        super().__init__(name, host)
        self.service = service

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of its next starts."""
        return self.service.env

    @property
    def pids(self) -> tuple[int, ...]:
        """The process."""
        return (self.service.pid,) if self.service.is_running else ()

    def log(self) -> str:
        """End of its log."""
        return self.service.log()

    async def _start(self) -> None:
        if not self.service.is_running:
            self.service.start()

    async def _kill(self) -> None:
        await self.service.kill()


class NatsComponent(Component):
    """A nats-server."""

    def __init__(self, name: str, host: Host, server: EmbeddedServer) -> None:
        super().__init__(name, host)
        self.server = server

    @property
    def pids(self) -> tuple[int, ...]:
        """The process."""
        return (self.server.pid,) if self.server.pid is not None else ()

    def log(self) -> str:
        """End of its log."""
        return _tail(self.server.log_path)

    async def _start(self) -> None:
        await self.server.start()

    async def _kill(self) -> None:
        await self.server.kill()


class KubeComponent(Component):
    """kube-apiserver, or its etcd."""

    def __init__(self, name: str, host: Host, server: KubeServer) -> None:
        super().__init__(name, host)
        assert name in {API_SERVER, ETCD}
        self.server = server

    @property
    def pids(self) -> tuple[int, ...]:
        """The process."""
        pid = self.server.pids.get(self.name)
        return (pid,) if pid is not None else ()

    def log(self) -> str:
        """End of its log."""
        return _tail(self.server.log_path(self.name))

    async def _start(self) -> None:
        if self.name == API_SERVER:
            self.server.spawn_api()  # it does not get ready while its etcd is away
        else:
            self.server.start_etcd()

    async def _kill(self) -> None:
        await (self.server.kill_api() if self.name == API_SERVER else self.server.kill_etcd())


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""


async def start_all(components: list[Component]) -> None:
    """Start some at once."""
    async with asyncio.TaskGroup() as group:
        for component in components:
            group.create_task(component.start(), name=f"start {component.name}")
