"""A service in the process of a cell that ends again and again: why it is not ready."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from berth.cell.config import load_cell
from berth.cell.metrics import CellMetrics
from berth.cell.supervision import Supervised
from berth.runtime.clock import SystemClock
from berth.runtime.errors import FatalError
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from tests.support.waiting import until


async def test_the_reason_counts_the_ends_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ends = tmp_path / "cell.toml", 0
    path.write_text("", "utf-8")

    async def run(*_: object) -> None:
        nonlocal ends
        ends += 1
        raise FatalError("it ends at once")

    monkeypatch.setattr("berth.cell.supervision.run_service", run)
    (running,) = [one for one in load_cell(path, {}).services if one.name == "binder"]
    binder, stop = Supervised(running, CellMetrics(MetricsRegistry()), SystemClock(), DEFAULT_LOG), asyncio.Event()

    def has_ended(count: int) -> bool:
        return ends == count and binder.reason.startswith("it ")

    async with asyncio.TaskGroup() as group:
        group.create_task(binder.run(stop), name="run")
        for count, reason in ((1, "it starts again"), (2, "it ended 2 times in a row, and starts again")):
            await until(partial(has_ended, count), deadline_s=5, what="an end")
            assert binder.reason == reason
        stop.set()
    assert binder.ended.is_set()
