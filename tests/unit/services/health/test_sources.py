"""Health as ClusterD and as agents tell it, on a bus and an API server in memory."""

import json
from collections.abc import AsyncIterator

import pytest

from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import HealthReport
from tests.support.device_texts import (
    device_chunk,
    device_list,
    switch_entry,
)
from tests.support.health_worlds import MINDX, World, a_node
from tests.support.waiting import until

OK, SUB, NO_NEW, EVICT = NodeHealth


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    yield found
    await found.bus.close()


async def test_chunks_of_clusterd(world: World) -> None:
    world.configure(source="clusterd")
    await world.nodes("d", a_node("a"), a_node("b"), a_node("c"))
    good = device_list()
    world.chunk("cluster-info-device-0", device_chunk({"a": (good, world.now_s), "b": (good, world.now_s)}))
    world.chunk("cluster-info-device-1", "")
    world.chunk("cluster-info-node-cm", "")
    world.chunk("something-else", "{")
    async with world.service():
        await world.has("a", level=OK, reason="")
        await world.has("c", level=NO_NEW)
        world.clock.advance(5)
        sick = device_list(unhealthy=[1])
        world.chunk("cluster-info-device-0", device_chunk({"c": (good, world.now_s)}))
        await world.has("c", level=OK)
        await world.has("a", level=OK)
        world.chunk("cluster-info-device-1", device_chunk({"a": (sick, world.now_s), "b": (good, world.now_s)}))
        await world.has("a", unhealthy=2)
        entry = {"FaultDevList": [], "NodeStatus": "PreSeparate", "UpdateTime": world.clock.now_ms()}
        world.chunk("cluster-info-node-cm", json.dumps({"mindx-dl-nodeinfo-b": entry}))
        await world.has("b", level=NO_NEW, reason="NodeD via ClusterD: node status is PreSeparate")
        switch = {"mindx-dl-switchinfo-c": switch_entry("SubHealthy", "SubHealthFault", world.now_s)}
        world.chunk("cluster-info-switch-0", json.dumps(switch))
        await world.has("c", level=SUB)
        world.chunk("cluster-info-node-cm", "")
        await world.has("b", level=OK, reason="")
        world.chunk("cluster-info-switch-0", "")
        world.clock.advance(1)
        world.chunk("cluster-info-device-0", device_chunk({"b": (sick, world.now_s)}))
        await world.has("b", unhealthy=2)
        world.clock.advance(597)
        world.chunk("cluster-info-device-0", device_chunk(dict.fromkeys("abc", (good, world.now_s))))
        await world.has("b", unhealthy=0)
        await world.has("c", level=SUB)
        world.clock.advance(4)
        await world.has("c", level=OK, reason="")
        world.clock.advance(600)
        await world.has("a", level=NO_NEW)


async def test_a_clock_that_is_behind_is_known_once_a_chunk_changes(world: World) -> None:
    """A report is as old as it says until another one is seen to come; lists may hold what came long ago."""
    world.configure(source="clusterd")
    await world.nodes("d", a_node("a"))

    def report() -> None:
        world.chunk("cluster-info-device-0", device_chunk({"a": (device_list(), world.now_s - 1_000)}))

    report()
    async with world.service():
        await world.has("a", level=NO_NEW)
        world.clock.advance(5)
        report()
        await world.has("a", level=OK)


async def test_damaged_chunks_of_clusterd(world: World) -> None:
    world.configure(source="clusterd")
    await world.nodes("d", a_node("a"), a_node("b"))
    text = device_chunk({"a": (device_list(unhealthy=[1]), world.now_s), "b": (device_list(), world.now_s)})
    world.chunk("cluster-info-device-0", text)
    async with world.service():
        await world.has("a", unhealthy=2, reason="")
        world.chunk("cluster-info-device-0", text[:-10])
        found = await world.has("a", unhealthy=2, level=OK)
        await until(lambda: "suspect" in (world.published("a") or found).reason, deadline_s=5, what="suspects")
        assert "cluster-info-device-0 is " in (world.published("b") or found).reason
        tree = json.loads(text)
        tree["mindx-dl-deviceinfo-a"]["DeviceList"] = None
        world.chunk("cluster-info-device-0", json.dumps(tree))
        await world.has("b", reason="")
        assert "DeviceList is None" in (await world.has("a", unhealthy=2)).reason
        world.chunk("cluster-info-device-0", text)
        await world.has("a", unhealthy=2, reason="")
        world.kube.confirm(f"{MINDX}/cluster-info-device-0")
        world.clock.advance(601)
        await world.has("a", unhealthy=2, level=NO_NEW)


