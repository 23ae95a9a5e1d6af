"""Held places of jobs that start anew: whatever comes together, no chip has two owners and nothing stays for ever."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.cells import a_job, a_node
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell

_HOLD_MS = 5_000
_NODES = "abcde"
EVENTS = st.one_of(
    st.tuples(st.just("break"), st.sampled_from(_NODES), st.sampled_from([0b1, 0b11110000, 0xFF])),
    st.tuples(st.just("repair"), st.sampled_from(_NODES), st.just(0)),
    st.tuples(st.just("gone"), st.sampled_from(_NODES), st.just(0)),
    st.tuples(st.just("back"), st.sampled_from(_NODES), st.just(0)),
    st.tuples(st.just("remove"), st.sampled_from("jk"), st.just(0)),
    st.tuples(st.just("bind"), st.sampled_from("jk"), st.just(0)),
    st.tuples(st.just("cancel"), st.sampled_from("jkw"), st.just(0)),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([0, 1_000, 4_999, 5_000])),
    st.tuples(st.just("snapshot"), st.just(""), st.just(0)),
)


def happen(cell: FaultCell, what: str, name: str, number: int) -> FaultCell:
    """One thing happens, as far as it can."""
    job = cell.state.jobs.get(("default", name))
    gang = cell.state.fold.gangs.get(job.uid) if job is not None else None
    holds = gang is not None and (gang.uid, gang.attempt) in cell.state.fold.holdings
    match what:
        case "break":
            cell.break_chip(name, number)
        case "repair":
            cell.conditions.pop(name, None)
            cell.publish()
        case "gone":
            cell.nodes.pop(name, None)
            cell.publish()
        case "back":
            cell.nodes.setdefault(name, a_node(name))
            cell.publish()
        case "remove" if holds and name in cell.pods:
            cell.remove(name)
        case "bind" if holds and gang is not None and gang.phase == "placed":
            cell.pods.pop(name, None)
            cell.bind(name)
        case "cancel" if job is not None and job.state == "accepted":
            cell.take_back(name)
        case "wait":
            cell.now_ms += number
        case "snapshot":
            return cell.reloaded()
        case _:
            pass
    return cell


@given(
    events=st.lists(EVENTS, max_size=14),
    chips=st.sampled_from([4, 8]),
    plans=st.booleans(),
    policy=st.sampled_from(["skip", "fifo", "easy"]),
)
def test_no_chip_has_two_owners_and_nothing_is_held_for_ever(
    *, events: list[tuple[str, str, int]], chips: int, plans: bool, policy: str
) -> None:
    cell = FaultCell(
        [a_node(name) for name in _NODES],
        hold_places_ms=_HOLD_MS,
        plan_before_delete=plans,
        queue_policy=policy,
        reserve_chips=16,
    )
    cell.run(a_job("j", chips=chips, replicas=3), labels=GRACE)
    cell.run(a_job("k", chips=8, replicas=1), labels=PODS_FIRST)
    cell.ask(a_job("w", chips=8, replicas=2, priority=9))
    cell.turns()
    for event in events:
        cell = happen(cell, *event)
        cell.turns()  # checks all invariants after each record
        for held in cell.state.fold.held.values():
            assert cell.now_ms < held.until_ms <= cell.now_ms + _HOLD_MS
            assert cell.scheduler.next_due_ms <= held.until_ms
            for place in held.places().values():
                assert cell.state.held(place.node) & place.mask == place.mask
    cell.now_ms += _HOLD_MS
    cell.turns()
    assert cell.state.fold.held == {}
