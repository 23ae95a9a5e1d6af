"""Held places: what stays reserved for a job that starts anew as a whole."""

import msgspec
import pytest

from berth.schemas.facts import PodPhase
from berth.schemas.ledger import Epoch
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, Queue
from berth.schemas.recovery import HeldPlaces
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell
from tests.support.queue_cells import NPU, limits
from tests.support.replacements import holding_of

_HOLD_MS = 60_000
_GRACE_MS = 900_000


def a_cell(nodes: str = "abcd", **settings: object) -> FaultCell:
    return FaultCell([a_node(name) for name in nodes], **{"hold_places_ms": _HOLD_MS, **settings})


def restarted(cell: FaultCell) -> None:
    """A job of two pods on a and b restarts because a is broken, and its pods are gone; another one waits."""
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    assert holding_of(cell.state, "j").placement.names() == ["a", "b"]
    cell.ask(a_job("rival", chips=8, replicas=len(cell.nodes), priority=9))
    cell.turns()
    cell.ask(a_job("small", chips=8, priority=9))
    cell.break_chip("a")
    cell.turns()
    assert cell.phase("j") == "ending"
    cell.remove("j")


def half_ended(*, at_once: bool = False) -> FaultCell:
    """A job of two pods restarts because a is broken; its pod on b is gone, that on a still ends, and another waits.

    Args:
        at_once: The pod on b is gone when the restart is decided.
    """
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.ask(a_job("small", chips=8, priority=9))
    cell.break_chip("a")
    if not at_once:
        cell.turns()
    cell.pods["j"][1].phase = PodPhase.GONE
    cell.say("j")
    cell.turns()
    return cell


def held(cell: FaultCell) -> list[HeldPlaces]:
    """All entries of records about held places."""
    return [entry for record in cell.records for entry in record.held]


def test_healthy_places_are_held_until_the_job_has_its_other_places() -> None:
    cell = a_cell("ab")
    restarted(cell)
    cell.turns()
    uid = holding_uid(cell)
    assert held(cell) == [HeldPlaces("default", "j", uid, 1, [1], cell.now_ms + _HOLD_MS)]
    assert cell.state.held("b") == 0xFF
    assert (cell.phase("j"), cell.phase("small")) == ("waiting", "waiting"), "though its priority is higher"
    cell.wait(_HOLD_MS - 1)
    cell.conditions.clear()
    cell.publish()
    cell.turns()
    holding = holding_of(cell.state, "j")
    assert (cell.phase("j"), holding.attempt, holding.placement.names()) == ("placed", 2, ["a", "b"])
    assert (cell.state.fold.held, cell.scheduler.next_due_ms) == ({}, 0)


def test_in_an_epoch_without_the_rule_a_job_does_not_return_to_its_places() -> None:
    cell = a_cell("ab")
    restarted(cell)
    cell.turns()
    fold = cell.state.fold
    rules = [rule for rule in fold.rules if rule.name != "held-places"]
    assert len(rules) < len(fold.rules)
    epoch = Epoch(fold.epoch + 1, fold.head, fold.facts_seq, cell.now_ms, "d", fold.settings, rules=rules)
    cell.scheduler.begin(cell.folded(epoch).changes)
    cell.conditions.clear()
    cell.publish()
    cell.turns()
    assert (cell.phase("j"), cell.phase("small")) == ("waiting", "placed")


def queue_cell(*queues: Queue) -> FaultCell:
    """A job of queue ``a`` has ended for a fault, and named ``b`` meanwhile; its healthy place is held."""
    cell = a_cell("ab", queues=1)
    for queue in queues:
        cell.fact(SUBJECTS.fact_queue(queue.name), QueueSeen(queue))
    cell.run(msgspec.structs.replace(a_job("j", chips=8, replicas=2), queue="a"), labels=GRACE)
    cell.break_chip("a")
    cell.turns()
    cell.remove("j")
    cell.turns()
    cell.ask(msgspec.structs.replace(a_job("j", chips=8, replicas=2), queue="b"))
    cell.conditions.clear()
    cell.publish()
    cell.turns()
    return cell


