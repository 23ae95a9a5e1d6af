"""Gangs over restarts: what a process that starts anew knows, and what it must not say twice."""

from typing import Any

import msgspec
import pytest

from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.gangs.settings import GangSettings
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, members, requested, running, settled

RS = ("apps/v1", "ReplicaSet", "web", "rs-1")


def restarted(world: GangWorld) -> GangWorld:
    """The same cluster, seen by a process that starts anew."""
    after = GangWorld(world.settings)
    after.now_ms, after.requests, after.members = world.now_ms, dict(world.requests), dict(world.members)
    for name, seen in sorted(world.members.items()):
        after.gangs.restore(seen, world.job(name) if name in world.requests and seen.uid else None)
    return after


@pytest.mark.parametrize("pods_first", [True, False])
def test_after_a_restart_nothing_is_asked_for_again(pods_first: Any) -> None:  # noqa: ANN401
    world = running()
    world.pods(a_pod("p-9", group="pg"))
    world.settle()
    after = GangWorld()
    pods = [*members(4, node="n1", phase="Running"), a_pod("p-9", group="pg")]
    if pods_first:
        after.pods(*pods)
    after.gangs.set_group(a_group("pg"))
    for name, seen in world.members.items():
        after.gangs.restore(seen, world.job(name))
    after.pods(*pods)
    after.requests = dict(world.requests)
    after.status(BASE, "running")
    assert [effect for effect in after.settle() if type(effect).__name__ != "PatchPodGroup"] == []


def test_after_a_restart_a_new_pod_takes_the_rank_of_one_that_went_meanwhile() -> None:
    world = requested()
    after = restarted(world)
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(2), a_pod("p-9", group="pg"), *members(1, 3))
    after.status(BASE, "waiting")
    after.settle()
    assert after.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-9", 3: "p-3"}
    assert after.ranks(BASE)["p-9"] == "2"
    assert after.published == []


def test_what_was_told_but_not_published_is_published_after_a_restart() -> None:
    world = requested()
    after = GangWorld()
    after.members = dict(world.members)
    after.gangs.restore(world.members[BASE], None)
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    after.settle()
    after.pods(*members(4, phase="Unknown"))
    after.settle()
    assert after.published == [world.requests[BASE]], "once"
    again = GangWorld()
    again.members = dict(world.members)
    again.gangs.restore(world.members[BASE], None)
    again.gangs.set_group(a_group("pg"))
    again.pods(*members(3))
    again.settle()
    assert again.withdrawn == [(BASE, world.requests[BASE].uid, "its pods are gone")]
    assert again.hold(BASE) == "3 of at least 4 pods exist"


def test_a_request_whose_pods_went_while_nobody_looked_is_taken_back() -> None:
    after = restarted(requested())
    after.settle()
    after.settle(after_s=30)
    assert [name for name, _, _ in after.withdrawn] == [BASE]
    assert after.members[BASE].pods == []


@pytest.mark.parametrize("chips_first", [True, False])
def test_a_request_whose_pods_are_known_to_be_gone_is_taken_back_after_a_restart(*, chips_first: bool) -> None:
    world = requested()
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle(after_s=10)
    assert world.members[BASE].pods == []
    after = restarted(world)
    after.gangs.set_group(a_group("pg"))
    if chips_first:
        after.status(BASE, "placed")
    after.settle()
    if not chips_first:
        after.status(BASE, "placed")
        after.settle()
    assert after.withdrawn == []
    after.settle(after_s=30)
    assert after.withdrawn == [(BASE, world.requests[BASE].uid, "its pods are gone")]
    after.status(BASE, "cancelled")
    assert [effect for effect in after.settle(after_s=60) if type(effect).__name__ != "PatchPodGroup"] == []


def test_a_request_that_is_accepted_when_nobody_remembers_it_is_taken_back() -> None:
    world = requested()
    after = GangWorld()
    after.requests = dict(world.requests)
    after.settle()
    after.verdict(BASE)
    after.settle()
    after.settle(after_s=30)
    assert [name for name, _, _ in after.withdrawn] == [BASE]


@pytest.mark.parametrize("phase", ["succeeded", "cancelled", "failed"])
def test_a_request_that_is_over_and_has_no_pods_is_not_taken_up(phase: Any) -> None:  # noqa: ANN401
    world = requested()
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle()
    after = restarted(world)
    after.status(BASE, phase)
    assert after.settle() == []
    assert after.settle(after_s=60) == []


