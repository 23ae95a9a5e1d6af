"""Metrics of the whole cell: what they count, how often, how many series there are, and when there are none."""

import math
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from berth.runtime.instruments import Instruments
from berth.runtime.probes import ServicePages
from berth.runtime.tracing.spans import NoSpans
from berth.schemas.envelope import encode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.services.api.cell_counts import CellCounts
from berth.services.api.config import ApiConfig
from berth.services.api.loop import Loop
from berth.services.api.metrics import ApiMetrics
from tests.support.cells import a_node
from tests.support.programs import Programs, job_file, programs

NPU = "huawei.com/Ascend910"
Series = dict[tuple[str, ...], float]


def shown(instruments: Instruments[ApiMetrics], name: str) -> Series:
    """Series of a metric as Prometheus reads them, by their labels."""
    text = ServicePages(instruments.readiness, instruments.registry).exposition().decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"berth_{name}"
    }


def age_s(instruments: Instruments[ApiMetrics]) -> float:
    return shown(instruments, "counts_age_seconds")[()]


async def wait_for_room(told: Programs, name: str, **changes: object) -> None:
    """A job that fits nowhere now."""
    spec: dict[str, Any] = {"product": "module910bx8", "replicas": 9, "chips": 8} | changes
    assert (await told.ask("submit", {"job": job_file(name, uid=f"u-{name}", **spec)}))["ok"]
    await told.turns(3)


async def test_each_chip_is_in_one_state() -> None:
    async with programs(nodes=3, is_started=False) as told:
        api = await told.start()
        await told.submit()
        await told.cell.nodes([a_node("n0"), a_node("n1"), a_node("n2", cordoned=True)])
        await told.turns(3)
        states = shown(api, "chips")
        assert states == {
            ("module910bx8", state): chips
            for state, chips in {
                "used": 8, "reserved": 0, "free": 8, "unhealthy": 0, "drained": 8, "withheld": 0,
            }.items()
        }  # fmt: skip
        assert shown(api, "nodes") == {
            ("module910bx8", "free"): 1,
            ("module910bx8", "used"): 1,
            ("module910bx8", "closed"): 1,
        }


async def test_products_that_the_catalogue_lacks_have_one_series() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        odd = [msgspec.structs.replace(a_node(name), product=f"odd-{name}") for name in ("n0", "n1")]
        await told.cell.nodes([*odd, a_node("n2")])
        await told.turns(2)
        totals = {("unknown",): 16.0, ("module910bx8",): 8.0}
        found = shown(api, "chips")
        assert {product for product, _ in found} == {"unknown", "module910bx8"}
        for (product,), chips in totals.items():
            assert sum(value for (one, _), value in found.items() if one == product) == chips


async def test_jobs_are_counted_by_phase_and_those_that_wait_by_reason() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        await told.submit()
        await told.turns(2)
        await wait_for_room(told, "w0")
        await wait_for_room(told, "w1", replicas=5)
        assert shown(api, "jobs") == {("waiting",): 2, ("placed",): 1, ("bound",): 0, ("running",): 0, ("ending",): 0}
        reasons = {job["code"] for job in (await told.ask("jobs", {"phase": "waiting"}))["jobs"]}
        assert {reason for (reason,) in shown(api, "waiting_jobs")} == reasons
        assert sum(shown(api, "waiting_jobs").values()) == 2
        assert shown(api, "waiting_chips") == {("module910bx8",): (9 + 5) * 8}


async def test_places_are_counted_by_how_many_of_their_nodes_are_free() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        await told.submit()
        rest = [a_node(f"n{at}", leaf=f"l-{at // 2}", superpod="sp") for at in range(4)]
        await told.cell.nodes([*rest, a_node("n9", leaf="l-9", ready=False)])
        await told.turns(3)
        assert shown(api, "places") == {
            ("leaf", "free"): 1,
            ("leaf", "partly-free"): 1,
            ("leaf", "full"): 1,
            ("superpod", "free"): 0,
            ("superpod", "partly-free"): 1,
            ("superpod", "full"): 0,
        }
        leaves = shown(api, "leaf_chips")
        assert (leaves["l-0", "used"], leaves["l-0", "free"], leaves["l-9", "unhealthy"]) == (8, 8, 8)
        assert sum(leaves.values()) == 40
        assert sum(shown(api, "superpod_chips").values()) == 32
        assert shown(api, "places_without_series") == {("leaf",): 0, ("superpod",): 0}


