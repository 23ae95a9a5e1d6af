"""A small cell under load for tests of one fault: two dispatchers, a scorer, an observer."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from berth.core.state.cell import State
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import FatalError, TransientError
from tests.support.load import Load
from tests.support.processes import Service, services
from tests.support.waiting import until, until_true
from tests.support.watch import Watch, verify

NAMES: Final = ("dispatcher", "dispatcher-2", "scorer")
_SETTINGS: Final[dict[str, object]] = {
    "shards": 1,
    "lease_s": 1,
    "snapshot_records": 10,
    "intake_batch_max": 8,
    "tick_s": 0.1,
    "gather_timeout_s": 0.5,
    "decisions": {"round_gangs_max": 4, "shard_retry_ms": 100, "tombstone_after_ms": 300},
}
_BROKEN: Final = frozenset({0, 1, -9})
"""How a service ends: asked to, because it found no bus or a history broke, or killed."""


class LoadedCell:
    """Requests come and pods go while the block runs; a process that ends by itself is started again.

    Args:
        folder: Of settings and logs.
        urls: Of the nats-servers.
        cell: Its name.
        replicas: Of its streams.
        env: More environment variables, by name of the process.
    """

    def __init__(
        self,
        folder: Path,
        urls: Sequence[str],
        cell: str,
        *,
        replicas: int = 1,
        env: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.processes: dict[str, Service] = {}
        self._folder = folder
        self._urls = urls
        self._cell = cell
        self._replicas = replicas
        self._env = env or {}
        self._stack = AsyncExitStack()
        self.bus: NatsBus
        self.watch: Watch
        self.load: Load

    async def __aenter__(self) -> Self:
        made = self._stack.enter_context(services(self._folder, ",".join(self._urls)))
        try:
            self.bus = await NatsBus.connect(self._urls, self._cell, name="observer", inbox="_INBOX.person.observer")
            self._stack.push_async_callback(self.bus.close)
            await until_true(self._has_streams, deadline_s=40, what="the streams are there")
            self.watch = Watch(self.bus)
            self.watch.start()
            self._stack.push_async_callback(self.watch.stop)
            self.load = Load(self.watch, seed=1)
            bus = {"cell": self._cell, "replicas": self._replicas}
            for name in NAMES:
                kind, _, label = name.partition("-")
                own = _SETTINGS if kind == "dispatcher" else {"shard": 0, "shards": 1}
                service = made.service(kind, self._cell, label=label, **{**own, "bus": bus})
                service.env.update(self._env.get(name, {}))
                self.processes[name] = service
                service.start()
            return self
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def worked(self, *, more: int = 40) -> None:
        """Wait until some more requests have their verdict."""
        goal = self.watch.judged + more

        def is_reached() -> bool:
            self.keep_alive()
            return self.watch.judged >= goal

        await until(is_reached, deadline_s=40, what=f"verdicts up to {goal}, at {self.watch.judged}")

    async def said(self, *words: str) -> None:
        """Wait until some process has said one of some things since now."""
        before = self._count(words)

        def is_said() -> bool:
            self.keep_alive()
            return self._count(words) > before

        await until(is_said, deadline_s=40, what=f"some process says: {' or '.join(words)}")

    def keep_alive(self, *, but: str = "") -> None:
        """Start what has ended, except one process."""
        for name, process in self.processes.items():
            if name != but and not process.is_running:
                assert process.returncode in _BROKEN, process.log()
                process.start()

    async def judge(self) -> State:
        """After the load has ended: wait until the cell is at rest, end it, and see that nothing was lost or doubled.

        Returns:
            The state that its streams make.
        """
        await self.load.settle()
        for process in self.processes.values():
            await process.stop()
        return await verify(self.watch, self.load.acked)

    async def _has_streams(self) -> bool:
        try:
            await self.bus.ensure_streams(replicas=self._replicas)
        except (TransientError, FatalError):  # servers that have only just met refuse replicas for a moment
            return False
        return True

    def _count(self, words: tuple[str, ...]) -> int:
        logs = [process.whole_log() for process in self.processes.values()]
        return sum(log.count(one) for log in logs for one in words)