def test_a_cancelled_request_stays_cancelled_after_a_restart() -> None:
    world = requested()
    world.status(BASE, "cancelled")
    world.settle()
    after = GangWorld()
    after.gangs.restore(world.members[BASE], None)  # its name is forgotten already
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    assert [effect for effect in after.settle(after_s=60) if type(effect).__name__ != "PatchPodGroup"] == []


@pytest.mark.parametrize("chips", [0, 8])
def test_a_request_stays_rejected_when_the_verdict_is_read_after_its_pods(chips: int) -> None:
    pods = members(4, chips=chips)
    world, after = GangWorld(), GangWorld()
    world.gangs.set_group(a_group("pg"))
    world.pods(*pods)
    world.settle()
    (name,) = world.requests
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members[name], None)
    after.verdict(name, "rejected", code="invalid-argument")
    after.gangs.set_group(a_group("pg"))
    after.pods(*pods)
    assert [effect for effect in after.settle() if type(effect).__name__ != "PatchPodGroup"] == []
    assert after.members == world.members
    after.gangs.set_group(a_group("pg", labels={"fault-scheduling": "grace"}, version="2"))
    after.settle()
    assert len(after.published) == 1, "what was wrong may be right now"


def test_a_request_that_was_taken_back_just_before_a_restart_comes_again_when_its_group_is_let_in() -> None:
    world = requested()
    world.verdict(BASE)
    after = restarted(world)  # it died between taking the request back and telling of its pods
    after.gangs.set_group(a_group("pg", phase="Pending", version="2"))
    after.pods(*members(4))
    after.status(BASE, "cancelled", sentence="its PodGroup is Pending again")
    after.settle()
    assert "cancelled" not in after.hold(BASE)
    after.gangs.set_group(a_group("pg", phase="Inqueue", version="3"))
    after.settle()
    assert len(after.published) == 1
    assert after.published[0].uid != world.requests[BASE].uid
    assert len(after.published[0].tasks) == len(world.requests[BASE].tasks)


def test_a_request_that_failed_before_a_restart_comes_again_with_another_uid() -> None:
    world = requested()
    failed = world.job(BASE)
    after = GangWorld()
    after.requests = dict(world.requests)
    after.gangs.note_job(failed)
    after.status(BASE, "failed")
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    after.settle()
    assert after.requests[BASE].uid != failed.uid


def test_a_request_whose_telling_was_lost_is_known_again_by_its_uid() -> None:
    world = requested()
    after = GangWorld()
    after.gangs.note_job(world.job(BASE))
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    after.settle()
    assert after.published == world.published


def test_a_hold_of_before_the_restart_goes_when_nothing_holds_any_more() -> None:
    world = GangWorld()
    world.pods(*members(4))
    world.settle()
    after = GangWorld()
    after.members = dict(world.members)
    after.gangs.restore(world.members[BASE], None)
    after.settle()
    assert after.members[BASE].pods == []


def test_equal_requests_of_two_runs_are_equal() -> None:
    first, second = requested(), requested()
    assert first.requests == second.requests
    assert msgspec.structs.replace(first.members[BASE], at_ms=0) == msgspec.structs.replace(
        second.members[BASE], at_ms=0
    )


def test_many_gangs_are_settled_in_time_proportional_to_what_was_touched() -> None:
    gangs = Gangs(GangSettings())
    for number in range(500):
        gangs.set_group(a_group(f"g{number}", least=2))
        for index in range(2):
            gangs.set_pod(a_pod(f"g{number}-{index}", group=f"g{number}"))
    assert sum(1 for effect in settled(gangs, 1) if type(effect).__name__ == "PublishRequest") == 500
    gangs.set_pod(a_pod("g7-0", group="g7", annotations={"predicate-time": "1"}))
    assert [type(effect).__name__ for effect in gangs.settle(2)] == ["PublishMembers"]
    assert (gangs.parts, gangs.held) == (500, 0)


def test_a_request_that_is_over_when_nobody_remembers_it_is_not_taken_up() -> None:
    world = requested()
    after = GangWorld()
    after.requests = dict(world.requests)
    after.settle()
    after.verdict(BASE, "cancelled")
    assert after.settle() == []
    assert after.settle(after_s=60) == []
    assert after.members == {}
