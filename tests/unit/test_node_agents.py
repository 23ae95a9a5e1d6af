"""Kubelet, device plug-in and NodeD of one node: what the API shows and times in, writes out."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from berth.formats.device_info import ChipLists, parse_device_info
from berth.formats.kube_objects import Condition, Container, Meta, OwnerReference, PodSpec, Requirements
from berth.formats.node_info import parse_node_info
from berth.formats.node_products import NODE_PRODUCTS
from berth.formats.pod_annotations import ASCEND_REAL, CONSUMED, KLT_DEV, PREDICATE_TIME, chip_names
from schemas.nodes import NodeDescription
from services.nodesim.accounts import Accounts
from services.nodesim.agent_effects import (
    AgentRules,
    Alarm,
    Annotate,
    Confirm,
    Effect,
    Report,
    SetNode,
    SetStatus,
    Tally,
)
from services.nodesim.agent_pods import AgentPod, AgentPodStatus
from services.nodesim.breakage import Breakage
from services.nodesim.device_report import Place
from services.nodesim.kubelet import NodeAgents
from services.nodesim.pod_statuses import PodAddresses
from services.nodesim.registration import node_status

RESOURCE = "huawei.com/Ascend910"
T0 = 1_763_640_000_000
RULES = AgentRules(admit_ms=100, start_ms=500, terminating_ms=500, run_default_ms=10_000, shuffle=False)


class World:
    """Agents of a node, and the effects of a step or a period."""

    def __init__(self, rules: AgentRules = RULES, *, seed: int = 0, product: str = "module910bx8") -> None:
        known = NODE_PRODUCTS[product]
        self.node = NodeDescription(
            "n",
            product,
            known.resource,
            (1 << known.chips) - 1,
            known.chips,
            8_000,
            4_096,
            labels=dict(known.labels),
            address="10.0.0.9",
        )
        self.tally = Tally()
        self.accounts = Accounts({"n": self.node})
        self.agents = NodeAgents(
            self.node,
            Place(),
            rules=rules,
            accounts=self.accounts,
            tally=self.tally,
            addresses=PodAddresses(),
            rng=Random(seed),  # noqa: S311 - kubelet's choices, repeatable
        )

    def see(self, *pods: AgentPod, at_ms: int = 0) -> None:
        for pod in pods:
            self.agents.see(pod, T0 + at_ms)

    def step(self, at_ms: int) -> list[Effect]:
        return self.agents.step(T0 + at_ms)

    def statuses(self, at_ms: int) -> dict[str, dict[str, Any]]:
        return {item.pod.metadata.name: item.status for item in self.step(at_ms) if isinstance(item, SetStatus)}

    def report(self, at_ms: int) -> list[Effect]:
        return self.agents.report(T0 + at_ms)

    def lists(self, at_ms: int) -> ChipLists:
        (found,) = [
            item.data["DeviceInfoCfg"]
            for item in self.report(at_ms)
            if isinstance(item, Report) and "DeviceInfoCfg" in item.data
        ]
        return parse_device_info(found).chips[RESOURCE]


def a_pod(
    name: str,
    chips: list[int],
    *,
    at: str = "100",
    asks: list[int] | None = None,
    phase: str = "Pending",
    leaving: bool = False,
    requests: dict[str, str | int | float] | None = None,
    annotations: dict[str, str] | None = None,
) -> AgentPod:
    found = {RESOURCE: chip_names(RESOURCE, chips), PREDICATE_TIME: at} if chips else {}
    wanted = asks if asks is not None else [len(chips)]
    return AgentPod(
        metadata=Meta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            annotations={**found, **(annotations or {})},
            deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
        ),
        spec=PodSpec(
            node_name="n",
            containers=[
                Container(name=f"c{n}", resources=Requirements(limits={RESOURCE: count} if count else {}, requests=requests))
                for n, count in enumerate(wanted)
            ],
        ),
        status=AgentPodStatus(phase=phase),
    )  # fmt: skip


def owned(pod: AgentPod, kind: str) -> AgentPod:
    owner = OwnerReference(kind=kind, name="o", uid="o", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=[owner]))


def since(pod: AgentPod, moment: str) -> AgentPod:
    ready = Condition(type="Ready", status="True", last_transition_time=moment)
    return replace(pod, status=replace(pod.status, conditions=[ready]))


def annotated(effects: list[Effect]) -> dict[str, dict[str, str]]:
    return {item.pod.metadata.name: item.annotations for item in effects if isinstance(item, Annotate)}


def test_a_pod_is_taken_started_ended_and_its_chips_are_free_again() -> None:
    world = World()
    world.see(a_pod("p", [0, 1]))
    assert world.step(99) == []
    assert annotated(world.step(100)) == {"p": {PREDICATE_TIME: CONSUMED}}
    assert world.agents.next_due_ms(T0 + 100) == T0 + 600
    assert world.accounts.chips_held() == 2
    status = world.statuses(600)["p"]
    assert (status["phase"], status["hostIP"], status["podIP"]) == ("Running", "10.0.0.9", "10.128.0.1")
    assert world.statuses(10_599) == {}
    assert world.statuses(10_600)["p"]["phase"] == "Succeeded"
    assert world.accounts.chips_held() == 0
    assert (world.tally.bound, world.tally.ended) == (1, 1)


def test_the_free_list_follows_the_real_chips_one_period_later() -> None:
    world = World()
    assert world.lists(0).free_mask == 0xFF
    world.see(a_pod("p", [0, 1]))
    world.step(100)
    effects = world.report(1000)
    assert annotated(effects)["p"][ASCEND_REAL] == "Ascend910-0,Ascend910-1"
    (device,) = [item for item in effects if isinstance(item, Report)]
    assert parse_device_info(device.data["DeviceInfoCfg"]).chips[RESOURCE].free_mask == 0xFC
    assert world.report(2000) == []
    world.agents.gone("uid-p")
    assert world.lists(3000).free_mask == 0xFF


def test_a_bound_pod_is_not_in_the_list_until_somebody_writes_its_real_chips() -> None:
    world = World(AgentRules(admit_ms=5000))
    world.report(0)
    world.see(a_pod("p", [0, 1]))
    assert world.report(1000) == []
    world.see(a_pod("p", [0, 1], annotations={ASCEND_REAL: "Ascend910-0,Ascend910-1"}))
    assert world.lists(2000).free_mask == 0xFC


def test_an_unchanged_report_is_repeated_after_five_minutes() -> None:
    world = World()
    world.report(0)
    assert world.agents.repeats_ms == T0 + 300_000
    assert world.report(299_999) == []
    assert world.lists(300_000).free_mask == 0xFF


def test_kubelet_may_turn_pods_round_that_came_together() -> None:
    swapped = []
    for seed in range(20):
        world = World(AgentRules(shuffle=True), seed=seed)
        world.see(a_pod("first", [0, 1], at="100"), a_pod("second", [2, 3], at="200"))
        world.step(100)
        assert world.accounts.double_allocations == 0
        swapped.append(world.tally.swapped)
        own = world.agents.mounted("uid-first")
        assert own == ((2, 3) if world.tally.swapped else (0, 1))
    assert set(swapped) == {0, 2}


def test_pods_one_after_another_and_pods_of_different_sizes_are_never_swapped() -> None:
    for seed in range(20):
        world = World(AgentRules(shuffle=True), seed=seed)
        world.see(a_pod("first", [0, 1], at="100"), a_pod("other", [4], at="100"))
        world.step(100)
        world.see(a_pod("second", [2, 3], at="200"), at_ms=200)
        world.step(300)
        assert world.tally.swapped == 0


def test_chips_that_two_live_pods_get_are_counted_and_told_of() -> None:
    world = World()
    world.see(a_pod("p", [0, 1], at="1"), a_pod("q", [1, 2], at="2"))
    alarms = [item for item in world.step(100) if isinstance(item, Alarm)]
    assert [alarm.pod.metadata.name for alarm in alarms] == ["q"]
    assert (world.accounts.double_allocations, world.tally.bound) == (1, 2)


def test_a_pod_for_which_there_is_no_cpu_is_refused_and_counted() -> None:
    world = World()
    world.see(a_pod("p", [0], requests={"cpu": "6"}), a_pod("q", [1], at="200", requests={"cpu": "3"}))
    assert world.statuses(100)["q"]["reason"] == "OutOfcpu"
    assert (world.accounts.overcommits, world.tally.failed, world.accounts.chips_held()) == (1, 1, 1)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_pod("p", [], asks=[2]), "UnexpectedAdmissionError"),
        (a_pod("p", [0, 1], asks=[1, 1]), "UnexpectedAdmissionError"),
        (a_pod("p", [0, 1], asks=[3]), "UnexpectedAdmissionError"),
        (a_pod("p", [0, 1], asks=[9]), f"OutOf{RESOURCE}"),
        (a_pod("p", [], asks=[0], requests={"huawei.com/npu": 1}), "OutOfhuawei.com/npu"),
    ],
)
def test_a_pod_that_cannot_get_its_chips_fails(pod: AgentPod, reason: str) -> None:
    world = World()
    world.see(pod)
    status = world.statuses(100)["p"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert world.tally.admission_errors == (reason == "UnexpectedAdmissionError")
    assert world.agents.pods_live == 0


def test_a_whole_node_is_given_without_a_look_and_stays_unconsumed() -> None:
    world = World()
    world.see(a_pod("p", list(range(8))))
    assert annotated(world.step(100)) == {}
    assert world.statuses(600)["p"]["phase"] == "Running"
    assert annotated(world.report(1000))["p"][KLT_DEV] == chip_names(RESOURCE, range(8))


def test_a_pod_that_leaves_goes_after_a_while_and_one_that_never_ran_at_once() -> None:
    world = World()
    world.see(a_pod("p", [0]))
    world.step(100)
    world.see(a_pod("p", [0], leaving=True), a_pod("q", [1], leaving=True), at_ms=200)
    assert [item.pod.metadata.name for item in world.step(200) if isinstance(item, Confirm)] == ["q"]
    assert world.accounts.chips_held() == 1
    assert [item.pod.metadata.name for item in world.step(700) if isinstance(item, Confirm)] == ["p"]
    assert world.accounts.chips_held() == 0
    assert world.step(5000) == []


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
    addresses.give_back("a")
    addresses.give_back("a")
    assert addresses.take("c") == "10.128.0.4"


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
