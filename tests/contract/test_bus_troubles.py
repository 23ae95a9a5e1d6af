"""The real bus and the simulated one do the same in trouble; see :mod:`tests.contract.bus_troubles`."""

import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName
from tests.chaos.loopback import ProxiedTrial, proxy_to
from tests.chaos.proxy import Proxy
from tests.contract.bus_troubles import DEADLINE_S, TROUBLES, Trial
from tests.sim.bus import SimBus
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop
from tests.sim.server import SimServer
from tests.support.process_state import stop_process
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(60)
_CELL = "trouble"
_LONG_S = 600.0
Trouble = Callable[[Trial], Awaitable[None]]


class RealTrial(ProxiedTrial):
    """A nats-server; the client in trouble reaches it through a proxy."""

    def __init__(self, server: EmbeddedServer, proxy: Proxy, bus: NatsBus, other: NatsBus) -> None:
        super().__init__(proxy)
        self.bus: NatsBus = bus
        self.other: NatsBus = other
        self._server = server

    async def lose_consumers(self) -> None:
        """See Trial."""
        stream = self.other.subjects.stream(StreamName.FACTS)
        answer = await self.other.request(f"$JS.API.CONSUMER.NAMES.{stream}", b"", timeout_s=5)
        for name in msgspec.json.decode(answer)["consumers"]:
            await self.other.request(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"", timeout_s=5)

    async def kill(self) -> None:
        """See Trial."""
        await self.cut()
        await self._server.kill()

    async def start(self) -> None:
        """See Trial."""
        await self._server.start()
        await self.heal()

    async def silence(self) -> None:
        """See Trial: all streams of a server that stands still answer nobody."""
        pid = self._server.pid
        assert pid is not None
        await stop_process(pid)

    async def answer(self) -> None:
        """See Trial."""
        pid = self._server.pid
        assert pid is not None
        os.kill(pid, signal.SIGCONT)

    async def keep(self) -> None:
        """See Trial."""
        await self.cut()
        await self._server.stop()
        shutil.copytree(self._server.store, self._kept)
        await self.start()
        for bus in (self.bus, self.other):
            await until(lambda: bus.connected, deadline_s=DEADLINE_S, what="connected again")  # noqa: B023  # awaited here

    async def go_back(self) -> None:
        """See Trial."""
        await self.kill()
        shutil.rmtree(self._server.store)
        self._kept.rename(self._server.store)
        await self.start()

    @property
    def _kept(self) -> Path:
        return self._server.root / "kept"


class SimTrial:
    """A simulated server and two of its clients."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.server = SimServer(loop, SimClock(loop), Random(f"{seed} server"))  # noqa: S311  # a simulation
        self.bus, self.other = (
            SimBus(self.server, _CELL, loop.main, Random(f"{seed} {number}"), delay_s=0.01)  # noqa: S311  # likewise
            for number in range(2)
        )
        self._loop = loop
        self._kept = 0

    async def lose_answers(self) -> None:
        """See Trial."""
        self.bus.lose_replies = 1

    async def hold(self) -> None:
        """See Trial."""
        self.bus.outgoing.held_until_s = self._loop.now_s + 2.0

    async def cut(self) -> None:
        """See Trial."""
        self.bus.cut(6.0)

    async def heal(self) -> None:
        """See Trial: it ends by itself."""

    async def lose_consumers(self) -> None:
        """See Trial."""
        self.bus.lose_consumers()

    async def kill(self) -> None:
        """See Trial."""
        self.server.is_down = True
        for bus in (self.bus, self.other):
            bus.cut(0.5)

    async def start(self) -> None:
        """See Trial."""
        self.server.is_down = False
        self.server.forget_views(8)

    async def silence(self) -> None:
        """See Trial."""
        self.server.silent_until_s[self.bus.subjects.stream(StreamName.LEDGER)] = self._loop.now_s + _LONG_S

    async def answer(self) -> None:
        """See Trial."""
        self.server.silent_until_s.clear()

    async def keep(self) -> None:
        """See Trial."""
        self._kept = self.server.streams[self.bus.subjects.stream(StreamName.LEDGER)].last_seq

    async def go_back(self) -> None:
        """See Trial."""
        await self.kill()
        self.server.rewind(self.bus.subjects.stream(StreamName.LEDGER), self._kept)
        self.server.is_down = False


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
async def test_a_real_bus_in_trouble(trouble: Trouble, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedServer(tmp_path / "nats"))
        proxy = proxy_to(server.url)
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        other = await stack.enter_async_context(await NatsBus.connect(server.url, _CELL, name="other"))
        bus = await stack.enter_async_context(
            await NatsBus.connect(f"nats://127.0.0.1:{proxy.port}", _CELL, name="in trouble")
        )
        await other.ensure_streams()
        await trouble(RealTrial(server, proxy, bus, other))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_a_simulated_bus_in_trouble(trouble: Trouble, seed: int) -> None:
    loop = SimLoop(seed)

    async def whole() -> None:
        trial = SimTrial(loop, seed)
        await trial.other.ensure_streams()
        await trouble(trial)
        for bus in (trial.bus, trial.other):
            await bus.close()

    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()
    assert loop.errors == []