@pytest.mark.parametrize(
    ("most", "hidden"), [(2, {("leaf",): 3, ("superpod",): 0}), (0, {("leaf",): 3, ("superpod",): 1})]
)
async def test_more_places_than_the_setting_have_no_series_and_that_is_shown(most: int, hidden: Series) -> None:
    async with programs(is_started=False) as told:
        api = await told.start(ApiConfig(place_series_max=most))
        await told.cell.nodes([a_node(f"n{at}", leaf=f"l-{at}", superpod="sp") for at in range(3)])
        await told.turns(2)
        assert shown(api, "leaf_chips") == {}
        assert shown(api, "places_without_series") == hidden
        assert shown(api, "places")["leaf", "free"] == 3


async def test_series_of_a_place_end_with_it() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        await told.cell.nodes([a_node("n0", leaf="l-0"), a_node("n1", leaf="l-1")])
        await told.turns(2)
        assert {leaf for leaf, _ in shown(api, "leaf_chips")} == {"l-0", "l-1"}
        told.cell.clock.advance(5)
        await told.cell.nodes([a_node("n0", leaf="l-0"), a_node("n1", leaf="l-0")])
        await told.turns(2)
        assert {leaf for leaf, _ in shown(api, "leaf_chips")} == {"l-0"}


async def test_numbers_are_kept_for_a_while_and_their_age_is_shown() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        assert (sum(shown(api, "chips").values()), age_s(api)) == (16, 0)
        told.cell.clock.advance(4)
        await told.cell.nodes([a_node(f"n{at}") for at in range(3)])
        await told.turns(2)
        assert (sum(shown(api, "chips").values()), age_s(api)) == (16, 4)
        told.cell.clock.advance(1)
        await told.cell.nodes([a_node(f"n{at}") for at in range(4)])
        await told.turns(2)
        assert (sum(shown(api, "chips").values()), age_s(api)) == (32, 0)


async def test_an_instance_that_is_behind_shows_no_numbers_but_their_age() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        assert shown(api, "chips")
        told.cell.clock.advance(61)
        assert shown(api, "chips") == shown(api, "jobs") == shown(api, "places") == {}
        assert age_s(api) == 61
        await told.cell.nodes([a_node("n0")])
        await told.turns(2)
        assert sum(shown(api, "chips").values()) == 8


async def test_an_instance_that_has_not_counted_shows_no_numbers() -> None:
    async with programs(is_started=False) as told:
        api: Instruments[ApiMetrics] = Instruments.make(ApiMetrics)
        loop = Loop(told.bus, told.cell.clock, ApiConfig(), api, NoSpans())
        api.registry.measure_by(CellCounts(told.cell.clock, loop, ApiConfig(), api.metrics).measure)
        assert shown(api, "chips") == {}
        assert age_s(api) == math.inf


async def test_statistics_of_the_process_do_not_have_them() -> None:
    async with programs(is_started=False) as told:
        api = await told.start()
        assert shown(api, "chips")
        gauges = api.registry.gauges()
        assert "berth_api_facts_sequence" in gauges
        assert [name for name in gauges if not name.startswith(("berth_api_", "berth_process_"))] == []


async def test_queues_are_counted_where_they_do_something() -> None:
    async with programs(nodes=2, is_started=False, queues=2) as told:
        api = await told.start()
        assert shown(api, "queue_chips") == {}
        for queue in (Queue("a", capability={NPU: 800}), Queue("b")):
            await told.bus.publish(told.bus.subjects.fact_queue(queue.name), encode(QueueSeen(queue)))
        for name in ("j0", "j1"):
            spec: dict[str, Any] = {"product": "module910bx8", "replicas": 1, "chips": 8, "queue": "a"}
            assert (await told.ask("submit", {"job": job_file(name, uid=f"u-{name}", **spec)}))["ok"]
        told.cell.clock.advance(5)
        await told.turns(4)
        chips = shown(api, "queue_chips")
        states = {state: chips["a", NPU, state] for state in ("held", "entitled", "limit")}
        assert states == {"held": 8, "entitled": 8, "limit": 8}
        assert ("b", NPU, "limit") not in chips
        assert shown(api, "queue_waiting_jobs") == {("a",): 1, ("b",): 0, ("default",): 0, ("root",): 0}


async def test_more_queues_than_the_setting_have_no_series() -> None:
    async with programs(nodes=2, is_started=False, queues=2) as told:
        api = await told.start(ApiConfig(place_series_max=3))
        for name in ("a", "b"):
            queue = Queue(name, capability={NPU: 800})
            await told.bus.publish(told.bus.subjects.fact_queue(name), encode(QueueSeen(queue)))
        told.cell.clock.advance(5)
        await told.turns(3)
        assert (shown(api, "queue_chips"), shown(api, "queue_waiting_jobs")) == ({}, {})
