"""A service that is asked to end ends by itself, and leaves nothing that it started."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from berth.lab.nodesim import app as nodesim
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import FaultObjectsConfig
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.tracing.spans import NoSpans
from berth.services.api import app as api
from berth.services.api.config import ApiConfig
from berth.services.api.metrics import ApiMetrics
from berth.services.binder import app as binder
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.dispatcher import app as dispatcher
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.health import app as health
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics
from berth.services.inventory import app as inventory
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.scorer import app as scorer
from berth.services.scorer.config import ScorerConfig
from berth.services.scorer.metrics import ScorerMetrics
from berth.services.summary import app as summary
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.sim.cell import UncollectedGarbage
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.programs import on_the_loop
from tests.support.waiting import SLACK, until

EXAMPLE: Final = Path(__file__).parents[3] / "docs" / "examples" / "cluster.yaml"


class Stage(NamedTuple):
    """What a service is run on."""

    bus: FakeBus
    kube: FakeKube
    clock: ManualClock
    instruments: Instruments[Any]
    stop: asyncio.Event


def run_api(on: Stage) -> Coroutine[Any, Any, None]:
    beside = partial(on_the_loop, on.bus)
    return api.serve_beside(beside, on.bus, on.clock, ApiConfig(), on.instruments, on.stop, spans=NoSpans())


def run_binder(on: Stage) -> Coroutine[Any, Any, None]:
    return binder.bind_in_kubernetes(on.kube, on.bus, on.clock, BinderConfig(), on.instruments, on.stop)


def run_dispatcher(on: Stage) -> Coroutine[Any, Any, None]:
    return dispatcher.serve_beside(
        partial(on_the_loop, on.bus),
        on.bus,
        on.clock,
        DispatcherConfig(lease=False),
        on.instruments,
        on.stop,
        process="p",
        garbage=UncollectedGarbage(),
    )


def run_health(on: Stage) -> Coroutine[Any, Any, None]:
    return health.serve_on(on.kube, on.bus, on.clock, HealthConfig(source="clusterd"), on.instruments, on.stop)


def run_inventory(on: Stage) -> Coroutine[Any, Any, None]:
    return inventory.serve_on(on.bus, on.kube, on.clock, InventoryConfig(), on.instruments, on.stop)


def run_nodesim(on: Stage) -> Coroutine[Any, Any, None]:
    return nodesim.serve(on.bus, on.clock, NodesimConfig(topology_file=EXAMPLE), on.instruments, on.stop)


def run_scorer(on: Stage) -> Coroutine[Any, Any, None]:
    return scorer.serve(on.bus, on.clock, ScorerConfig(shard=0, shards=1), on.instruments, on.stop)


def run_summary(on: Stage) -> Coroutine[Any, Any, None]:
    config = SummaryConfig(fault_objects=FaultObjectsConfig(written_by="berth"))
    return summary.write_on(on.kube, on.bus, on.clock, config, on.instruments, on.stop)


@pytest.mark.parametrize(
    ("run", "metrics"),
    [
        (run_api, ApiMetrics),
        (run_binder, BinderMetrics),
        (run_dispatcher, DispatcherMetrics),
        (run_health, HealthMetrics),
        (run_inventory, InventoryMetrics),
        (run_nodesim, NodesimMetrics),
        (run_scorer, ScorerMetrics),
        (run_summary, SummaryMetrics),
    ],
)
async def test_a_service_that_ends_leaves_nothing_that_runs(
    run: Callable[[Stage], Coroutine[Any, Any, None]], metrics: Callable[[MetricsRegistry], Any]
) -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(2)
    await cell.dispatcher.stop()
    bus, instruments = FakeBus(cell.server, cell.cell), Instruments.make(metrics)
    on = Stage(bus, FakeKube(clock=cell.clock), cell.clock, instruments, asyncio.Event())
    before = asyncio.all_tasks()
    async with asyncio.timeout(10 * SLACK), asyncio.TaskGroup() as group:
        task = group.create_task(run(on))
        await until(
            lambda: task.done() or not instruments.readiness._service, deadline_s=5, what="the service is ready"
        )
        on.stop.set()
    assert [one.get_name() for one in asyncio.all_tasks() - before] == []
    await bus.close()
    await cell.close()
