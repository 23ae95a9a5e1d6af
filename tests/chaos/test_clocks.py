"""Clocks of services are set forward and back by hours: the lease holds, and nothing is lost or doubled."""

import asyncio
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import open_envelope
from berth.schemas.ledger import record_head
from tests.chaos.clocks import SteppedClock
from tests.chaos.loaded_cell import NAMES, LoadedCell
from tests.support.waiting import until
from tests.support.watch import Watch

pytestmark = pytest.mark.timeout(120)
_HOUR_S = 3600.0
_NEAR_MS = 600_000


def newest_ms(watch: Watch) -> int:
    """Time of the newest record, as its writer's clock said."""
    head = record_head(open_envelope(watch.records[-1].data))
    assert head is not None
    return head.at_ms


async def test_steps_of_clocks_lose_and_double_nothing(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    """Forward, back, and a leader that dies beside a standby whose clock is four hours behind."""
    clocks = {name: SteppedClock(tmp_path / f"clock-{name}") for name in NAMES}
    env = {name: clock.env for name, clock in clocks.items()}
    async with LoadedCell(tmp_path, [own_server.url], cell, env=env) as loaded:
        watch = loaded.watch

        async def decided_at(shift_s: float, *, killed: str = "") -> None:
            """Wait for a record of a clock that is so far off; the killed one may not lead again before the other."""

            def is_near() -> bool:
                loaded.keep_alive(but=killed)
                return abs(newest_ms(watch) - SystemClock().now_ms() - 1000 * shift_s) < _NEAR_MS

            await until(is_near, deadline_s=30, what=f"a record of a clock that is {shift_s} s off")

        async with asyncio.TaskGroup() as group:
            group.create_task(loaded.load.run(), name="load")
            await loaded.worked()
            for shift_s in (2 * _HOUR_S, -_HOUR_S, 0.0):
                for name in ("dispatcher", "dispatcher-2"):
                    clocks[name].set(shift_s)
                clocks["scorer"].set(-shift_s)
                await decided_at(shift_s)
                await loaded.worked()
            clocks["dispatcher"].set(_HOUR_S)
            clocks["dispatcher-2"].set(-3 * _HOUR_S)
            for name, other_s in (("dispatcher", -3 * _HOUR_S), ("dispatcher-2", _HOUR_S)):
                await loaded.processes[name].kill()
                await decided_at(other_s, killed=name)
                await loaded.worked()
            loaded.load.stop()
        await loaded.judge()