def chips_held(cell: FaultCell, *names: str) -> list[int]:
    """What queues hold."""
    tree = cell.state.queues.tree()
    assert tree is not None
    return [cell.state.queues.usage(tree).held(name, NPU) // CHIP for name in names]


def test_a_job_that_names_another_queue_returns_to_its_places_and_is_charged_there() -> None:
    cell = queue_cell(Queue("lab", capability=limits(16)), Queue("a", parent="lab"), Queue("b", parent="lab"))
    holding = holding_of(cell.state, "j")
    assert (holding.attempt, holding.queue, holding.placement.names()) == (2, "b", ["a", "b"])
    assert chips_held(cell, "a", "b", "lab") == [0, 16, 16]


def test_a_job_waits_for_the_queue_that_it_names_although_places_are_held_for_it() -> None:
    cell = queue_cell(Queue("a"), Queue("b", capability=limits(8)))
    assert cell.phase("j") == "waiting"
    assert chips_held(cell, "a", "b") == [8, 0], "the place on b"
    record = cell.state.fold.gangs[holding_uid(cell)]
    assert record.refusal is not None
    assert record.refusal.code == "larger-than-capability"
    cell.fact(SUBJECTS.fact_queue("b"), QueueSeen(Queue("b", capability=limits(16))))
    cell.turns()
    assert (cell.phase("j"), chips_held(cell, "a", "b")) == ("placed", [0, 16])


def test_places_that_are_held_no_longer_are_free_for_others_of_the_queue() -> None:
    cell = a_cell("ab", queues=1)
    cell.fact(SUBJECTS.fact_queue("a"), QueueSeen(Queue("a", capability=limits(16))))
    cell.run(msgspec.structs.replace(a_job("j", chips=8, replicas=2), queue="a"), labels=GRACE)
    cell.break_chip("a")
    cell.turns()
    cell.fact(SUBJECTS.fact_queue("a"), QueueSeen(Queue("a", capability=limits(8))))
    cell.remove("j")
    cell.turns()
    cell.ask(msgspec.structs.replace(a_job("other", chips=8), queue="a"))
    cell.turns()
    assert (cell.phase("j"), cell.phase("other"), chips_held(cell, "a")) == ("waiting", "waiting", [8])
    cell.wait(_HOLD_MS)
    assert (cell.phase("j"), cell.phase("other"), chips_held(cell, "a")) == ("waiting", "placed", [8])


def test_a_place_that_is_held_for_a_job_is_reserved_for_no_other_one_while_its_pods_end() -> None:
    cell = a_cell("abc", preempt=2)
    cell.run(a_job("j", chips=8, replicas=2), a_job("low", chips=8), labels=GRACE)
    cell.break_chip("a")
    cell.turns()
    cell.ask(a_job("high", chips=8, replicas=2, priority=9))
    cell.turns()
    assert (cell.phase("j"), cell.phase("low"), cell.phase("high")) == ("ending", "placed", "waiting")
    cell.remove("j")
    cell.turns()
    assert [entry.ranks for entry in held(cell)] == [[1]]


def holding_uid(cell: FaultCell) -> str:
    return cell.state.jobs["default", "j"].uid


def test_healthy_ranks_return_to_their_node_and_chips_and_the_faulty_one_moves() -> None:
    cell = a_cell("abcd")
    cell.run(a_job("j", chips=4, replicas=3), labels=GRACE)
    before = holding_of(cell.state, "j").placement
    assert before.names() == ["a", "a", "b"]
    cell.break_chip("a", 1 << before.chips_by_rank()[0][0])
    cell.turns()
    cell.remove("j")
    cell.ask(a_job("rival", chips=4, priority=9))
    cell.turns()
    after = holding_of(cell.state, "j").placement
    assert after.chips_by_rank()[1:] == before.chips_by_rank()[1:]
    assert after.names()[1:] == before.names()[1:]
    assert after.names()[0] != "a"


def test_at_the_deadline_all_are_free_for_others() -> None:
    cell = a_cell("ab")
    restarted(cell)
    cell.turns()
    assert cell.scheduler.next_due_ms == cell.now_ms + _HOLD_MS
    assert cell.wait(_HOLD_MS - 1) == []
    assert (cell.phase("small"), cell.state.held("b")) == ("waiting", 0xFF)
    cell.wait(1)
    assert held(cell)[-1] == HeldPlaces("default", "j", holding_uid(cell), 1)
    assert (cell.phase("j"), cell.phase("small"), cell.state.fold.held) == ("waiting", "placed", {})


def test_a_cancelled_job_holds_nothing() -> None:
    cell = a_cell("ab")
    restarted(cell)
    cell.turns()
    cell.take_back("j")
    cell.turns()
    assert cell.state.fold.held == {}
    assert cell.phase("small") == "placed"


@pytest.mark.parametrize("at_once", [False, True])
def test_pods_that_end_one_by_one_free_nothing_before_the_last(at_once: bool) -> None:  # noqa: FBT001  # a parameter
    cell = half_ended(at_once=at_once)
    assert (cell.phase("j"), cell.state.held("b"), cell.phase("small")) == ("ending", 0xFF, "waiting")


def test_a_pod_that_never_terminates_keeps_no_places_of_others_for_ever() -> None:
    cell = half_ended()
    assert cell.scheduler.next_due_ms == cell.now_ms + _GRACE_MS + _HOLD_MS
    cell.wait(_GRACE_MS + _HOLD_MS - 1)
    assert cell.phase("small") == "waiting"
    cell.wait(1)
    assert (cell.phase("j"), cell.phase("small"), cell.node_of("small", 0)) == ("ending", "placed", "b")
    cell.pods["j"][0].phase = PodPhase.GONE
    cell.say("j")
    cell.turns()
    assert (cell.phase("j"), cell.state.fold.held) == ("waiting", {})


def test_a_held_place_that_breaks_is_not_taken_again() -> None:
    cell = a_cell("abc")
    cell.run(a_job("k", chips=8), labels={})
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    first, second = holding_of(cell.state, "j").placement.names()
    cell.break_chip(first)
    cell.turns()
    cell.remove("j")
    cell.turns()
    assert cell.state.held(second) == 0xFF
    cell.break_chip(second)
    freed = cell.node_of("k", 0)
    cell.take_back("k")
    cell.turns()
    cell.remove("k")
    cell.turns()
    assert cell.phase("j") == "waiting"
    cell.conditions.pop(first)
    cell.publish()
    cell.turns()
    assert sorted(holding_of(cell.state, "j").placement.names()) == sorted([first, freed])


@pytest.mark.parametrize("settings", [{"hold_places_ms": 0}, {"reference_parity": True}], ids=["off", "parity"])
def test_without_the_setting_places_are_free_at_once(settings: dict[str, object]) -> None:
    cell = a_cell("ab", **settings)
    restarted(cell)
    cell.turns()
    assert (held(cell), cell.phase("small"), cell.node_of("small", 0)) == ([], "placed", "b")


def test_a_snapshot_holds_the_places() -> None:
    cell = a_cell("ab")
    restarted(cell)
    cell.turns()
    again = cell.reloaded()
    assert again.state.held("b") == 0xFF
    assert again.scheduler.next_due_ms == cell.scheduler.next_due_ms
    for one in (cell, again):
        one.wait(_HOLD_MS)
        assert one.node_of("small", 0) == "b"


def test_a_job_with_held_places_does_not_wait_behind_the_head_of_the_queue() -> None:
    cell = a_cell("ab", queue_policy="fifo")
    restarted(cell)
    cell.turns()
    assert cell.phase("j") == "waiting"
    cell.conditions.clear()
    cell.publish()
    cell.turns()
    assert (cell.phase("j"), cell.phase("rival")) == ("placed", "waiting")


def test_no_rank_gets_a_node_that_failed_earlier_in_the_recovery() -> None:
    """The node is free and well again when the whole job restarts for another fault."""
    cell = a_cell("abcdef")
    cell.run(a_job("j", chips=8, replicas=3), labels=PODS_FIRST)
    assert holding_of(cell.state, "j").placement.names() == ["a", "b", "c"]
    cell.break_chip("b")
    (step,) = cell.turns()
    assert (step.ranks, step.placement and step.placement.names()) == ([1], ["d"])
    cell.remove("j")
    cell.conditions.pop("b")
    cell.publish()
    assert cell.turns() == []
    cell.break_chip("a")
    (step,) = cell.turns()
    assert (step.scope, step.faulty, step.nodes) == ("job", [0], ["a", "b"])
    cell.remove("j")
    cell.turns()
    names = holding_of(cell.state, "j").placement.names()
    assert names == ["e", "d", "c"], "the healthy ranks have theirs, the other one none of those that failed"


def test_places_are_charged_to_the_queue_in_which_they_are_held_and_a_start_in_another_one_counts_there() -> None:
    cell = a_cell("abcd", queues=1)
    for queue in (Queue("old"), Queue("new", capability=limits(16))):
        cell.fact(f"berth.c.fact.queue.{queue.name}", QueueSeen(queue))
    job = a_job("j", chips=8, replicas=2, queue="old")
    cell.run(job, labels=GRACE)
    cell.run(a_job("other", chips=8, replicas=2, queue="old"))
    cell.break_chip("a")
    cell.turns()
    cell.remove("j")
    cell.turns()
    (entry,) = cell.state.fold.held.values()
    assert (entry.queue, entry.ranks) == ("old", [1])
    cell.ask(msgspec.structs.replace(job, queue="new"), a_job("small", chips=8, queue="new"))
    cell.turns()
    for pod in cell.pods["other"].values():
        pod.phase = PodPhase.SUCCEEDED
    cell.say("other")
    cell.turns()
    assert holding_of(cell.state, "j").queue == "new"
    assert cell.phase("small") == "waiting", "new holds 16 of 16"
