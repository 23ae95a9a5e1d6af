"""Queues of Volcano as facts: published, withdrawn by the next run, and never beside those of persons."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import RefusedError
from berth.runtime.process import MISCONFIGURED, report
from berth.schemas.envelope import encode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from tests.unit.services.inventory.test_service import CONFIG, RESOURCE, World, a_node

APPLIED: InventoryConfig = msgspec.structs.replace(CONFIG, queues=True)
PATH = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    found.kube.put("/api/v1/nodes", a_node("a"))
    yield found
    await found.bus.close()


def put(world: World, name: str, **capability: Any) -> None:  # noqa: ANN401  # values of quantities
    limits = {RESOURCE: capability["chips"]} if capability else {}
    world.kube.put(PATH, {"metadata": {"name": name}, "spec": {"capability": limits}})


def told(world: World) -> dict[str, int | None]:
    """Chips of the capability of each queue, as last said; None: it has none."""
    facts = {fact.queue.name: fact for fact in world.facts("queue", QueueSeen)}
    return {name: fact.queue.capability.get(RESOURCE) for name, fact in sorted(facts.items()) if not fact.gone}


async def test_queues_are_published_and_withdrawn_by_the_next_run(world: World) -> None:
    put(world, "gold", chips=8)
    put(world, "iron", chips=4)
    async with world.inventory(APPLIED):
        await world.has(lambda: told(world) == {"gold": 800, "iron": 400}, "queues")
        put(world, "gold", chips=16)
        await world.has(lambda: told(world)["gold"] == 1_600, "the change")
    world.kube.confirm(f"{PATH}/iron")
    async with world.inventory(APPLIED):
        await world.has(lambda: told(world) == {"gold": 1_600}, "the end of the queue")


async def test_queues_are_withdrawn_where_they_are_not_applied_any_more(world: World) -> None:
    put(world, "gold", chips=8)
    async with world.inventory(APPLIED):
        await world.has(lambda: "gold" in told(world), "the queue")
    async with world.inventory(CONFIG):
        await world.has(lambda: told(world) == {}, "the end of the queues")
        await world.has(world.nodes, "the nodes")
    assert {fact.source for fact in world.facts("queue", QueueSeen)} == {"kubernetes"}


async def test_queues_of_persons_beside_objects_end_the_service_at_its_start(world: World) -> None:
    await world.bus.publish(world.bus.subjects.fact_queue("iron"), encode(QueueSeen(Queue("iron"), by="ops")))
    put(world, "gold", chips=8)
    with pytest.raises(ExceptionGroup) as caught:
        async with world.inventory(APPLIED) as running:
            await running
    with capture_logs() as logs:
        code = report(caught.value, Instruments.make(InventoryMetrics).log)
    assert code == MISCONFIGURED
    assert "one source of queues: iron are declared by berth queues apply, and " in logs[0]["reason"]
    assert list(told(world)) == ["iron"]


async def test_queues_of_persons_stay_beside_the_queues_that_every_volcano_makes(world: World) -> None:
    await world.bus.publish(world.bus.subjects.fact_queue("default"), encode(QueueSeen(Queue("default"), by="ops")))
    put(world, "default")
    async with world.inventory(APPLIED):
        await world.has(world.nodes, "the nodes")
        await world.quiet()
    assert [fact.by for fact in world.facts("queue", QueueSeen)] == ["ops"]


async def test_queues_that_persons_declare_while_it_runs_are_told_and_nothing_more_is_published(world: World) -> None:
    put(world, "gold", chips=8)
    async with world.inventory(APPLIED):
        await world.has(lambda: "gold" in told(world), "the queue")
        iron = world.bus.subjects.fact_queue("iron")
        with capture_logs() as logs:
            await world.bus.publish(iron, encode(QueueSeen(Queue("iron"), by="ops")))
            await world.has(lambda: any(log["event"] == "queues are not published" for log in logs), "a complaint")
            put(world, "gold", chips=16)
            await world.quiet()
        assert told(world) == {"gold": 800, "iron": None}
        await world.bus.publish(iron, encode(QueueSeen(Queue("iron"), gone=True)))
        await world.has(lambda: told(world) == {"gold": 1_600}, "the change")


async def test_it_works_where_queues_may_not_be_listed(world: World) -> None:
    world.kube.fail(RefusedError("not allowed", status=403), part=PATH)
    async with world.inventory(APPLIED):
        await world.has(world.nodes, "the nodes")
