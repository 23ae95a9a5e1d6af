import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.columns import pack
from berth.schemas.facts import PodPhase
from berth.services.binder.chip_slots import ChipSlots, Slot
from berth.services.binder.predicate_times import PredicateTimes
from tests.support.kube_binder import RESOURCE, a_gang, pods_of

SLOT = Slot("n0", RESOURCE, 2)
A = ("uid-a", 1, 0)
B = ("uid-b", 1, 0)
GANG_A = a_gang("a", ["n0"], [(0, 1)])


def test_a_slot_has_one_pod_until_it_lets_go() -> None:
    turns = ChipSlots()
    assert turns.claim(SLOT, A)
    assert turns.claim(SLOT, A)
    assert not turns.claim(SLOT, B)
    assert turns.occupant(SLOT) == A
    assert turns.claim(Slot("n0", RESOURCE, 1), B)
    assert turns.claim(Slot("n1", RESOURCE, 2), B)
    assert turns.release(A) == [SLOT]
    assert turns.release(A) == []
    assert turns.claim(SLOT, B)


def test_a_slot_is_free_when_the_pod_has_its_chips() -> None:
    turns = ChipSlots()
    turns.claim(SLOT, A)
    assert turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.PENDING, 3, False)])) == []
    assert not turns.claim(SLOT, B)
    assert turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.PENDING, 3, True)])) == [SLOT]
    assert turns.claim(SLOT, B)


def test_pods_that_run_end_or_are_gone_wait_for_nothing() -> None:
    for phase in (PodPhase.RUNNING, PodPhase.TERMINATING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE):
        turns = ChipSlots()
        turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.PENDING, 3, False)]))
        assert not turns.claim(SLOT, B)
        assert turns.take(pods_of(GANG_A, [(0, "n0", phase, 3, False)])) == [SLOT]


def test_a_pod_that_is_first_heard_of_when_it_has_ended_lets_go_and_is_forgotten() -> None:
    turns = ChipSlots()
    turns.claim(SLOT, A)
    assert turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.FAILED, 3, False)])) == [SLOT]
    assert not turns.is_reported("ns", "a", A)
    assert turns.claim(SLOT, B)


def test_a_damaged_fact_changes_nothing() -> None:
    turns = ChipSlots()
    turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.PENDING, 3, False)]))
    damaged = msgspec.structs.replace(pods_of(GANG_A, [(0, "n0", PodPhase.PENDING, 3, False)]), node_index=pack([9], 4))
    with pytest.raises(IndexError):
        turns.take(damaged)
    assert turns.occupant(SLOT) == A
    assert turns.take(pods_of(GANG_A, [])) == [SLOT]


def test_jobs_whose_pods_have_all_ended_take_no_memory() -> None:
    turns = ChipSlots()
    both = a_gang("a", ["n0", "n1"], [(0, 1), (0, 1)])
    turns.take(pods_of(both, [(0, "n0", PodPhase.RUNNING, 3, True), (1, "n1", PodPhase.SUCCEEDED, 3, True)]))
    assert turns.is_served("ns", "a", ("uid-a", 1, 1))
    turns.take(pods_of(both, [(0, "n0", PodPhase.SUCCEEDED, 3, True), (1, "n1", PodPhase.SUCCEEDED, 3, True)]))
    assert vars(turns) == vars(ChipSlots())


def test_pods_of_other_schedulers_count() -> None:
    turns = ChipSlots()
    foreign = a_gang("pod/x", ["n0"], [(6, 7)], attempt=0)
    turns.take(pods_of(foreign, [(0, "n0", PodPhase.PENDING, 0xC0, False)], foreign=True))
    assert not turns.claim(SLOT, A)
    assert turns.take(pods_of(foreign, [])) == [SLOT]
    assert turns.claim(SLOT, A)


def test_a_row_that_is_missing_lets_go() -> None:
    turns = ChipSlots()
    both = a_gang("a", ["n0", "n1"], [(0, 1), (0, 1)])
    turns.claim(SLOT, A)
    turns.take(pods_of(both, [(0, "n0", PodPhase.PENDING, 3, False), (1, "n1", PodPhase.RUNNING, 3, True)]))
    assert turns.take(pods_of(both, [(1, "n1", PodPhase.RUNNING, 3, True)])) == [SLOT]


