"""Jobs by leaf: what counts, in any order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.switches.occupancy.leaf_bits import (
    CROSS,
    EXCLUSIVE,
    LARGE,
    LARGE_CROSS,
    NORMAL,
    NOT_NORMAL,
    SHARED,
    STATE,
    UNHEALTHY,
)
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.schemas.facts import Leaf


def a_table() -> LeafTable:
    return LeafTable([Leaf(f"leaf{leaf}", "", [f"n{leaf}{place}" for place in range(3)]) for leaf in range(3)])


def an_occupancy(*jobs: LeafJob, parity: bool = False) -> LeafOccupancy:
    occupancy = LeafOccupancy(a_table(), REFERENCE if parity else OWN)
    for number, job in enumerate(jobs):
        occupancy.put((f"job{number}", 1), job)
    return occupancy


def test_pods_adopted_one_by_one_are_cross_jobs_where_their_state_says_so() -> None:
    pods = [LeafJob(LARGE, 1, [node], bytes([2]), is_part=True) for node in ("n00", "n11")]
    assert an_occupancy(*pods).bits().tolist() == [EXCLUSIVE | CROSS | NOT_NORMAL | LARGE_CROSS] * 2 + [0]
    assert an_occupancy(LeafJob(LARGE, 1, ["n00"], bytes([0]), is_part=True)).bits()[0] == NOT_NORMAL
    assert an_occupancy(LeafJob(NORMAL, 1, ["n00"], bytes([1]), is_part=True)).bits()[0] == SHARED | CROSS


def test_an_empty_occupancy_says_nothing_of_any_leaf() -> None:
    assert an_occupancy().bits().tolist() == [0, 0, 0]
    assert LeafOccupancy(LeafTable()).bits().tolist() == []


def test_a_job_on_one_leaf_is_no_cross_job() -> None:
    assert an_occupancy(LeafJob(NORMAL, 2, ["n00", "n01"])).bits().tolist() == [0, 0, 0]
    assert an_occupancy(LeafJob(LARGE, 4, ["n00", "n01"])).bits().tolist() == [NOT_NORMAL, 0, 0]


def test_a_job_on_two_leaves_is_a_cross_job_on_both() -> None:
    assert an_occupancy(LeafJob(NORMAL, 2, ["n00", "n11"])).bits().tolist() == [CROSS, CROSS, 0]
    assert an_occupancy(LeafJob("", 2, ["n00", "n11"])).bits().tolist() == [CROSS | NOT_NORMAL, CROSS | NOT_NORMAL, 0]


def test_a_pod_below_no_known_leaf_makes_a_job_cross() -> None:
    assert an_occupancy(LeafJob(NORMAL, 2, ["n00", "elsewhere"])).bits().tolist() == [CROSS, 0, 0]
    assert an_occupancy(LeafJob(NORMAL, 1, ["elsewhere"])).bits().tolist() == [0, 0, 0]


@pytest.mark.parametrize(("pods", "is_large"), [(3, False), (4, True)])
def test_a_foundation_model_job_has_four_pods(pods: int, *, is_large: bool) -> None:
    bits = an_occupancy(LeafJob(LARGE, pods, ["n00", "n11"])).bits().tolist()
    assert bits[0] == CROSS | NOT_NORMAL | (LARGE_CROSS if is_large else 0)


def test_states_are_merged_whatever_their_order() -> None:
    shared, exclusive, ill = (LeafJob(NORMAL, 1, ["n00"], bytes([state])) for state in (1, 2, 5))
    for jobs in ((shared, exclusive), (exclusive, shared)):
        assert an_occupancy(*jobs).bits()[0] & STATE == SHARED
    assert an_occupancy(exclusive).bits()[0] & (STATE | UNHEALTHY) == EXCLUSIVE
    for jobs in ((ill, exclusive), (exclusive, ill)):
        assert an_occupancy(*jobs).bits()[0] & (STATE | UNHEALTHY) == SHARED | UNHEALTHY


def test_unhealthy_makes_a_leaf_shared_so_that_it_is_in_one_class_at_least() -> None:
    assert an_occupancy(LeafJob(NORMAL, 1, ["n00"], bytes([2 | UNHEALTHY]))).bits()[0] == SHARED | UNHEALTHY


def test_without_chips_a_job_counts_only_as_in_the_reference() -> None:
    job = LeafJob("", 0, ["n00", "n11"], has_chips=False, phase=JobPhase.RUNNING)
    assert an_occupancy(job).bits().tolist() == [0, 0, 0]
    assert an_occupancy(job, parity=True).bits().tolist() == [CROSS | NOT_NORMAL, CROSS | NOT_NORMAL, 0]


@pytest.mark.parametrize(
    ("phase", "bits"),
    [
        (JobPhase.DECIDED, NOT_NORMAL),
        (JobPhase.PARTLY, NOT_NORMAL | EXCLUSIVE),
        (JobPhase.RUNNING, NOT_NORMAL | EXCLUSIVE | CROSS | LARGE_CROSS),
    ],
)
def test_the_reference_counts_by_how_far_a_job_is(phase: JobPhase, bits: int) -> None:
    job = LeafJob(LARGE, 4, ["n00", "n11"], bytes([2, 2]), phase=phase)
    assert an_occupancy(job, parity=True).bits()[0] == bits
    assert an_occupancy(job).bits()[0] == NOT_NORMAL | EXCLUSIVE | CROSS | LARGE_CROSS


def test_a_job_left_out_still_has_its_word_on_states() -> None:
    occupancy = an_occupancy(LeafJob(LARGE, 4, ["n00", "n11"], bytes([2, 2])), LeafJob(NORMAL, 2, ["n01", "n12"]))
    assert occupancy.bits(without=("job0", 1)).tolist() == [CROSS | EXCLUSIVE, CROSS | EXCLUSIVE, 0]
    assert occupancy.bits(without=("nobody", 1)).tolist() == occupancy.bits().tolist()


def test_only_the_last_job_that_closes_a_leaf_opens_it() -> None:
    cross, other = LeafJob(NORMAL, 2, ["n00", "n11"]), LeafJob(NORMAL, 2, ["n01", "n12"])
    occupancy = an_occupancy(cross, other)
    assert not occupancy.drop(("job0", 1))  # the other one keeps both leaves as they were
    assert occupancy.drop(("job1", 1))


@pytest.mark.parametrize(
    ("first", "then", "opens"),
    [
        (LeafJob(LARGE, 4, ["n00", "n11"], bytes([2, 2])), LeafJob(NORMAL, 1, ["n01"], bytes([1]), is_part=True), True),
        (LeafJob(LARGE, 4, ["n00", "n11"], bytes([1, 1])), LeafJob(NORMAL, 1, ["n01"], bytes([5]), is_part=True), True),
        (LeafJob("", 1, ["n00"]), LeafJob(LARGE, 4, ["n00", "n11"], bytes([2, 1])), False),
        (LeafJob(NORMAL, 2, ["n00", "n10"]), LeafJob("", 1, ["n02"]), False),
    ],
    ids=[
        "exclusive becomes shared",
        "healthy becomes unhealthy",
        "free becomes exclusive and shared",
        "not common any more",
    ],
)
def test_a_job_that_comes_opens_a_leaf_when_its_word_on_the_state_does(
    first: LeafJob, then: LeafJob, *, opens: bool
) -> None:
    occupancy = an_occupancy(first)
    assert occupancy.put(("then", 1), then) == opens


def test_what_becomes_of_a_job_opens_a_leaf_only_when_its_state_does() -> None:
    occupancy = an_occupancy(LeafJob(LARGE, 6, ["n00", "n01", "n11"], bytes([2, 2, 2])))
    # A rank has ended, and both leaves are as they were.
    assert not occupancy.put(("job0", 1), LeafJob(LARGE, 6, ["n00", "n11"], bytes([2, 2])))
    assert occupancy.put(("job0", 1), LeafJob(LARGE, 6, ["n00"], bytes([2])))


def test_a_job_of_one_pod_opens_its_leaf_when_it_was_the_last_that_is_not_common() -> None:
    occupancy = an_occupancy(LeafJob("", 1, ["n00"]), LeafJob(LARGE, 1, ["n01"]), LeafJob(NORMAL, 1, ["n02"]))
    assert not occupancy.drop(("job2", 1))
    assert not occupancy.put(("job0", 1), LeafJob(NORMAL, 1, ["n00"]))
    assert occupancy.bits()[0] == NOT_NORMAL
    assert occupancy.bits(without=("job1", 1))[0] == 0
    assert occupancy.drop(("job1", 1))
    assert occupancy.bits()[0] == 0


@pytest.mark.parametrize("states", [b"", bytes([1, 2])])
def test_states_with_another_job_instead_are_those_of_a_copy_that_has_it(states: bytes) -> None:
    others = LeafJob(LARGE, 4, ["n01", "n21"], states=bytes([2, 1])), LeafJob("", 1, ["n10"])
    occupancy = an_occupancy(LeafJob(NORMAL, 2, ["n00", "n20"], states=bytes([1, 4])), *others)
    instead = LeafJob(LARGE, 4, ["n11", "n20"], states=states)
    copy = occupancy.fork()
    copy.put(("job0", 1), instead)
    before = occupancy.bits().tolist()
    found = occupancy.bits(without=("job0", 1), instead=instead)
    assert found.tolist() == copy.bits(without=("job0", 1)).tolist()
    assert occupancy.bits().tolist() == before


def test_a_copy_goes_its_own_way() -> None:
    occupancy = an_occupancy(LeafJob(LARGE, 4, ["n00", "n11"]))
    copy = occupancy.fork()
    copy.drop(("job0", 1))
    copy.put(("job1", 1), LeafJob(NORMAL, 2, ["n20", "n00"]))
    assert occupancy.bits().tolist() == [NOT_NORMAL | CROSS | LARGE_CROSS] * 2 + [0]
    assert copy.bits().tolist() == [CROSS, 0, CROSS]
    assert sorted(copy.jobs()) == [("job1", 1)]


JOBS = st.builds(
    LeafJob,
    tor_affinity=st.sampled_from(("", NORMAL, LARGE)),
    pods=st.integers(1, 6),
    nodes=st.lists(st.sampled_from([f"n{leaf}{place}" for leaf in range(4) for place in range(3)]), max_size=5),
    states=st.just(b""),
    has_chips=st.booleans(),
    phase=st.sampled_from(list(JobPhase)),
).flatmap(
    lambda job: st.lists(st.sampled_from((0, 1, 2, 5)), min_size=len(job.nodes), max_size=len(job.nodes)).map(
        lambda states: LeafJob(job.tor_affinity, job.pods, job.nodes, bytes(states), job.has_chips, job.phase)
    )
)


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | JOBS), max_size=12), st.booleans())
def test_events_leave_what_counting_anew_finds(events: list[tuple[int, LeafJob | None]], parity: bool) -> None:  # noqa: FBT001 - drawn
    occupancy = LeafOccupancy(a_table(), REFERENCE if parity else OWN)
    left: dict[tuple[str, int], LeafJob] = {}
    for number, job in events:
        key = (f"job{number}", 1)
        if job is None:
            occupancy.drop(key)
            left.pop(key, None)
        else:
            occupancy.put(key, job)
            left[key] = job
    anew = LeafOccupancy(a_table(), REFERENCE if parity else OWN)
    for key in sorted(left, reverse=True):
        anew.put(key, left[key])
    assert occupancy.bits().tolist() == anew.bits().tolist()
    assert occupancy.jobs() == left
