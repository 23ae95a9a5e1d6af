"""What would help a job while places are held for another one that starts anew."""

from berth.core.explain.evidence import Unblocking, unblocking_lines
from berth.schemas.intake import JobRequest
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job, a_node
from tests.support.fault_cells import GRACE, FaultCell

HOLD_MS = 60_000


def holding(nodes: str = "ab") -> FaultCell:
    """A job of two pods that starts anew because a chip of one is broken; places are held for the other one."""
    cell = FaultCell([a_node(name) for name in nodes], hold_places_ms=HOLD_MS)
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.break_chip("a")
    cell.turns()
    cell.remove("j")
    return cell


def waits(cell: FaultCell, job: JobRequest) -> Unblocking:
    """What would help a job that waits; the search leaves nothing behind."""
    cell.ask(job)
    cell.turns()
    gang = cell.state.fold.gangs[job.uid]
    assert isinstance(gang.refusal, Refusal)
    held = list(cell.state.fold.held.items())
    found = cell.unblocking(job, gang.refusal)
    assert list(cell.state.fold.held.items()) == held
    return found


def test_the_end_of_the_hold_is_named_with_its_size_and_deadline() -> None:
    cell = holding()
    cell.turns()
    until_ms = cell.now_ms + HOLD_MS
    found = waits(cell, a_job("small", chips=8))
    kinds = [[(event.kind, event.job or event.node) for event in way.events] for way in found.ways]
    assert kinds == [[("hold-ends", "default/j")], [("node-well", "a")]]
    assert (found.ways[0].at_ms, found.ends_help) == (until_ms, True)
    assert unblocking_lines(found, str)[0] == (
        f"There is room when the places held for default/j are free (1 node, 8 chips, at {until_ms} at the latest)."
    )
    cell.wait(HOLD_MS)
    assert cell.phase("small") == "placed"


def test_it_is_one_of_several_events_where_it_is_not_enough() -> None:
    cell = holding("abc")
    cell.ask(a_job("other", chips=8, priority=9))
    cell.turns()
    found = waits(cell, a_job("wide", chips=8, replicas=2))
    assert (cell.phase("j"), cell.phase("other")) == ("waiting", "placed")
    assert unblocking_lines(found, str)[0] == (
        f"There is room when 2 things have happened: the places held for default/j are free (1 node, 8 chips, at "
        f"{cell.now_ms + HOLD_MS} at the latest); default/other ends (1 node, 8 chips)."
    )


def test_several_holds_are_left_in_their_order() -> None:
    cell = FaultCell([a_node(name) for name in "abcd"], hold_places_ms=HOLD_MS)
    for name in "kj":
        cell.run(a_job(name, chips=8, replicas=2), labels=GRACE)
    for node in "ac":
        cell.break_chip(node)
    cell.turns()
    for name in "kj":
        cell.remove(name)
        cell.turns()
    assert list(cell.state.fold.held) == ["uid-k", "uid-j"]
    found = waits(cell, a_job("small", chips=8))
    assert {event.job for way in found.ways for event in way.events if event.kind == "hold-ends"} == {
        "default/j",
        "default/k",
    }


def test_a_hold_that_is_of_no_use_is_not_named() -> None:
    cell = holding()
    cell.turns()
    found = waits(cell, a_job("elsewhere", chips=8, product="superpod910a3x16"))
    assert not [event for way in found.ways for event in way.events if event.kind == "hold-ends"]


def test_the_job_itself_is_not_told_to_wait_for_its_own_hold() -> None:
    cell = holding()
    cell.turns()
    uid = cell.state.jobs["default", "j"].uid
    refusal = cell.state.fold.gangs[uid].refusal
    assert refusal is not None
    found = cell.unblocking(cell.state.jobs["default", "j"].request, refusal)  # type: ignore[arg-type]  # it has one
    assert not [event for way in found.ways for event in way.events if event.kind == "hold-ends"]
