"""Reports that make no sense: unknown chips, nodes and levels, recovery before a fault, old reports, contradictions.

And reports without news, of which there are most.
"""

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from berth.core.cluster.node_packing import unpack_health
from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.services.health import loop
from berth.services.health.condition_cache import ConditionCache
from tests.support.device_texts import fault_row, node_cfg
from tests.support.health_worlds import World, a_node
from tests.support.waiting import until

OK, SUB, NO_NEW, EVICT = NodeHealth


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    await found.nodes("d", a_node("a"), a_node("b"))
    for name in "ab":
        found.device(name)
    yield found
    await found.bus.close()


async def test_a_fault_of_an_unknown_node_is_refused_and_changes_nothing(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        before = world.history("d")
        answer = await world.ask(b'{"node":"nobody","unhealthy":[1]}', "nobody")
        assert answer["error"].startswith("node is 'nobody', expected a node of the cluster")
        world.device("nobody", unhealthy=[1])
        world.device("a", unhealthy=[2])
        await world.has("a", unhealthy=4)
        assert len(world.history("d")) == len(before) + 1
        assert world.published("nobody") is None


async def test_a_fault_of_an_unknown_chip_leaves_the_others(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        answer = await world.ask(b'{"node":"a","unhealthy":[1,12]}')
        assert answer["error"].startswith("unhealthy[1] is 12, expected a chip of the node, which has 0, ")
        row = await world.has("a", unhealthy=0)
        await until(lambda: "suspect" in (world.published("a") or row).reason, deadline_s=5, what="the reason")
        world.device("b", unhealthy=[1, 12], faults=[fault_row(12, "RestartNPU")])
        row = await world.has("b", unhealthy=0b10 | 1 << 12)
        assert "Ascend910-12 RestartNPU" in row.reason


async def test_an_agent_does_not_decide_how_long_the_log_is(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        with capture_logs() as logs:
            for chip in range(300, 400):
                assert not (await world.ask(b'{"node":"a","unhealthy":[%d]}' % chip))["ok"]
        assert 0 < sum(one["event"] == "agent report rejected" for one in logs) <= 10


async def test_an_unknown_level_takes_new_work_away_and_is_named(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        answer = await world.ask(b'{"node":"a","level":"melting"}')
        assert answer["error"] == "level is 'melting', expected one of ok, sub-health, no-new-work, evict"
        world.device("b", faults=[fault_row(3, "Melting")])
        row = await world.has("b", withheld=8)
        assert "Ascend910-3 Melting 80E24E00 is no known level" in row.reason
        world.noded("b", node_cfg("Molten"))
        row = await world.has("b", level=NO_NEW)
        assert "Molten" in row.reason


async def test_a_recovery_before_any_fault_is_no_flapping_and_ends(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        world.device("a", recovering=[3])
        await world.has("a", recovering=8, unhealthy=0)
        world.device("a")
        row = await world.has("a", recovering=0)
        assert (row.withheld, row.reason) == (0, "")


async def test_an_old_report_changes_nothing(world: World) -> None:
    async with world.service():
        assert await world.ask(b'{"node":"a","unhealthy":[2],"updated_ms":9000}') == {"ok": True}
        await world.has("a", unhealthy=4)
        answer = await world.ask(b'{"node":"a","updated_ms":8999}')
        assert answer["error"].startswith("updated_ms is 8999, expected 9000, the time of the last report")
        assert await world.ask(b'{"node":"a","unhealthy":[2],"updated_ms":9000}') == {"ok": True}
        assert (await world.has("a", unhealthy=4)).reason == ""
        assert await world.ask(b'{"node":"a","updated_ms":9001}') == {"ok": True}
        await world.has("a", unhealthy=0)


async def test_of_another_agent_or_after_a_clock_was_set_back_an_older_time_counts(world: World) -> None:
    async with world.service():
        assert await world.ask(b'{"node":"a","unhealthy":[2],"updated_ms":900000}') == {"ok": True}
        assert await world.ask(b'{"node":"a","unhealthy":[3],"updated_ms":899000,"source":"x"}') == {"ok": True}
        await world.has("a", unhealthy=8)
        assert await world.ask(b'{"node":"a","unhealthy":[4],"updated_ms":298999,"source":"x"}') == {"ok": True}
        await world.has("a", unhealthy=16)
        assert await world.ask(b'{"node":"a","unhealthy":[5],"source":"x"}') == {"ok": True}
        await world.has("a", unhealthy=32)


async def test_of_sources_that_contradict_one_another_the_worse_counts(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        assert await world.ask(b'{"node":"a","unhealthy":[2],"source":"x"}') == {"ok": True}
        row = await world.has("a", unhealthy=4)
        assert row.sources == HealthSource.AGENT
        world.noded("a", node_cfg("UnHealthy"))
        row = await world.has("a", level=EVICT, unhealthy=4)
        assert row.sources == HealthSource.AGENT | HealthSource.NODED
        world.device("a", unhealthy=[2])
        await world.has("a", sources=HealthSource.DEVICE_PLUGIN | HealthSource.NODED | HealthSource.AGENT)
        assert await world.ask(b'{"node":"a","source":"x"}') == {"ok": True}
        row = await world.has("a", unhealthy=4, sources=HealthSource.DEVICE_PLUGIN | HealthSource.NODED)
        world.device("a")
        await world.has("a", unhealthy=0, level=EVICT, sources=HealthSource.NODED)


async def test_a_report_without_news_makes_no_fact_until_times_are_due(world: World) -> None:
    world.configure(source="none")
    async with world.service():
        await world.ask(b'{"node":"a","unhealthy":[2]}')
        await world.ask(b'{"node":"b"}', "b")
        await world.has("a", unhealthy=4)
        await world.has("b", level=OK)
        before = len(world.history("d"))
        for _ in range(5):
            world.clock.advance(50)
            for name in "ab":
                report = b'{"node":"%s"%s}' % (name.encode(), b',"unhealthy":[2]' if name == "a" else b"")
                assert await world.ask(report, name) == {"ok": True}
        assert len(world.history("d")) == before
        world.clock.advance(50)
        await world.ask(b'{"node":"b"}', "b")
        await until(lambda: len(world.history("d")) > before, deadline_s=5, what="the times")
        now_ms = world.clock.now_ms()
        rows = {row.name: now_ms - row.updated_ms for row in unpack_health(world.history("d")[-1])}
        assert rows == {"a": 50_000, "b": 0}


async def test_a_report_without_news_keeps_its_node_from_growing_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_REFRESH_MS", 3_600_000)
    world.configure(source="none")
    async with world.service():
        await world.ask(b'{"node":"a"}')
        await world.has("a", level=OK)
        for _ in range(3):
            world.clock.advance(400)
            await world.ask(b'{"node":"a"}')
            await world.ask(b'{"node":"b","reason":"%d"}' % world.clock.now_ms(), "b")
            await until(
                lambda: str(world.clock.now_ms()) in (world.history("d")[-1].reasons or [""])[0],
                deadline_s=5,
                what="the other node",
            )
            assert (await world.has("a")).level is OK
        world.clock.advance(601)
        await world.has("a", level=NO_NEW)
        await world.ask(b'{"node":"a"}')
        await world.has("a", level=OK)


async def test_a_damaged_report_and_then_the_same_as_before_ends_the_doubt(world: World) -> None:
    world.configure(source="none")
    async with world.service():
        await world.ask(b'{"node":"a"}')
        row = await world.has("a", level=OK)
        assert not (await world.ask(b'{"node":"a","unhealthy":[12]}'))["ok"]
        await until(lambda: "suspect" in (world.published("a") or row).reason, deadline_s=5, what="the doubt")
        await world.ask(b'{"node":"a"}')
        await world.has("a", reason="")


def test_only_nodes_that_are_due_are_judged_again() -> None:
    cache = ConditionCache()
    cache.mark("d", ["a"])
    assert cache.take("d", ["a", "b"]) == (["a", "b"], {}), "none is known"
    rows = {name: NodeCondition(name) for name in "ab"}
    cache.keep("d", rows)
    assert not cache
    cache.mark("d", ["b", "gone"])
    cache.mark("e")
    assert (cache.due(), len(cache)) == (["d", "e"], 2)
    assert cache.take("d", ["a", "b"]) == (["b"], {"a": rows["a"]})
    cache.mark("d")
    assert cache.take("d", ["a", "b"]) == ([], rows)
    cache.mark("d", ["a"])
    cache.mark_all(["d"])
    cache.mark("d", ["a"])
    assert cache.take("d", ["a", "b", "c"]) == (["a", "b", "c"], {})
    cache.keep("d", {})
    assert cache.take("d", ["a"]) == (["a"], {})