async def test_agents_report_straight_to_the_bus(world: World) -> None:
    world.configure(source="none")
    await world.nodes("d", a_node("a"))
    async with world.service():
        await world.has("a", level=NO_NEW, reason="agent: no report yet")
        assert await world.ask(b'{"node":"a","unhealthy":[2],"source":"watcher"}') == {"ok": True}
        await world.has("a", level=OK, unhealthy=4, reason="")
        wrong = await world.ask(b'{"node":"a","unhealthy":[12]}')
        assert wrong["error"] == "unhealthy[0] is 12, expected a chip of the node, which has 0, 1, 2, 3, 4, 5, 6, 7"
        found = await world.has("a", level=OK, unhealthy=4)
        await until(lambda: "suspect" in (world.published("a") or found).reason, deadline_s=5, what="a suspect node")
        await world.bus.send(
            world.bus.subjects.report_health("a"), encode(HealthReport("a", level="evict", reason="fire"))
        )
        await world.has("a", level=EVICT, unhealthy=0, reason="agent: level evict, fire")
        world.clock.advance(601)
        await world.has("a", reason="agent: level evict, fire, report is more than 10 min old (limit 10 min)")
        assert not (await world.ask(b"rubbish"))["ok"]


async def test_an_agent_reports_of_the_node_of_its_subject_alone(world: World) -> None:
    world.configure(source="none")
    await world.nodes("d", a_node("a"), a_node("node.b"))
    async with world.service():
        assert await world.ask(b'{"node":"node.b"}', "node.b") == {"ok": True}
        await world.has("node.b", level=OK)
        before = world.history("d")
        for other in (b'{"node":"node.b","level":"evict"}', b'{"node":"node.b","unhealthy":[12]}'):
            answer = await world.ask(other, "a")
            assert answer == {"ok": False, "error": "node is 'node.b', expected a, the last token of the subject"}
        assert await world.ask(b'{"node":"a"}', "a") == {"ok": True}
        await world.has("a", level=OK)
        after = world.history("d")
        assert len(after) == len(before) + 1
        assert (await world.has("node.b", level=OK)).reason == ""


async def test_what_agents_said_outlives_the_service(world: World) -> None:
    world.configure(source="none")
    await world.nodes("d", a_node("a"))
    async with world.service():
        await world.ask(b'{"node":"a","unhealthy":[2]}')
        await world.has("a", level=OK, unhealthy=4)
    before = world.history("d")
    async with world.service():
        await world.ask(b'{"node":"nobody"}', "nobody")
        assert world.history("d") == before
        world.clock.advance(601)
        await world.has("a", level=NO_NEW)


async def test_chunks_of_clusterd_that_went_while_nobody_looked(world: World) -> None:
    world.configure(source="clusterd")
    await world.nodes("d", a_node("a"))
    world.chunk("cluster-info-device-0", device_chunk({"a": (device_list(unhealthy=[1]), world.now_s)}))
    entry = {"FaultDevList": [], "NodeStatus": "PreSeparate", "UpdateTime": world.clock.now_ms()}
    world.chunk("cluster-info-node-cm", json.dumps({"mindx-dl-nodeinfo-a": entry}))
    async with world.service():
        await world.has("a", level=NO_NEW, unhealthy=2)
        world.chunk("cluster-info-node-cm", "{")
        found = await world.has("a", level=NO_NEW)
        await until(
            lambda: "NodeD is suspect" in (world.published("a") or found).reason, deadline_s=5, what="a suspect node"
        )
        world.kube.watching.clear()
        for name in ("cluster-info-node-cm", "cluster-info-device-0"):
            world.kube.confirm(f"{MINDX}/{name}")
        world.kube.relist()
        world.kube.watching.set()
        await world.has("a", level=OK, unhealthy=2, reason="")
