"""Kubelet, device plug-in and NodeD of one node: faults, restarts, pods of others, chips that are shared."""

import pytest

from berth.formats.ascend.device_info import parse_device_info
from berth.formats.ascend.node_info import parse_node_info
from berth.formats.ascend.pod_annotations import ASCEND_REAL, CONSUMED, KLT_DEV, PREDICATE_TIME, chip_names
from berth.lab.nodesim.agents.effects import (
    Alarm,
    Report,
    SetNode,
    SetStatus,
)
from berth.lab.nodesim.agents.pod_statuses import PodAddresses
from berth.lab.nodesim.agents.registration import node_status
from berth.lab.nodesim.breakage import Breakage
from tests.support.node_agents import RESOURCE, T0, World, a_pod, annotated, owned, since


def test_a_dead_kubelet_does_nothing_and_its_node_is_not_ready() -> None:
    world = World()
    world.agents.breakages.add(Breakage("kubelet", from_ms=T0, until_ms=T0 + 5000))
    world.see(a_pod("p", [0]))
    (told,) = world.step(1000)
    assert isinstance(told, SetNode)
    assert told.status["conditions"][0]["status"] == "Unknown"
    assert world.agents.next_due_ms(T0 + 1000) == T0 + 5000
    effects = world.step(5000)
    assert annotated(effects) == {"p": {PREDICATE_TIME: CONSUMED}}
    assert [item.status["conditions"][0]["status"] for item in effects if isinstance(item, SetNode)] == ["True"]


def test_a_dead_plugin_reports_nothing_and_no_chip_can_be_had() -> None:
    world = World()
    world.report(0)
    world.agents.breakages.add(Breakage("plugin", from_ms=T0))
    world.agents.breakages.add(Breakage("chip", 1, "RestartNPU", "AB", from_ms=T0))
    (told,) = world.step(1000)
    assert isinstance(told, SetNode)
    assert (told.status["capacity"][RESOURCE], told.status["allocatable"][RESOURCE]) == ("8", "0")
    assert world.report(400_000) == []
    world.see(a_pod("p", [1]), at_ms=1000)
    assert world.statuses(1100)["p"]["reason"] == f"OutOf{RESOURCE}"


@pytest.mark.parametrize("chip", [0, 3, 7])
def test_the_kubelet_gives_every_chip_but_the_unhealthy_one(chip: int) -> None:
    world = World()
    world.agents.breakages.add(Breakage("chip", 1 << chip, "RestartNPU", "AB", from_ms=T0))
    rest = [one for one in range(8) if one != chip]
    world.see(a_pod("all", list(range(8)), at="1"), a_pod("rest", rest, at="2"))
    assert world.statuses(100)["all"]["message"].endswith("requested: 8, free: 7")
    assert annotated(world.report(200))["rest"][KLT_DEV] == chip_names(RESOURCE, rest)


@pytest.mark.parametrize(
    ("level", "unhealthy"),
    [("NotHandleFault", 0), ("SubHealthFault", 0), ("RestartRequest", 8), ("RestartNPU", 8), ("SeparateNPU", 8), ("PreSeparateNPU", 8)],
)  # fmt: skip
def test_levels_of_chips_in_the_lists(level: str, unhealthy: int) -> None:
    world = World()
    world.agents.breakages.add(Breakage("chip", 8, level, "80E24E00", from_ms=T0))
    lists = world.lists(0)
    assert (lists.unhealthy, lists.free_mask) == (unhealthy, 0xFF & ~unhealthy)


def test_a_chip_to_be_separated_once_idle_is_healthy_while_it_is_used() -> None:
    world = World()
    world.see(a_pod("p", [3]))
    world.step(100)
    world.agents.breakages.add(Breakage("chip", 8, "PreSeparateNPU", "80E24E00", from_ms=T0))
    assert world.lists(200).unhealthy == 0
    world.agents.gone("uid-p")
    assert world.lists(300).unhealthy == 8


