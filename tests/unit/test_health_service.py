"""The service on a bus and an API server in memory, with a clock that moves when told."""

import json
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from berth.core.packing import pack_health, unpack_health
from berth.formats.node_products import LABEL_SOFT_SHARE
from schemas.envelope import encode
from schemas.facts import NodeHealth
from schemas.nodes import NodeCondition
from schemas.reports import HealthReport
from tests.support.device_texts import (
    RES,
    device_cfg,
    device_chunk,
    device_list,
    fault_row,
    node_cfg,
    switch_entry,
)
from tests.support.health_worlds import CIM, MINDX, SYSTEM, World, a_node
from tests.support.waiting import until

OK, SUB, NO_NEW, EVICT = NodeHealth


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    yield found
    await found.bus.close()


async def test_a_cluster_that_is_well(world: World) -> None:
    await world.nodes("d", a_node("a"), a_node("b"), a_node("cpu", resource="", chips=0))
    world.device("a")
    world.device("b", unhealthy=[7], faults=[fault_row(7, "RestartNPU")])
    async with world.service():
        await world.has("a", level=OK, reason="", unhealthy=0, network_known=True)
        await world.has("b", level=OK, unhealthy=128, reason="device plug-in: Ascend910-7 RestartNPU 80E24E00")
        assert world.said("cpu") is None
    (fact,) = world.history("d")
    assert (fact.source, fact.at_ms) == ("direct", world.clock.now_ms())


