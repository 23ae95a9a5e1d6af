"""Refused reports: what they say keeps new work away, and makes no running pod faulty."""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.device_texts import RES, device_cfg, device_list, fault_row, go_text, node_cfg, switch_entry
from tests.support.health_worlds import MINDX, SYSTEM, World, a_node

OK, SUB, NO_NEW, EVICT = NodeHealth
WRONG = "0" * 64


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    await found.nodes("d", a_node("a"), a_node("b"))
    for name in "ab":
        found.device(name)
    yield found
    await found.bus.close()


def refused_device(world: World, node: str = "a", **lists: Any) -> None:  # noqa: ANN401 - of a device list
    """A report with a wrong sum."""
    world.device_map(node, device_cfg(device_list(**lists), world.now_s, code=WRONG))


def refused_node(status: object, **fields: object) -> str:
    return go_text({"NodeInfo": {"FaultDevList": [], "NodeStatus": status, **fields}, "CheckCode": WRONG})


async def is_read(world: World, chip: int) -> None:
    """All that was said before is read: so is a chip of another node of the domain."""
    world.device("b", unhealthy=[chip])
    await world.has("b", unhealthy=1 << chip)


def makes_faulty(row: NodeCondition) -> bool:
    """Whether pods of a node may be faulty by its condition."""
    return bool(row.unhealthy or row.recovering or row.sub_healthy or row.sources) or row.level in {SUB, EVICT}


@pytest.mark.parametrize(
    ("status", "level"),
    [("Healthy", OK), ("SubHealthy", SUB), ("PreSeparate", NO_NEW), ("UnHealthy", EVICT)],
)
async def test_a_08_noded_with_a_heartbeat_is_taken(world: World, status: str, level: NodeHealth) -> None:
    info = {"FaultDevList": [], "HeartbeatTime": 17, "HeartbeatInterval": 5, "NodeStatus": status}
    text = go_text({"NodeInfo": info, "CheckCode": hashlib.sha256(go_text(info).encode()).hexdigest()})
    world.noded("a", text)
    async with world.service():
        row = await world.has("a", level=level)
        assert "suspect" not in row.reason


async def test_of_a_refused_report_and_the_last_valid_one_the_worse_counts_for_each_chip(world: World) -> None:
    world.device("a", unhealthy=[1], recovering=[2])
    async with world.service():
        await world.has("a", unhealthy=2)
        refused_device(world, unhealthy=[3], recovering=[4], network=[5], faults=[fault_row(6, "SubHealthFault")])
        row = await world.has("a", withheld=0b101_1000, network_unhealthy=32)
        assert (row.unhealthy, row.recovering, row.sub_healthy, row.level) == (2, 4, 0, OK)
        assert "refused report: no new work on chips 3,4" in row.reason
        assert "refused report of device plug-in: Ascend910-6 SubHealthFault" in row.reason


async def test_fields_that_are_ordered_otherwise_after_the_sum_was_taken_keep_new_work_away_alone(world: World) -> None:
    """Which order the sum was taken in cannot be known; what the report says of health counts all the same."""
    info = {"FaultDevList": [], "HeartbeatTime": 17, "HeartbeatInterval": 5, "NodeStatus": "UnHealthy"}
    code = hashlib.sha256(go_text(info).encode()).hexdigest()
    async with world.service():
        world.noded("a", go_text({"NodeInfo": dict(reversed(info.items())), "CheckCode": code}))
        row = await world.has("a", level=NO_NEW)
        assert "refused report of NodeD: node status is UnHealthy" in row.reason
        assert not makes_faulty(row)


