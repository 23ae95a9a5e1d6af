"""Kubelet and device plug-in of one node: pods that come, run and go."""

import pytest

from berth.formats.ascend.device_info import parse_device_info
from berth.formats.ascend.pod_annotations import ASCEND_REAL, CONSUMED, KLT_DEV, PREDICATE_TIME, chip_names
from berth.lab.nodesim.agents.effects import (
    AgentRules,
    Alarm,
    Confirm,
    Report,
)
from berth.lab.nodesim.agents.pods import AgentPod
from tests.support.node_agents import RESOURCE, T0, World, a_pod, annotated


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