def test_a_fact_from_before_the_binding_does_not_let_go() -> None:
    turns = ChipSlots()
    both = a_gang("a", ["n0", "n1"], [(0, 1), (0, 1)])
    turns.take(pods_of(both, [(1, "n1", PodPhase.RUNNING, 3, True)]))
    turns.claim(SLOT, A)
    assert turns.take(pods_of(both, [(1, "n1", PodPhase.SUCCEEDED, 3, True)])) == []
    assert turns.occupant(SLOT) == A


def test_no_pods_left_of_an_attempt_lets_go() -> None:
    turns = ChipSlots()
    turns.claim(SLOT, A)
    assert turns.take(pods_of(GANG_A, [])) == [SLOT]
    turns.claim(SLOT, A)
    assert turns.forget("uid-a", 1) == [SLOT]
    assert turns.forget("uid-a", 1) == []


def test_a_pod_that_takes_another_slot_leaves_the_first() -> None:
    turns = ChipSlots()
    turns.hold(SLOT, A)
    turns.hold(Slot("n9", RESOURCE, 2), A)
    assert turns.occupant(SLOT) is None


def test_whom_facts_show_with_chips() -> None:
    turns = ChipSlots()
    turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.PENDING, 3, False)]))
    assert not turns.is_served("ns", "a", A)
    turns.take(pods_of(GANG_A, [(0, "n0", PodPhase.RUNNING, 3, True)]))
    assert turns.is_served("ns", "a", A)
    assert not turns.is_served("ns", "a", ("uid-a", 2, 0))


PHASES = st.sampled_from(list(PodPhase))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, 3)),
        st.tuples(st.just("let_go"), st.integers(0, 3)),
        st.tuples(st.just("see"), st.lists(st.tuples(st.integers(0, 3), PHASES, st.booleans()), max_size=4)),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_at_most_one_claim_is_granted_and_nothing_stays_for_ever(steps: list[tuple[str, object]]) -> None:
    turns = ChipSlots()
    gang = a_gang("a", ["n0"] * 4, [(0, 1)] * 4)
    waiting: set[int] = set()
    claimed: set[int] = set()
    known: set[int] = set()
    for verb, what in steps:
        if verb == "see":
            assert isinstance(what, list)
            rows = {rank: (phase, consumed) for rank, phase, consumed in what}
            turns.take(pods_of(gang, [(rank, "n0", *_row(rows[rank])) for rank in sorted(rows)]))
            there = {rank for rank, row in rows.items() if row[0] != PodPhase.GONE}
            waiting = {rank for rank, row in rows.items() if row == (PodPhase.PENDING, False)}
            claimed -= (there - waiting) | (known - there)
            claimed = claimed if rows else set()
            known = there
        else:
            assert isinstance(what, int)
            key = ("uid-a", 1, what)
            if verb == "claim":
                granted = turns.claim(SLOT, key)
                assert granted == (not (waiting | claimed) - {what})
                claimed |= {what} if granted else set()
            else:
                turns.release(key)
                claimed.discard(what)
        inside = {rank for _, _, rank in turns._in.get(SLOT, ())}
        assert inside == waiting | claimed
    turns.take(pods_of(gang, []))
    assert turns._in == {}


def _row(row: tuple[PodPhase, bool]) -> tuple[PodPhase, int, bool]:
    return row[0], 3, row[1]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["bind", "bind", "restart", "served"]), st.sampled_from(["n0", "n1"]), st.integers(0, 50)
    ),
    max_size=60,
)


@given(EVENTS)
def test_times_of_a_node_only_grow_whatever_the_clock_does_and_over_restarts(
    events: list[tuple[str, str, int]],
) -> None:
    times = PredicateTimes()
    waiting: dict[str, list[int]] = {"n0": [], "n1": []}
    latest_ms = 0
    for verb, node, now_ms in events:
        if verb == "restart":
            times = PredicateTimes()
            times.begin_after(latest_ms)
            for name, given_ns in waiting.items():  # pods that have no chips yet are looked at
                for one_ns in given_ns:
                    times.note(name, one_ns)
        elif verb == "served":
            waiting[node].clear()  # their time is the largest now, whatever it was
        else:
            found = times.next(node, now_ms)
            assert found > max(waiting[node], default=0)
            assert found >= now_ms * 1_000_000
            waiting[node].append(found)
            latest_ms = now_ms