async def test_changes_are_said_and_a_restart_says_nothing_new(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a")
    async with world.service():
        await world.has("a", level=OK)
        world.clock.advance(3)
        world.device("a", network=[1], recovering=[2])
        await world.has("a", network_unhealthy=2, recovering=4)
        world.noded("a", node_cfg("UnHealthy", [("CPU", 0, "00AA", "SeparateFault")]))
        await world.has("a", level=EVICT, reason="NodeD: node status is UnHealthy: CPU 0 SeparateFault 00AA")
        world.kube.confirm(f"{MINDX}/mindx-dl-nodeinfo-a")
        await world.has("a", level=OK, reason="")
    before = world.history("d")
    async with world.service():
        await world.ask(b'{"node":"nobody"}')
    assert world.history("d") == before


async def test_a_report_that_grows_old_takes_new_work_away_until_the_next(world: World) -> None:
    await world.nodes("d", a_node("a"), a_node("b"))
    world.device("a")
    world.device("b")
    async with world.service():
        await world.has("a", level=OK)
        world.clock.advance(400)
        world.device("b")
        world.clock.advance(200)
        await world.ask(b"{}")
        assert world.said("a") == NodeCondition("a", updated_ms=world.clock.now_ms() - 600_000)
        world.clock.advance(1)
        await world.has("a", level=NO_NEW, reason="device plug-in: report is more than 10 min old (limit 10 min)")
        await world.has("b", level=OK)
        world.clock.advance(600)
        await world.has("a", level=NO_NEW, reason="device plug-in: report is more than 20 min old (limit 10 min)")
        await world.has("b", level=NO_NEW)
        world.device("a")
        await world.has("a", level=OK, reason="", updated_ms=world.clock.now_ms())
        await world.has("b", level=NO_NEW)


async def test_a_node_without_a_report_takes_no_new_work(world: World) -> None:
    await world.nodes("d", a_node("a"))
    async with world.service():
        await world.has("a", level=NO_NEW, updated_ms=0)
        world.device("a")
        await world.has("a", level=OK, reason="")
        await world.nodes("e", a_node("late"))
        found = await world.has("late", "e", level=NO_NEW)
        assert found.reason == "device plug-in: no report, ConfigMap kube-system/mindx-dl-deviceinfo-late is missing"


async def test_a_report_that_is_deleted_ages(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a", unhealthy=[3], switch=json.dumps(switch_entry("SubHealthy", "SubHealthFault", world.now_s)))
    async with world.service():
        await world.has("a", level=SUB, unhealthy=8)
        world.kube.confirm(f"{SYSTEM}/mindx-dl-deviceinfo-a")
        await world.has("a", level=OK, unhealthy=8)
    async with world.service():
        await world.ask(b"{}")
        assert world.said("a") == NodeCondition("a", unhealthy=8, updated_ms=world.clock.now_ms())
        world.clock.advance(601)
        await world.has("a", level=NO_NEW)


async def test_nodes_that_only_the_switch_is_wrong_with(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a", switch=json.dumps(switch_entry("UnHealthy", "Separate", world.now_s)))
    async with world.service():
        await world.has("a", level=EVICT, reason="switch: node status is UnHealthy, fault level Separate")
        world.device("a", switch="{")
        found = await world.has("a", level=EVICT)
        await until(lambda: "suspect" in (world.said("a") or found).reason, deadline_s=5, what="a suspect node")
        world.device("a")
        await world.has("a", level=OK, reason="")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", device_cfg(device_list(free=[]), 1_700_000_000)[:-40], device_cfg(device_list(free=[]), 5, code="0" * 64),
        "{}", device_cfg({RES: "rubbish"}, 1_700_000_000),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_leaves_the_last_good_word_and_is_said(world: World, text: str) -> None:
    await world.nodes("d", a_node("a"), a_node("b"))
    world.device("a", unhealthy=[3])
    async with world.service():
        await world.has("a", unhealthy=8, reason="")
        with capture_logs() as logs:
            for bad in (text, text + " "):
                world.device_map("a", bad)
                world.device("b", unhealthy=[len(bad) % 8])
                await world.has("b", unhealthy=1 << len(bad) % 8)
        found = await world.has("a", unhealthy=8, level=OK)
        assert found.reason.startswith("device plug-in is suspect: newest report refused, DeviceInfoCfg")
        refused = [entry for entry in logs if entry["event"] == "report refused, the last good one holds"]
        assert [(entry["node"], entry["source"]) for entry in refused] == [("a", "device plug-in")]
        world.device("a")
        await world.has("a", unhealthy=0, reason="")


async def test_a_configmap_without_its_key_and_one_of_another_kind(world: World) -> None:
    await world.nodes("d", a_node("a"))
    meta = {"name": "mindx-dl-deviceinfo-a", "namespace": "kube-system", "labels": CIM}
    world.kube.put(SYSTEM, {"metadata": meta, "data": {"Other": ""}})
    world.kube.put(SYSTEM, {"metadata": {"name": "else", "namespace": "kube-system", "labels": CIM}})
    async with world.service():
        found = await world.has("a", level=NO_NEW)
        assert found.reason == (
            "no report that can be read; device plug-in is suspect: newest report refused,"
            " data.DeviceInfoCfg is None, expected a text; the keys are ['Other']"
        )


async def test_chips_that_the_plug_in_does_not_offer_are_withheld_in_process_two(world: World) -> None:
    world.configure(self_maintain_available_card=False)
    await world.nodes("d", a_node("a"))
    world.device("a", free=[0, 1, 2, 3])
    async with world.service():
        await world.has("a", withheld=0xF0)
        await world.pods("g", a=0xF0)
        world.clock.advance(3)
        world.device("a", free=range(8))
        await world.has("a", withheld=0xF0, updated_ms=world.clock.now_ms() - 3_000)
        await world.pods("g", a=0)
        await world.has("a", withheld=0)
        await world.pods("g", a=0x0F)
        world.clock.advance(3)
        world.device("a", free=[4, 5, 6, 7])
        await world.has("a", withheld=0x0F)
        world.clock.advance(3)
        world.device("a", free=range(8), network=[0])
        await world.has("a", withheld=0x0F, network_unhealthy=1)
        world.clock.advance(11)
        await world.has("a", withheld=0)


async def test_shared_chips_are_withheld_unless_pods_hold_them(world: World) -> None:
    await world.nodes("d", a_node("a", labels={LABEL_SOFT_SHARE: "true"}))
    world.device("a", free=[0, 1])
    async with world.service():
        await world.has("a", withheld=0b1111_1100)
        await world.pods("g", a=0b100)
        await world.has("a", withheld=0b1111_1000)


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


async def test_damaged_chunks_of_clusterd(world: World) -> None:
    world.configure(source="clusterd")
    await world.nodes("d", a_node("a"), a_node("b"))
    text = device_chunk({"a": (device_list(unhealthy=[1]), world.now_s), "b": (device_list(), world.now_s)})
    world.chunk("cluster-info-device-0", text)
    async with world.service():
        await world.has("a", unhealthy=2, reason="")
        world.chunk("cluster-info-device-0", text[:-10])
        found = await world.has("a", unhealthy=2, level=OK)
        await until(lambda: "suspect" in (world.said("a") or found).reason, deadline_s=5, what="suspects")
        assert "cluster-info-device-0 is " in (world.said("b") or found).reason
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
        await until(lambda: "suspect" in (world.said("a") or found).reason, deadline_s=5, what="a suspect node")
        await world.bus.send(
            world.bus.subjects.report_health("a"), encode(HealthReport("a", level="evict", reason="fire"))
        )
        await world.has("a", level=EVICT, unhealthy=0, reason="agent: level evict, fire")
        world.clock.advance(601)
        await world.has("a", reason="agent: level evict, fire, report is more than 10 min old (limit 10 min)")
        assert not (await world.ask(b"rubbish"))["ok"]


async def test_what_agents_said_outlives_the_service(world: World) -> None:
    world.configure(source="none")
    await world.nodes("d", a_node("a"))
    async with world.service():
        await world.ask(b'{"node":"a","unhealthy":[2]}')
        await world.has("a", level=OK, unhealthy=4)
    before = world.history("d")
    async with world.service():
        await world.ask(b'{"node":"nobody"}')
        assert world.history("d") == before
        world.clock.advance(601)
        await world.has("a", level=NO_NEW)


async def test_nodes_that_change_domains_and_domains_that_go(world: World) -> None:
    await world.nodes("d", a_node("a"), a_node("b"))
    for node in "ab":
        world.device(node, unhealthy=[1])
    old = pack_health("gone", [NodeCondition("z", unhealthy=1)])
    await world.put(world.bus.subjects.fact_health("gone"), old)
    async with world.service():
        await world.has("a", unhealthy=2)
        await until(lambda: world.history("gone")[-1].names == b"", deadline_s=5, what="the old domain to be emptied")
        await world.nodes("d", a_node("b"))
        await world.nodes("e", a_node("a"))
        await world.has("a", "e", unhealthy=2)
        await until(lambda: world.said("a") is None, deadline_s=5, what="the node to leave its domain")
        await world.has("b", unhealthy=2)
        await world.nodes("e")
        await until(lambda: world.history("e")[-1].names == b"", deadline_s=5, what="the domain to be emptied")


async def test_that_sources_spoke_again_is_said_now_and_then(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a")
    async with world.service():
        await world.has("a", level=OK)
        for _ in range(10):
            world.clock.advance(100)
            world.device("a")
            await world.ask(b"{}")
    spoke = [unpack_health(fact)[0].updated_ms - 1_700_000_000_000 for fact in world.history("d")]
    assert spoke == [0, 300_000, 600_000, 900_000]


async def test_facts_that_cannot_be_stored_are_stored_later(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a")
    async with world.service():
        await world.has("a", level=OK)
        with capture_logs() as logs:
            world.server.is_down = True
            world.device("a", unhealthy=[1])
            await until(
                lambda: sum(entry["event"] == "facts not stored" for entry in logs) > 1, deadline_s=5, what="two tries"
            )
        world.server.is_down = False
        await world.has("a", unhealthy=2)


async def test_without_an_api_server_what_was_said_holds_and_then_ages(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a", unhealthy=[1])
    async with world.service():
        await world.has("a", unhealthy=2)
    before = world.history("d")
    world.kube.watching.clear()
    async with world.service():
        assert not (await world.ask(b"{}"))["ok"]
        assert world.history("d") == before
        world.clock.advance(601)
        found = await world.has("a", level=NO_NEW, unhealthy=0)
        assert found.reason == "the last report is more than 10 min old (limit 10 min); its source is silent since"


async def test_facts_that_cannot_be_read_do_not_end_the_service(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a")
    await world.bus.publish(world.bus.subjects.fact_health("odd"), b"rubbish")
    async with world.service():
        await world.has("a", level=OK)
        await world.bus.publish(world.bus.subjects.fact_node("x"), b"rubbish")
        world.device("a", unhealthy=[1])
        await world.has("a", unhealthy=2)
