"""Ranks that recover from a fault: which new pods take them, and what is published about that.

Longer than 400 lines because all cases begin with the same gang that runs and are told apart by its next pods.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.columns import unpack
from berth.schemas.facts import OutcomeSeen
from berth.schemas.recovery import RecoveryStatus, Scope
from berth.schemas.status import JobStatus, Phase
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, facts_of, running
from tests.unit.services.inventory.gangs.test_restoring import restarted

ACJOB = ("mindxdl.gitee.com/v1", "AscendJob", "train", "uid-train")
TRAIN = OwnerKey("AscendJob", "ns", "train")


def recovers(
    world: GangWorld,
    *ranks: int,
    phase: Phase = "running",
    attempt: int = 1,
    of_attempt: int = 1,
    name: str = BASE,
    scope: Scope = "pod",
) -> None:
    """A status with ranks that recover."""
    found = RecoveryStatus(
        1, scope, "force", "CardUnhealthy", "x", list(ranks or (0,)), [], 5, attempt=of_attempt, open=list(ranks)
    )
    uid = world.requests[name].uid
    world.gangs.note_status(JobStatus("ns", name, uid, phase, 0, world.now_ms, attempt=attempt, recovery=found))


def new(name: str, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod can have
    return a_pod(name, uid=f"new-{name}", group="pg", **more)


def ranked(count: int, **more: Any) -> list[Pod]:  # noqa: ANN401 - whatever a pod can have
    """Pods whose controller states their ranks."""
    return [a_pod(f"p-{rank}", group="pg", annotations={"hccl/rankIndex": str(rank)}, **more) for rank in range(count)]


def running_with_ranks(count: int = 4) -> GangWorld:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=count))
    world.pods(*ranked(count))
    world.settle()
    world.verdict(BASE)
    world.status(BASE, "placed")
    world.pods(*ranked(count, node="n1", phase="Running"))
    world.outcome(BASE)
    world.status(BASE, "running")
    world.settle()
    return world


def uids(world: GangWorld) -> Sequence[str]:
    return world.members[BASE].pod_uids


def replaced(world: GangWorld, name: str = BASE) -> list[int] | None:
    """Ranks of the last fact about new pods; None if there was none."""
    found = world.replacements.get(name)
    return None if found is None else unpack(found.ranks, 4)


def test_a_new_pod_takes_a_rank_that_recovers_and_nothing_is_requested_for_it() -> None:
    world = running()
    recovers(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    assert (world.standing(BASE)[2], uids(world)[2], replaced(world)) == ("p-2", "uid-p-2", None)
    world.pods(new("p-2"))
    world.settle()
    assert uids(world) == ["uid-p-0", "uid-p-1", "new-p-2", "uid-p-3"]
    assert replaced(world) == [2]
    assert [request.name for request in world.published] == [BASE]
    world.pods(new("p-2", node="n2", phase="Running"))
    world.settle()
    assert replaced(world) == []
    recovers(world)
    world.settle()
    assert (uids(world)[2], world.withdrawn, len(world.published)) == ("new-p-2", [], 1)


def test_a_fact_says_of_each_new_pod_since_when_it_waits_also_after_a_restart() -> None:
    world = running()
    recovers(world, 1, 2)
    world.gangs.drop_pod("uid-p-1")
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    first_ms = world.now_ms
    world.now_ms += 5_000
    world.pods(new("p-1"))
    world.settle()
    found = world.replacements[BASE]
    assert (replaced(world), unpack(found.since_ms, 8)) == ([1, 2], [world.now_ms, first_ms])
    others = [pod for pod in ranked(4, node="n1", phase="Running") if pod.metadata.name in {"p-0", "p-3"}]
    after = over(world, *others, new("p-1"), new("p-2"))
    after.now_ms = world.now_ms + 3_000
    recovers(after, 1, 2)
    after.settle()
    assert after.replacements[BASE] == found
    after.gangs.drop_pod("new-p-2")
    after.settle()
    found = after.replacements[BASE]
    assert (replaced(after), found.at_ms) == ([1], after.now_ms)
    assert unpack(found.since_ms, 8) == [world.now_ms]


def test_without_a_recovery_a_new_pod_is_a_request_of_its_own() -> None:
    for ranks in ((), (3,)):
        world = running()
        recovers(world, *ranks)
        world.gangs.drop_pod("uid-p-2")
        world.pods(new("p-9"))
        world.settle()
        assert (uids(world)[2], len(world.published), replaced(world)) == ("uid-p-2", 2, None)


@pytest.mark.parametrize("change", [{"phase": "ending"}, {"attempt": 2, "of_attempt": 1}])
def test_a_recovery_of_an_attempt_that_ends_or_is_over_opens_no_rank(change: dict[str, Any]) -> None:
    world = running()
    recovers(world, 2, **change)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-9"))
    world.settle()
    assert (uids(world)[2], replaced(world)) == ("uid-p-2", None)


def test_a_failed_pod_and_one_that_still_ends_leave_their_rank_too() -> None:
    world = running()
    recovers(world, 0, 1)
    world.pods(a_pod("p-0", group="pg", node="n1", phase="Failed"))
    world.pods(a_pod("p-1", group="pg", node="n1", phase="Running", deleting=True))
    world.pods(new("p-8"), new("p-9"))
    world.settle()
    assert uids(world)[:2] == ["new-p-8", "new-p-9"]
    assert replaced(world) == [0, 1]


def test_the_pod_with_the_name_of_the_former_one_comes_first() -> None:
    world = running()
    recovers(world, 1, 3)
    world.gangs.drop_pod("uid-p-1")
    world.gangs.drop_pod("uid-p-3")
    world.pods(new("p-3"))
    world.settle()
    assert (uids(world)[3], replaced(world)) == ("new-p-3", [3])
    world.pods(new("p-0a"))
    world.settle()
    assert (uids(world)[1], replaced(world)) == ("new-p-0a", [1, 3])


def test_a_pod_that_asks_for_something_else_takes_no_rank() -> None:
    world = running()
    recovers(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2", chips=4))
    world.settle()
    assert (uids(world)[2], replaced(world)) == ("uid-p-2", None)


@pytest.mark.parametrize("again", [False, True])
def test_a_new_pod_with_the_rank_of_another_is_held_with_the_reason(again: bool) -> None:  # noqa: FBT001
    """Also after a restart in which the former pod is gone."""
    world = running_with_ranks()
    recovers(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    if again:
        world = over(world, *[pod for pod in ranked(4, node="n1", phase="Running") if pod.metadata.name != "p-2"])
        recovers(world, 2)
    world.pods(new("p-2", annotations={"hccl/rankIndex": "1"}))
    world.settle()
    assert (uids(world)[2], replaced(world), len(world.published)) == ("uid-p-2", None, 0 if again else 1)
    (hold,) = [seen.hold for seen in world.members.values() if seen.hold]
    assert hold == "pod p-2 has hccl/rankIndex 1, the rank of pod p-1: expected 2"
    world.gangs.drop_pod("new-p-2")
    world.pods(a_pod("p-2", uid="right", group="pg", annotations={"hccl/rankIndex": "2"}))
    world.settle()
    assert (uids(world)[2], replaced(world)) == ("right", [2])
    assert not [seen for seen in world.members.values() if seen.hold]


def test_a_rank_out_of_turn_is_a_request_of_its_own_and_so_is_a_backup() -> None:
    world = running_with_ranks()
    recovers(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-9", annotations={"hccl/rankIndex": "9"}))
    world.pods(new("p-1-hot", annotations={"hccl/rankIndex": "1", "podType": "backup"}))
    world.settle()
    assert (uids(world)[2], replaced(world), len(world.published)) == ("uid-p-2", None, 3)


def over(world: GangWorld, *pods: Pod) -> GangWorld:
    """The same, seen by a process that starts anew."""
    after = restarted(world)
    for found in world.replacements.values():
        after.gangs.restore_replacements(found)
    after.replacements = dict(world.replacements)
    after.gangs.set_group(a_group("pg"))
    after.pods(*pods)
    after.outcome(BASE)
    return after


@pytest.mark.parametrize("rank_index", [False, True])
def test_a_restart_at_any_point_gives_the_same(rank_index: bool) -> None:  # noqa: FBT001
    """Whether the controller states the ranks, or the binder wrote them on the bound pods."""
    world = running_with_ranks() if rank_index else running()
    written = ranked(4, node="n1", phase="Running")
    others = [pod for pod in written if pod.metadata.name != "p-2"]
    notes = {"hccl/rankIndex": "2"} if rank_index else {}
    recovers(world, 2)
    world.settle()

    # The pod is there still.
    after = over(world, *written)
    recovers(after, 2)
    after.gangs.drop_pod("uid-p-2")
    after.pods(new("p-2", annotations=notes))
    after.settle()
    assert (uids(after)[2], replaced(after), after.published) == ("new-p-2", [2], [])

    # It is gone, and nobody has come.
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    after = over(world, *others)
    recovers(after, 2)
    assert [type(effect).__name__ for effect in after.settle()] in ([], ["PatchPodGroup"])
    assert uids(after) == uids(world)
    after.pods(new("p-2", annotations=notes))
    after.settle()
    assert (uids(after)[2], replaced(after), after.published) == ("new-p-2", [2], [])

    # Its successor came meanwhile, and then is there already.
    after = over(world, *others, new("p-2", annotations=notes))
    recovers(after, 2)
    after.settle()
    assert (uids(after)[2], replaced(after), after.published) == ("new-p-2", [2], [])
    world.pods(new("p-2", annotations=notes))
    world.settle()
    after = over(world, *others, new("p-2", annotations=notes))
    recovers(after, 2)
    assert [type(effect).__name__ for effect in after.settle()] in ([], ["PatchPodGroup"])
    assert (uids(after), replaced(after)) == (uids(world), [2])

    # It was bound meanwhile.
    after = over(world, *others, new("p-2", node="n2", phase="Running", annotations={"hccl/rankIndex": "2"}))
    recovers(after, 2)
    after.settle()
    assert (uids(after)[2], replaced(after)) == ("new-p-2", [])


def test_what_was_published_about_a_gang_that_is_gone_is_taken_back_after_a_restart() -> None:
    world = running()
    recovers(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    after = GangWorld()
    after.replacements = dict(world.replacements)
    after.gangs.restore_replacements(world.replacements[BASE])
    after.settle()
    assert replaced(after) == []


def test_a_request_made_before_the_recovery_was_known_is_taken_back() -> None:
    world = running()
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    own = world.published[-1]
    assert own.name != BASE
    world.verdict(own.name)
    world.status(own.name, "waiting")
    recovers(world, 2)
    world.settle()
    assert world.withdrawn == [(own.name, own.uid, "its pod replaces another one of the gang")]
    assert (uids(world)[2], replaced(world)) == ("new-p-2", [2])
    assert world.members[own.name].pods == []


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_placed_request_of_the_pod_with_the_name_of_the_former_one_is_taken_back(*, is_bound: bool) -> None:
    """The status with the recovery came late: the dispatcher was away, or NATS."""
    world = running()
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    own = world.published[-1]
    world.verdict(own.name)
    world.status(own.name, "running" if is_bound else "placed")
    if is_bound:
        world.pods(new("p-2", node="n5", phase="Running"))
    recovers(world, 2)
    world.settle()
    assert world.withdrawn == [(own.name, own.uid, "its pod replaces another one of the gang")]
    if is_bound:  # it is evicted, and another one comes
        assert (uids(world)[2], replaced(world)) == ("uid-p-2", None)
        world.gangs.drop_pod("new-p-2")
        world.pods(a_pod("p-2", uid="third", group="pg"))
        world.settle()
    assert (uids(world)[2], replaced(world)) == ("third" if is_bound else "new-p-2", [2])
    assert (len(world.published), len(world.withdrawn)) == (2, 1)


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_pod_whose_own_request_is_placed_is_taken_out_unless_it_is_bound(is_bound: bool) -> None:  # noqa: FBT001
    world = running()
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    own = world.published[-1]
    world.verdict(own.name)
    world.status(own.name, "placed")
    if is_bound:
        world.pods(new("p-2", node="n7"))
    recovers(world, 2)
    world.settle()
    withdrawn, uid = ([], "uid-p-2") if is_bound else ([own.name], "new-p-2")
    assert ([name for name, _, _ in world.withdrawn], uids(world)[2]) == (withdrawn, uid)


def announces(world: GangWorld, *ranks: int, attempt: int = 1) -> None:
    """The binder says which ranks recover, before it deletes their pods."""
    uid = world.requests[BASE].uid
    world.gangs.note_outcome(OutcomeSeen("ns", BASE, uid, attempt, "bound", 4, open=list(ranks)))


def test_what_the_binder_has_announced_opens_a_rank_though_no_status_says_so() -> None:
    world = running()
    announces(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    assert (uids(world)[2], replaced(world), len(world.published)) == ("new-p-2", [2], 1)
    recovers(world, 2)
    world.settle()
    announces(world)
    world.settle()
    assert replaced(world) == [2]
    recovers(world)
    world.settle()
    assert (replaced(world), uids(world)[2]) == ([], "new-p-2")


def test_an_announcement_of_another_attempt_or_of_one_that_is_over_opens_nothing() -> None:
    world = running()
    announces(world, 2, attempt=2)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    assert (uids(world)[2], replaced(world)) == ("uid-p-2", None)
    world = running()
    announces(world, 2)
    world.status(BASE, "cancelled")
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    assert replaced(world) is None


def test_pods_of_a_whole_job_that_leaves_take_its_ranks_before_any_status_says_so() -> None:
    world = running()
    announces(world, 0, 1, 2, 3)
    for rank in range(4):
        world.gangs.drop_pod(f"uid-p-{rank}")
        world.pods(new(f"p-{rank}"))
        world.settle()
    recovers(world, 0, 1, 2, 3, phase="ending", scope="job")
    world.settle()
    assert replaced(world) == []
    world.outcome(BASE, "evicted")
    recovers(world, phase="waiting", attempt=2, scope="job")
    world.settle()
    assert uids(world) == [f"new-p-{rank}" for rank in range(4)]
    assert (world.withdrawn, len(world.published)) == ([], 1)


def of_operator(*, node: str = "") -> list[Pod]:
    return [a_pod(f"p-{rank}", owner=ACJOB, node=node, phase="Running" if node else "Pending") for rank in range(2)]


def recovering_of_operator(facts: OwnerFacts) -> GangWorld:
    """Two pods of an operator ran, and are gone because of a fault."""
    world = GangWorld()
    world.pods(*of_operator())
    world.settle()
    world.gangs.set_owner(TRAIN, facts)
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "placed")
    world.pods(*of_operator(node="n1"))
    world.outcome(name)
    world.status(name, "running")
    world.settle()
    recovers(world, 0, 1, name=name)
    world.gangs.drop_pod("uid-p-0")
    world.gangs.drop_pod("uid-p-1")
    return world


def operator_facts(**condition: str) -> OwnerFacts:
    status = {"status": {"conditions": [{"type": "Created", "status": "True"}, condition]}} if condition else {}
    return facts_of(TRAIN, {"replicaSpecs": {"Worker": {"replicas": 2}}} | status, uid="uid-train")


@pytest.mark.parametrize("condition", [{}, {"type": "Succeeded", "status": "False"}])
def test_a_controller_that_makes_no_pod_is_waited_for_until_it_is_gone(condition: dict[str, str]) -> None:
    facts = operator_facts(**condition)
    world = recovering_of_operator(facts)
    (name,) = world.requests
    for _ in range(5):
        world.settle(after_s=600)
        world.gangs.set_owner(TRAIN, facts)
    assert (world.withdrawn, replaced(world, name)) == ([], None)
    assert world.looks.count(TRAIN) > 1, "it is read again, as it may be gone"
    world.gangs.set_owner(TRAIN, None, is_gone=True)
    world.settle()
    assert [(job, why) for job, _, why in world.withdrawn] == [(name, "AscendJob train does not exist")]


def test_a_controller_that_has_ended_is_not_waited_for() -> None:
    """A pod ended well just when a fault, or a drain, made it leave: its controller has no reason to make another."""
    world = recovering_of_operator(operator_facts())
    (name,) = world.requests
    world.settle(after_s=600)
    assert world.withdrawn == []
    world.gangs.set_owner(TRAIN, operator_facts(type="Succeeded", status="True"))
    world.settle()
    assert [(job, why) for job, _, why in world.withdrawn] == [(name, "AscendJob train has ended: Succeeded")]


def test_what_waits_or_runs_of_a_controller_that_has_ended_stays() -> None:
    world = GangWorld()
    world.pods(*of_operator())
    world.settle()
    world.gangs.set_owner(TRAIN, operator_facts(type="Succeeded", status="True"))
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    for phase in ("waiting", "placed", "running"):
        world.status(name, phase)
        world.settle()
    assert world.withdrawn == []


def test_a_pod_that_nobody_makes_anew_ends_its_request() -> None:
    world = GangWorld()
    world.pods(a_pod("alone"))
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "placed")
    world.pods(a_pod("alone", node="n1", phase="Running"))
    world.outcome(name)
    world.status(name, "running")
    world.settle()
    recovers(world, 0, name=name)
    world.settle()
    world.gangs.drop_pod("uid-alone")
    world.settle()
    assert [(job, why) for job, _, why in world.withdrawn] == [(name, "pod alone was deleted")]


def test_a_pod_that_nobody_makes_anew_ends_its_request_also_beside_one_that_has_ended() -> None:
    world = running(2)
    world.gangs.drop_pod("uid-p-1")
    world.pods(a_pod("p-0", group="pg", node="n1", phase="Succeeded"))
    recovers(world, 1, phase="bound")
    world.settle()
    assert world.withdrawn == []
    world.settle(after_s=600)
    assert [(job, why) for job, _, why in world.withdrawn] == [(BASE, "its pods are gone")]


def test_a_cancelled_job_takes_no_new_pods_and_tells_of_none() -> None:
    world = running()
    recovers(world, 2)
    world.gangs.drop_pod("uid-p-2")
    world.pods(new("p-2"))
    world.settle()
    assert replaced(world) == [2]
    recovers(world, 2, phase="ending")
    world.settle()
    assert replaced(world) == []


@pytest.mark.parametrize("order", ["status first", "pods first"])
def test_when_a_whole_job_starts_anew_its_new_pods_are_those_of_its_next_attempt(order: str) -> None:
    """Even those that are there before it is known: a request of their own is taken back."""
    world = running()
    if order == "status first":
        recovers(world, 0, 1, 2, 3, phase="ending", scope="job")
        world.settle()
    for rank in range(4):
        world.gangs.drop_pod(f"uid-p-{rank}")
        world.pods(new(f"p-{rank}"))
        world.settle()
    if order == "pods first":
        own = world.published[1:]
        assert own
        for request in own:
            world.verdict(request.name)
        recovers(world, 0, 1, 2, 3, phase="ending", scope="job")
        world.settle()
        assert [name for name, _, _ in world.withdrawn] == sorted(request.name for request in own)
    else:
        assert len(world.published) == 1
    world.outcome(BASE, "evicted")
    world.settle()
    assert set(uids(world)) == {f"uid-p-{rank}" for rank in range(4)}
    recovers(world, phase="waiting", attempt=2, scope="job")
    world.settle()
    assert uids(world) == [f"new-p-{rank}" for rank in range(4)]
    assert BASE not in [name for name, _, _ in world.withdrawn]
    assert [request.name for request in world.published].count(BASE) == 1
    assert replaced(world) is None