def test_network_recovering_and_manual_separation_have_lists_of_their_own() -> None:
    world = World()
    for item in (
        Breakage("network", 1, "SubHealthFault", "AA", from_ms=T0),
        Breakage("network", 2, "NotHandleFault", "AB", from_ms=T0),
        Breakage("recovering", 4, from_ms=T0),
        Breakage("chip", 8, "ManuallySeparateNPU", "AC", from_ms=T0),
    ):
        world.agents.breakages.add(item)
    (told,) = [item for item in world.report(0) if isinstance(item, Report) and "DeviceInfoCfg" in item.data]
    lists = parse_device_info(told.data["DeviceInfoCfg"]).chips[RESOURCE]
    assert (lists.network_unhealthy, lists.recovering, lists.unhealthy, lists.free_mask) == (1, 4, 8, 0xF3)
    assert told.data["ManuallySeparateNPU"] == "Ascend910-3"
    assert '"upgrade_type":"FaultFrequency"' in told.data["UpgradeFaultReason"]
    assert "SwitchInfoCfg" not in told.data


def test_noded_speaks_only_of_a_node_with_a_fault() -> None:
    world = World()
    first = [item for item in world.report(0) if isinstance(item, Report) and item.name.startswith("mindx-dl-nodeinfo")]
    assert [item.data for item in first] == [{}], "what an earlier run left goes"
    world.agents.breakages.add(Breakage("node", level="SeparateFault", code="0100001D", from_ms=T0, until_ms=T0 + 5000))
    (told,) = world.report(1000)
    assert isinstance(told, Report)
    assert parse_node_info(told.data["NodeInfo"]).node_status == "UnHealthy"
    (gone,) = world.report(5000)
    assert isinstance(gone, Report)
    assert gone.data == {}


def test_pods_of_an_earlier_run_keep_their_chips_and_their_end() -> None:
    world = World()
    world.see(
        since(
            a_pod(
                "p",
                [0, 1],
                phase="Running",
                at=CONSUMED,
                annotations={ASCEND_REAL: "Ascend910-4,Ascend910-5", KLT_DEV: "Ascend910-2,Ascend910-3"},
            ),
            "2025-11-20T12:00:00Z",
        ),
        a_pod("q", [6], at=CONSUMED),
    )  # fmt: skip
    assert world.agents.mounted("uid-p") == (4, 5)
    assert world.agents.mounted("uid-q") == (6,)
    assert world.accounts.chips_held() == 3
    assert world.statuses(500)["q"]["phase"] == "Running"
    assert world.agents.next_due_ms(T0 + 500) == T0 + 10_000
    assert annotated(world.step(500)) == {}


def test_pods_of_services_run_for_ever_and_a_pod_may_say_how_long() -> None:
    world = World()
    world.see(
        owned(a_pod("s", [0], at="1"), "ReplicaSet"),
        a_pod("f", [1], at="2", annotations={"berth/run-for": "forever"}),
        a_pod("t", [2], at="3", annotations={"berth/run-for": "2s"}),
        a_pod("u", [3], at="4", annotations={"berth/run-for": "soon"}),
    )
    world.step(100)
    assert sorted(world.statuses(600)) == ["f", "s", "t", "u"]
    assert sorted(world.statuses(2600)) == ["t"]
    assert sorted(world.statuses(10_600)) == ["u"]
    assert world.agents.next_due_ms(T0 + 10_600) is None


def test_a_pod_that_somebody_else_ended_gives_back_what_it_had() -> None:
    world = World()
    world.see(a_pod("p", [0]))
    world.step(100)
    world.see(a_pod("p", [0], phase="Failed"), at_ms=200)
    assert (world.accounts.chips_held(), world.tally.ended) == (0, 1)
    assert world.step(20_000) == []


def test_a_running_pod_with_chips_that_the_node_does_not_have_is_taken_up_without_them() -> None:
    world = World()
    world.see(a_pod("p", [7, 20], phase="Running"))
    assert world.agents.mounted("uid-p") == (7,)
    assert annotated(world.report(0))["p"][ASCEND_REAL] == "Ascend910-7"


