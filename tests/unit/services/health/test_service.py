"""The service on a bus and an API server in memory, with a clock that moves when told."""

import json
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from berth.core.cluster.node_packing import pack_health, unpack_health
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName
from berth.services.health import loop
from tests.support.busy_bus import BusyBus
from tests.support.deaf_bus import DeafBus
from tests.support.device_texts import (
    RES,
    device_cfg,
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
        assert world.published("cpu") is None
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
        assert world.published("a") == NodeCondition("a", updated_ms=world.clock.now_ms() - 600_000)
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


async def test_a_report_that_is_deleted_ends(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a", unhealthy=[3], switch=json.dumps(switch_entry("SubHealthy", "SubHealthFault", world.now_s)))
    async with world.service():
        await world.has("a", level=SUB, unhealthy=8)
        world.kube.confirm(f"{SYSTEM}/mindx-dl-deviceinfo-a")
        found = await world.has("a", level=NO_NEW, unhealthy=0)
        assert found.reason == "device plug-in: no report, ConfigMap kube-system/mindx-dl-deviceinfo-a is missing"
        world.device("a")
        await world.has("a", level=OK, reason="")


async def test_nodes_that_only_the_switch_is_wrong_with(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a", switch=json.dumps(switch_entry("UnHealthy", "Separate", world.now_s)))
    async with world.service():
        await world.has("a", level=EVICT, reason="switch: node status is UnHealthy, fault level Separate")
        world.device("a", switch="{")
        found = await world.has("a", level=EVICT)
        await until(lambda: "suspect" in (world.published("a") or found).reason, deadline_s=5, what="a suspect node")
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
        refused = [entry for entry in logs if entry["event"] == "report rejected, last valid one stays in force"]
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
        await until(lambda: world.published("a") is None, deadline_s=5, what="the node to leave its domain")
        await world.has("b", unhealthy=2)
        await world.nodes("e")
        await until(lambda: world.history("e")[-1].names == b"", deadline_s=5, what="the domain to be emptied")


async def test_that_sources_spoke_again_is_said_now_and_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "GAP_S", 0.0)
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
        assert found.reason == "the last report is more than 10 min old (limit 10 min); no newer report"


async def test_facts_that_cannot_be_read_do_not_end_the_service(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a")
    await world.bus.publish(world.bus.subjects.fact_health("odd"), b"rubbish")
    async with world.service():
        await world.has("a", level=OK)
        await world.bus.publish(world.bus.subjects.fact_node("x"), b"rubbish")
        world.device("a", unhealthy=[1])
        await world.has("a", unhealthy=2)


async def test_what_was_missed_is_seen_in_the_next_list(world: World) -> None:
    await world.nodes("d", a_node("a"), a_node("b"))
    for node in "ab":
        world.device(node, switch=json.dumps(switch_entry("UnHealthy", "Separate", world.now_s)))
    world.noded("b", node_cfg("PreSeparate"))
    async with world.service():
        await world.has("a", level=EVICT)
        world.kube.watching.clear()
        world.kube.confirm(f"{MINDX}/mindx-dl-nodeinfo-b")
        world.kube.confirm(f"{SYSTEM}/mindx-dl-deviceinfo-b")
        world.device("a", unhealthy=[1])
        world.clock.advance(60)
        world.kube.relist()
        world.kube.watching.set()
        missing = "device plug-in: no report, ConfigMap kube-system/mindx-dl-deviceinfo-b is missing"
        await world.has("b", level=NO_NEW, reason=missing)
        await world.has("a", level=OK, unhealthy=2, updated_ms=world.clock.now_ms() - 60_000)


async def test_a_damaged_report_of_noded_leaves_its_last_good_word(world: World) -> None:
    await world.nodes("d", a_node("a"))
    world.device("a")
    world.noded("a", node_cfg("PreSeparate"))
    async with world.service():
        await world.has("a", level=NO_NEW, reason="NodeD: node status is PreSeparate")
        world.noded("a", node_cfg("Healthy")[:-3])
        found = await world.has("a", level=NO_NEW)
        await until(
            lambda: "NodeD is suspect" in (world.published("a") or found).reason, deadline_s=5, what="a suspect node"
        )
        world.kube.confirm(f"{MINDX}/mindx-dl-nodeinfo-a")
        await world.has("a", level=OK, reason="")


async def test_pauses_while_the_bus_does_not_answer_double(world: World) -> None:
    world.configure(retry_wait_max_s=0.4)
    await world.nodes("d", a_node("a"))
    world.device("a")
    async with world.service():
        await world.has("a", level=OK)
        with capture_logs() as logs:
            world.server.loses = ".fact.health."
            world.device("a", unhealthy=[3])

            def waits() -> list[float]:
                return [log["wait_s"] for log in logs if log["event"] == "facts not stored"]

            await until(lambda: len(waits()) >= 3, deadline_s=5, what="three failures")
            world.server.loses = ""
        await world.has("a", unhealthy=8)
    assert waits()[:3] == [0.25, 0.4, 0.4], "twice as long each time, up to the longest"


async def test_what_is_as_before_is_said_again_after_a_fact_without_an_answer(world: World) -> None:
    world.configure(retry_wait_max_s=0.1, flap_hold_s=0)
    await world.nodes("d", a_node("a"))
    world.device("a")
    bus = DeafBus(world.server, "test")
    async with world.service(bus):
        await world.has("a", level=OK)
        bus.unanswered = 1
        world.device("a", unhealthy=[3])
        await world.has("a", unhealthy=8)
        world.device("a")
        await world.has("a", unhealthy=0)


async def test_facts_that_come_between_the_first_read_and_the_follow_after_it_count(world: World) -> None:
    async def comes() -> None:
        await world.nodes("late", a_node("b"))

    await world.nodes("d", a_node("a"))
    world.device("a")
    world.device("b", unhealthy=[7])
    async with world.service(BusyBus(world.server, StreamName.LATEST, comes)):
        await world.has("a", level=OK)
        await world.has("b", "late", unhealthy=128)