async def test_a_newer_refused_report_replaces_it_and_a_valid_one_ends_it(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        refused_device(world, unhealthy=[3])
        await world.has("a", withheld=8)
        refused_device(world, unhealthy=[5])
        await world.has("a", withheld=32)
        world.device_map("a", "{")
        row = await world.has("a", withheld=0, level=OK)
        assert "expected JSON" in row.reason
        refused_device(world, unhealthy=[5])
        await world.has("a", withheld=32)
        world.device("a")
        await world.has("a", withheld=0, reason="")


async def test_nothing_that_a_refused_report_says_makes_pods_faulty(world: World) -> None:
    rows = [fault_row(1, "SubHealthFault"), fault_row("", "SeparateNPU", kind="NodeUnhealthy")]
    async with world.service():
        await world.has("a", level=OK)
        refused_device(world, unhealthy=[3], recovering=[4], faults=rows)
        row = await world.has("a", level=NO_NEW)
        assert not makes_faulty(row)
        world.noded("b", refused_node("UnHealthy"))
        row = await world.has("b", level=NO_NEW)
        assert not makes_faulty(row)
        assert "refused report of NodeD: node status is UnHealthy" in row.reason
        world.noded("b", refused_node("SubHealthy"))
        await world.has("b", level=NO_NEW)
        world.noded("b", refused_node("Healthy"))
        await world.has("b", level=OK)


async def test_a_valid_level_stays_the_worse_one(world: World) -> None:
    world.noded("a", node_cfg("UnHealthy"))
    async with world.service():
        await world.has("a", level=EVICT)
        world.noded("a", refused_node("Healthy"))
        world.device("b", unhealthy=[1])
        await world.has("b", unhealthy=2)
        await world.has("a", level=EVICT)
        world.kube.confirm(f"{MINDX}/mindx-dl-nodeinfo-a")
        row = await world.has("a", level=OK)
        assert row.reason == "", "the ConfigMap is gone, and both reports with it"


async def test_a_device_report_that_goes_takes_the_refused_one_with_it(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        refused_device(world, unhealthy=[3])
        await world.has("a", withheld=8)
        world.kube.confirm(f"{SYSTEM}/mindx-dl-deviceinfo-a")
        row = await world.has("a", withheld=0, level=NO_NEW)
        assert "suspect" not in row.reason


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "NodeInfo is '{', expected JSON"),
        (refused_node(5), "NodeInfo.NodeInfo.NodeStatus is 5, expected `str`, got `int`"),
        (refused_node(""), "NodeInfo.NodeInfo.NodeStatus is '', expected a status"),
        (refused_node("", State="UnHealthy"), "NodeInfo.NodeInfo.NodeStatus is '', expected a status"),
    ],
)
async def test_a_node_report_without_a_health_keeps_new_work_away_and_names_the_field(
    world: World, text: str, field: str
) -> None:
    world.noded("a", text)
    async with world.service():
        row = await world.has("a", level=NO_NEW)
        assert "NodeD: no report that can be read" in row.reason
        assert field in row.reason
        world.noded("a", node_cfg("Healthy"))
        await world.has("a", level=OK, reason="")
        world.noded("a", text)
        world.device("b", unhealthy=[1])
        await world.has("b", unhealthy=2)
        row = await world.has("a", level=OK)
        assert "NodeD is suspect" in row.reason, "the last valid report is in force"