def test_addresses_of_pods_are_given_once_and_come_back() -> None:
    addresses = PodAddresses()
    addresses.note("old", "10.128.0.2")
    assert [addresses.take(uid) for uid in ("a", "b", "a")] == ["10.128.0.1", "10.128.0.3", "10.128.0.1"]
    addresses.release("a")
    addresses.release("a")
    assert addresses.take("c") == "10.128.0.4"


def test_behind_the_last_address_those_of_pods_that_are_gone_come_again() -> None:
    addresses = PodAddresses("10.128.0.0/29")
    assert [addresses.take(uid) for uid in "abcdef"] == [f"10.128.0.{number}" for number in range(1, 7)]
    for uid in "eb":
        addresses.release(uid)
    assert [addresses.take(uid) for uid in "gh"] == ["10.128.0.2", "10.128.0.5"]


def quota(cores: int, policy: str = "elastic") -> dict[str, str]:
    prefix = "huawei.com/scheduler.softShareDev."
    return {f"{prefix}aicoreQuota": str(cores), f"{prefix}hbmQuota": "4096", f"{prefix}policy": policy}


def test_pods_share_chips_by_quota_and_kubernetes_counts_each_chip_a_hundred_times() -> None:
    world = World(product="soft-share")
    pods = [a_pod(f"p{n}", [n // 4], at=str(n), annotations=quota(25)) for n in range(12)]
    world.see(*pods)
    effects = world.step(100)
    assert [item for item in effects if isinstance(item, (Alarm, SetStatus))] == []
    assert (world.tally.bound, world.tally.swapped, world.accounts.chips_held()) == (12, 0, 3)
    assert world.accounts.double_allocations == 0
    status = node_status(world.node, 8, is_ready=True, now_ms=T0)
    assert (status["capacity"][RESOURCE], status["allocatable"][RESOURCE]) == ("800", "800")
    world.agents.gone("uid-p0")
    world.see(a_pod("small", [0], at="90", annotations=quota(25)), a_pod("much", [1], at="91", annotations=quota(5)))
    (alarm,) = [item for item in world.step(300) if isinstance(item, Alarm)]
    assert alarm.reason == "chips 1 of node n are held by another pod"
    world.see(a_pod("other", [3], at="92", annotations=quota(5, "fixed-share")), a_pod("whole", [2], at="93"))
    (alarm,) = [item for item in world.step(500) if isinstance(item, Alarm)]
    assert alarm.reason == "chips 2 of node n are held by another pod"
    assert world.accounts.double_allocations == 2


def test_pods_that_share_a_chip_are_taken_up_after_a_restart() -> None:
    world = World(product="soft-share")
    given = {ASCEND_REAL: "Ascend910-3", PREDICATE_TIME: CONSUMED}
    pods = [a_pod(f"p{n}", [3], phase="Running", annotations={**quota(50), **given}) for n in range(2)]
    world.see(*pods)
    assert world.accounts.double_allocations == 0
    assert [world.agents.mounted(pod.metadata.uid) for pod in pods] == [(3,), (3,)]
    world.see(a_pod("third", [3], at="90", annotations=quota(1)))
    assert [item.reason for item in world.step(100) if isinstance(item, Alarm)] == [
        "chips 3 of node n are held by another pod"
    ]


@pytest.mark.parametrize("listed", [None, "Ascend910-2,Ascend910-40", "Ascend910-1,Ascend910-2"])
def test_a_pod_of_an_earlier_run_has_its_chips_whatever_its_list_of_the_kubelet_says(listed: str | None) -> None:
    world = World()
    world.see(a_pod("other", [1], at=CONSUMED))
    annotations = {ASCEND_REAL: "Ascend910-4,Ascend910-5", **({KLT_DEV: listed} if listed else {})}
    world.see(a_pod("p", [4, 5], phase="Running", at=CONSUMED, annotations=annotations))
    assert world.agents.mounted("uid-p") == (4, 5)
    assert world.accounts.chips_held() == 3
    world.see(a_pod("next", [0, 2, 3, 6, 7], asks=[6], at="1"), at_ms=10)
    assert world.statuses(200)["next"]["reason"] == f"OutOf{RESOURCE}", "the kubelet has five left"