async def test_a_switch_report_without_a_health_keeps_new_work_away(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        world.device("a", switch='{"State": "UnHealthy"}')
        row = await world.has("a", level=NO_NEW)
        assert "SwitchInfoCfg.NodeStatus is None, expected a status, or a level in FaultLevel" in row.reason
        entry = switch_entry("UnHealthy", "Separate", world.now_s) | {"UpdateTime": "now"}
        world.device("a", switch=json.dumps(entry))
        row = await world.has("a", level=NO_NEW)
        assert not makes_faulty(row)


async def test_of_a_node_without_a_valid_report_a_refused_one_counts_if_its_health_can_be_read(world: World) -> None:
    await world.nodes("d", a_node("a"), a_node("b"), a_node("c"))
    refused_device(world, "c", unhealthy=[3])
    async with world.service():
        row = await world.has("c", level=OK, withheld=8)
        assert not makes_faulty(row)
        world.device_map("c", json.dumps({"DeviceInfo": {"DeviceList": {**device_list(), f"{RES}-Unhealthy": 5}}}))
        row = await world.has("c", level=NO_NEW)
        assert "DeviceList[huawei.com/Ascend910-Unhealthy] is 5, expected `str`, got `int`" in row.reason
        world.device_map("c", json.dumps({"DeviceInfo": {"Devices": {}}, "CheckCode": "x"}))
        row = await world.has("c", level=NO_NEW)
        assert "no report that can be read" in row.reason


async def test_refused_reports_keep_their_node_from_growing_old_if_their_health_can_be_read(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        for _ in range(3):
            world.clock.advance(400)
            refused_device(world, "a")
            world.device_map("b", "{")
            row = await world.has("a", level=OK, updated_ms=world.clock.now_ms())
            assert "device plug-in is suspect" in row.reason
        row = await world.has("b", level=NO_NEW)
        assert "report is more than 10 min old" in row.reason
        world.clock.advance(601)
        await world.has("a", level=NO_NEW)


async def test_after_a_restart_the_faults_of_the_last_valid_report_count_beside_a_refused_one(world: World) -> None:
    world.device("a", unhealthy=[1], faults=[fault_row(1, "RestartNPU")])
    async with world.service():
        await world.has("a", unhealthy=2)
        refused_device(world, unhealthy=[3])
        await world.has("a", unhealthy=2, withheld=8)
    async with world.service():
        world.clock.advance(1)
        refused_device(world, unhealthy=[5])
        row = await world.has("a", unhealthy=2, network_unhealthy=0)
        world.clock.advance(601)
        refused_device(world, unhealthy=[5], network=[0])
        row = await world.has("a", unhealthy=2, withheld=32, network_unhealthy=1)
        assert row.level is OK
        assert row.reason.count("is suspect") == 1
        world.device("a")
        await world.has("a", unhealthy=0, withheld=0, reason="")


async def test_after_a_restart_the_last_valid_level_of_noded_counts_beside_a_refused_one(world: World) -> None:
    world.noded("a", node_cfg("UnHealthy"))
    async with world.service():
        await world.has("a", level=EVICT)
        world.noded("a", refused_node("Healthy"))
        world.device("b", unhealthy=[1])
        await world.has("b", unhealthy=2)
    async with world.service():
        world.device("b", unhealthy=[2])
        await world.has("b", unhealthy=4)
        row = await world.has("a", level=EVICT)
        assert row.sources == HealthSource.NODED
        world.noded("a", node_cfg("Healthy"))
        await world.has("a", level=OK, reason="")


@pytest.mark.parametrize("status", ["UnHealthy", "SubHealthy"])
async def test_after_a_restart_the_last_valid_level_of_the_switch_counts_beside_a_refused_one(
    world: World, status: str
) -> None:
    level = EVICT if status == "UnHealthy" else SUB
    world.device("a", switch=json.dumps(switch_entry(status, "Separate", world.now_s)))
    async with world.service():
        await world.has("a", level=level)
        world.device("a", switch="{")
        await is_read(world, 1)
    for chip in (2, 3):
        async with world.service():
            await is_read(world, chip)
            row = await world.has("a", level=level)
            assert row.sources == HealthSource.DEVICE_PLUGIN
            assert "switch is suspect" in row.reason
    async with world.service():
        world.device("a", switch="")
        await world.has("a", level=OK, reason="")
        world.device("a", switch="{")
        row = await world.has("a", level=NO_NEW)
        assert not makes_faulty(row), "what the earlier run knew is over"


async def test_after_a_restart_the_level_by_noded_is_its_own(world: World) -> None:
    """The switch had made the node unhealthy, and does no longer."""
    world.noded("a", node_cfg("PreSeparate"))
    world.device("a", switch=json.dumps(switch_entry("UnHealthy", "Separate", world.now_s)))
    async with world.service():
        await world.has("a", level=EVICT)
        world.noded("a", refused_node("Healthy"))
        await is_read(world, 1)
    world.device("a", switch="")
    async with world.service():
        await is_read(world, 2)
        row = await world.has("a", level=NO_NEW)
        assert "NodeD: level no-new-work by its last valid report" in row.reason


async def test_what_an_agent_said_of_chips_that_it_has_counts_though_the_report_is_refused(world: World) -> None:
    async with world.service():
        await world.has("a", level=OK)
        assert not (await world.ask(b'{"node":"a","unhealthy":[1,12],"level":"evict","reason":"fire"}'))["ok"]
        row = await world.has("a", level=NO_NEW)
        assert row.withheld & 0xFF == 2
        assert not makes_faulty(row)
        assert await world.ask(b'{"node":"a"}') == {"ok": True}
        await world.has("a", level=OK, withheld=0, reason="")


async def test_a_list_of_unhealthy_nodes_that_was_never_readable_keeps_new_work_from_all_nodes(world: World) -> None:
    world.configure(source="clusterd")
    good = {"DeviceList": device_list(), "UpdateTime": world.now_s}
    world.chunk("cluster-info-node-cm", "{")
    world.chunk("cluster-info-device-0", go_text({"mindx-dl-deviceinfo-a": good}))
    async with world.service():
        row = await world.has("a", level=NO_NEW)
        assert "cluster-info-node-cm is '{'" in row.reason
        assert not makes_faulty(row)
        sick = {**good, "DeviceList": device_list(unhealthy=[1])}
        world.chunk("cluster-info-device-1", go_text({"mindx-dl-deviceinfo-b": sick}))
        row = await world.has("b", level=NO_NEW, unhealthy=2)
        assert "cluster-info-node-cm is '{'" in row.reason
        world.chunk("cluster-info-node-cm", "")
        await world.has("a", level=OK, reason="")
        await world.has("b", level=OK, unhealthy=2)
        world.chunk("cluster-info-node-cm", "{")
        world.chunk("cluster-info-device-0", go_text({"mindx-dl-deviceinfo-a": sick}))
        await world.has("a", level=OK, unhealthy=2)


async def test_entries_of_clusterd(world: World) -> None:
    world.configure(source="clusterd")
    now_s = world.now_s

    def devices(**lists: object) -> None:
        entry = {"DeviceList": device_list(**lists), "UpdateTime": "x"}  # type: ignore[arg-type]  # of a device list
        good = {"DeviceList": device_list(), "UpdateTime": now_s}
        world.chunk("cluster-info-device-0", go_text({"mindx-dl-deviceinfo-a": entry, "mindx-dl-deviceinfo-b": good}))

    def nodes(entry: dict[str, object] | None) -> None:
        world.chunk("cluster-info-node-cm", go_text({"mindx-dl-nodeinfo-b": entry}) if entry else "")

    nodes({"State": "UnHealthy"})
    devices(unhealthy=[3])
    async with world.service():
        row = await world.has("a", withheld=8, level=OK)
        assert not makes_faulty(row)
        row = await world.has("b", level=NO_NEW)
        assert "cluster-info-node-cm[mindx-dl-nodeinfo-b].NodeStatus is ''" in row.reason
        devices(unhealthy=[5])
        await world.has("a", withheld=32)
        nodes({"NodeStatus": "UnHealthy", "UpdateTime": "x"})
        row = await world.has("b", level=NO_NEW)
        assert not makes_faulty(row)
        nodes(None)
        await world.has("b", level=OK, reason="")
        world.chunk("cluster-info-switch-0", '{"mindx-dl-switchinfo-b": {"State": 1}}')
        await world.has("b", level=NO_NEW)
        world.chunk("cluster-info-switch-0", json.dumps({"mindx-dl-switchinfo-b": switch_entry("Healthy", "", now_s)}))
        await world.has("b", level=OK, reason="")
