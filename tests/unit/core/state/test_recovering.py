"""Recoveries in the state: which ranks leave, what they own meanwhile, and when a job is over."""

import msgspec
import pytest

from berth.core.errors import InvariantError
from berth.core.state.invariants import check
from berth.core.state.ledger import Holding
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.core.topologies.switches.placed import switch_of
from berth.schemas.facts import OutcomeSeen, PodPhase, RankFailure
from berth.schemas.ledger import Adoption, Eviction, Recovery, Release
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.recovery import How
from tests.support.placed_parts import the_block, the_switch
from tests.support.recovering_gangs import RESOURCE, Job, Place, RecoveringGangs, places_of
from tests.support.recovering_job import Recovering

P = PodPhase


def holding_of(life: Recovering) -> Holding:
    found = life.world.holding(life.job)
    assert found is not None
    return found


def used(life: Recovering) -> int:
    """Chips with an owner."""
    table = life.world.state.table
    return sum((int(table.used[row]) | int(table.releasing[row])).bit_count() for row in range(len(table)))


def step(number: int = 1, *, ranks: tuple[int, ...] = (0,), how: How = "grace", **changes: object) -> Recovery:
    recovery = Recovery("default", "j", "uid-j", 1, number, "CardUnhealthy", "x", "pod", how, list(ranks), [], 9)
    return msgspec.structs.replace(recovery, **changes)


def at(*nodes: str, chips: int = 2, cpu: int = 1_000) -> Placement:
    runs = [Run(len(nodes), chips, cpu, 512)]
    return placement_of(list(nodes), [tuple(range(chips))] * len(nodes), runs, resource=RESOURCE)


def test_old_and_new_place_are_both_owned_until_the_rank_is_released() -> None:
    life = Recovering()
    life.recover(1)
    assert (used(life), list(holding_of(life).reserved()), holding_of(life).leaving()) == (8, [1], {1: 1})
    old, new = life.nodes()[1], holding_of(life).reserved()[1].node
    life.end(1)
    assert (used(life), life.nodes()[1], old != new) == (6, new, True)
    held = holding_of(life)
    assert (held.moves, held.gone, held.step_of(1), held.step_of(0)) == ([], [], 1, 0)


def test_a_rank_without_a_place_is_gone_until_a_step_gives_it_one() -> None:
    life = Recovering()
    life.recover(1, placed=False)
    life.end(1)
    assert (holding_of(life).gone, holding_of(life).unplaced, used(life)) == ([1], [1], 4)
    life.recover(1, how="place")
    assert (holding_of(life).gone, holding_of(life).unplaced, used(life)) == ([], [], 6)


def test_the_time_of_a_step_is_that_of_the_newest_with_which_pods_left() -> None:
    life = Recovering()
    life.recover(1, placed=False)
    left_ms = holding_of(life).step_ms
    assert left_ms == life.world.state.fold.at_ms
    life.end(1)
    life.recover(1, how="place")
    assert (holding_of(life).step, holding_of(life).step_ms) == (2, left_ms)
    assert life.world.state.fold.at_ms > left_ms
    life.recover(0)
    assert (holding_of(life).step, holding_of(life).step_ms) == (3, life.world.state.fold.at_ms)


def test_a_place_for_a_rank_that_still_leaves_does_not_stop_its_deletion() -> None:
    life = Recovering()
    life.recover(1, placed=False)
    life.recover(1, how="place")
    moves = holding_of(life).moves
    assert [(move.how, move.leaving, move.placed) for move in moves] == [("grace", [1], []), ("place", [], [1])]
    life.end(1)
    assert (holding_of(life).moves, holding_of(life).step_of(1)) == ([], 2)


def test_a_wider_step_takes_over_its_ranks_and_frees_the_places_before() -> None:
    life = Recovering()
    life.recover(1)
    life.recover(0, 1, placed=False)
    assert [(move.step, move.leaving, move.placed) for move in holding_of(life).moves] == [(2, [0, 1], [])]
    assert used(life) == 6


def test_a_step_that_names_a_gone_rank_places_it_at_once_or_lets_it_wait() -> None:
    life = Recovering()
    life.recover(1, placed=False)
    life.end(1)
    life.recover(0, 1)
    held = holding_of(life)
    assert (held.gone, held.unplaced, held.leaving(), list(held.reserved())) == ([], [], {0: 2}, [0])
    life = Recovering()
    life.world.round(releases=[Release("uid-j", 1, "succeeded", ranks=[1])])
    assert holding_of(life).unplaced == []
    life.world.round(recoveries=[step(ranks=(0, 1))])
    assert (holding_of(life).unplaced, holding_of(life).leaving()) == ([1], {0: 1})


@pytest.mark.parametrize("how", ["cancelled", "job"])
def test_the_end_of_an_attempt_frees_what_is_reserved(how: str) -> None:
    life = Recovering()
    life.recover(1)
    if how == "job":
        life.recover(scope="job", how="force")
    else:
        life.world.round(evictions=[Eviction("uid-j", 1, "cancelled")])
    held = holding_of(life)
    assert (held.ending, held.moves, used(life)) == ("fault" if how == "job" else "cancelled", [], 6)
    check(life.world.state)


def test_two_ranks_may_be_released_apart() -> None:
    life = Recovering()
    life.recover(0, 1)
    life.end(1)
    assert [(move.leaving, move.placed) for move in holding_of(life).moves] == [([0], [0])]
    life.end(0)
    assert holding_of(life).moves == []


def test_a_mark_changes_only_the_step() -> None:
    life = Recovering()
    life.recover(1, how="mark")
    held = holding_of(life)
    assert (held.step, held.recovers, held.unplaced, used(life)) == (1, False, [], 6)


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (step(ranks=(3,)), "recovers ranks that it does not have"),
        (step(how="place", placement=at("n5")), "gets places for ranks that neither leave nor are gone"),
        (step(placement=at("n5", chips=1)), "gets a place of another size for rank 0"),
        (step(placement=at("n5", cpu=7)), "gets a place of another size for rank 0"),
        (step(placement=msgspec.structs.replace(at("n5"), resource="r")), "gets places of another resource or quota"),
        (step(attempt=2), "recovers where it holds nothing"),
    ],
)
def test_a_step_that_does_not_follow_is_impossible(recovery: Recovery, words: str) -> None:
    life = Recovering()
    with pytest.raises(InvariantError, match=words):
        life.world.round(recoveries=[recovery])


@pytest.mark.parametrize("number", [2, 3])
def test_steps_ascend_and_may_leave_numbers_out(number: int) -> None:
    life = Recovering()
    life.world.round(recoveries=[step(3)])
    assert holding_of(life).step == 3
    with pytest.raises(InvariantError, match=f"takes step {number} after step 3"):
        life.world.round(recoveries=[step(number)])


def test_neither_an_attempt_that_ends_nor_an_adopted_one_recovers() -> None:
    life = Recovering()
    life.world.round(evictions=[Eviction("uid-j", 1, "cancelled")])
    with pytest.raises(InvariantError, match="recovers while it ends"):
        life.world.round(recoveries=[step()])
    world = RecoveringGangs([])
    world.round(adoptions=[Adoption("ns", "alien", "uid-j", at("n0"))])
    with pytest.raises(InvariantError, match="recovers while it is not its own"):
        world.round(recoveries=[step(attempt=0)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": 0}, "step: 0, expected 1 or more"),
        ({"ranks": []}, r"ranks: \[\], expected at least one, ascending, from 0 on"),
        ({"ranks": [1, 1]}, r"ranks: \[1, 1\], expected"),
        ({"ranks": [-1]}, r"ranks: \[-1\], expected"),
        ({"faulty": [2]}, r"faulty: \[2\], expected some of the ranks \[0\]"),
        ({"placement": at("n0", "n1")}, "placement: 2 places for 1 ranks"),
    ],
)
def test_a_step_whose_fields_contradict_one_another_does_not_decode(changes: dict[str, object], words: str) -> None:
    names = Recovery.__struct_fields__
    items = [changes.get(name, getattr(step(), name)) for name in names]
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.msgpack.decode(msgspec.msgpack.encode(items), type=Recovery)


@pytest.mark.parametrize("phase", [P.GONE, P.FAILED, P.SUCCEEDED])
def test_a_job_goes_on_when_all_its_leaving_pods_have_ended(phase: PodPhase) -> None:
    life = Recovering()
    life.recover(0, 1, 2, placed=False)
    for pod in life.job.real.values():
        pod.phase = phase
    life.world.publish(life.job)
    due = life.world.carry_out()
    assert due.releases == [Release("uid-j", 1, "fault", ranks=[0, 1, 2])]
    assert (holding_of(life).unplaced, life.status.phase) == ([0, 1, 2], "placed")
    assert not life.world.carry_out()


def test_a_job_is_not_over_while_a_rank_waits_for_a_place() -> None:
    life = Recovering()
    life.recover(1, placed=False)
    life.end(1)
    for rank in (0, 2):
        life.job.real[rank].phase = P.SUCCEEDED
    life.world.publish(life.job)
    assert life.world.carry_out().releases == [Release("uid-j", 1, "succeeded", ranks=[0, 2])]
    assert not life.world.carry_out()
    assert (holding_of(life).gone, holding_of(life).unplaced) == ([0, 1, 2], [1])


def test_a_rank_whose_place_was_never_used_is_released_when_the_binder_has_taken_up_the_step() -> None:
    life = Recovering()
    life.recover(1)
    life.end(1)
    life.recover(1)
    assert not life.world.carry_out()
    life.world.outcome(life.job, "bound", 1)
    assert not life.world.carry_out()
    life.world.follow(life.job)
    life.world.outcome(life.job, "bound", 2)
    assert life.world.carry_out().releases == [Release("uid-j", 1, "fault", ranks=[1])]


def test_a_row_of_the_old_pod_says_nothing_of_the_new_place() -> None:
    life = Recovering()
    life.job.real[1].phase = P.TERMINATING
    life.world.publish(life.job)
    life.recover(1)
    life.end(1)
    row = life.world.state.table.row(life.nodes()[1])
    assert (int(life.world.state.table.releasing[row]), used(life)) == (0, 6)
    for rank in (0, 2):
        life.job.real[rank].phase = P.SUCCEEDED
    life.world.publish(life.job)
    life.world.carry_out()
    assert holding_of(life).gone == [0, 2]
    life.bind()
    life.job.real[1].phase = P.SUCCEEDED
    life.world.publish(life.job)
    assert life.world.carry_out().releases == [Release("uid-j", 1, "succeeded")]


@pytest.mark.parametrize("state", ["bound", "failed"])
def test_a_replacement_that_cannot_be_bound_waits_for_another_place(state: str) -> None:
    life = Recovering()
    life.recover(1)
    life.end(1)
    failed = [RankFailure(1, "taken")]
    fact = OutcomeSeen("default", "j", "uid-j", 1, state, 2, failed, step=1)  # type: ignore[arg-type]  # a literal
    life.world.fact(fact, "outcome.default.j")
    assert life.world.carry_out().releases == [Release("uid-j", 1, "fault", ranks=[1])]
    assert holding_of(life).unplaced == [1]
    life.recover(1, how="place")
    assert not life.world.carry_out(), "the failure is that of an earlier place"


def test_a_gang_whose_first_pods_cannot_be_bound_fails_although_it_recovers() -> None:
    life = Recovering()
    life.recover(1)
    failed = [RankFailure(0, "taken"), RankFailure(1, "taken")]
    life.world.fact(OutcomeSeen("default", "j", "uid-j", 1, "failed", 1, failed, step=1), "outcome.default.j")
    assert life.world.carry_out().evictions == [Eviction("uid-j", 1, "bind-failed")]


def test_a_restart_waits_for_its_next_attempt_and_counts_for_no_maximum() -> None:
    life = Recovering()
    for attempt in (1, 2, 3):
        life.recover(scope="job")
        life.world.follow(life.job)
        life.world.evicted(life.job)
        assert life.world.carry_out().releases == [Release("uid-j", attempt, "fault", again=True)]
        gang = life.world.state.fold.gangs["uid-j"]
        assert (gang.phase, gang.attempt, gang.restarts) == ("waiting", attempt + 1, attempt)
        assert gang.recovery is not None
        life.world.place(life.job, attempt)
        life.bind()
    life.world.fact(OutcomeSeen("default", "j", "uid-j", 4, "failed", 1), "outcome.default.j")
    life.world.carry_out()
    life.world.follow(life.job)
    life.world.evicted(life.job)
    assert life.world.carry_out().releases == [Release("uid-j", 4, "bind-failed", again=True)], (
        "2 at most, and 3 restarts"
    )


def test_a_cancelled_restart_is_cancelled() -> None:
    life = Recovering()
    life.recover(scope="job")
    life.job.cancelled = True
    life.world.job_fact(life.job)
    life.world.follow(life.job)
    life.world.evicted(life.job)
    assert life.world.carry_out().releases == [Release("uid-j", 1, "cancelled")]


def test_the_counter_of_retries_is_kept_until_a_step_counts() -> None:
    life = Recovering()
    gang = life.world.state.fold.gangs["uid-j"]
    life.world.round(recoveries=[step(retries_left=3)])
    life.world.round(recoveries=[step(2)])
    assert (gang.retries_left, gang.restarts) == (3, 0)
    assert gang.recovery == step(2)


@pytest.mark.parametrize("affinity", ["switch", "block"])
def test_columns_of_affinity_follow_the_ranks(affinity: str) -> None:
    job = Job("j", 3, 2, affinity=affinity)
    world = RecoveringGangs([job])
    world.place(job, 0)
    assert [place[0] for place in places_of(world.state.fold.holdings[job.key].placement)] == ["n0", "n0", "n1"]
    world.recover(job, [1], "force", 4, placed=True)
    world.round(releases=[Release("uid-j", 1, "fault", ranks=[1])])
    placement = world.state.fold.holdings[job.key].placement
    assert [place[0] for place in places_of(placement)] == ["n0", "n4", "n1"]
    if switch_of(placement) is not None:
        assert (the_switch(placement).leaves, the_switch(placement).rule) == (["l0", "l2"], "best-fit")
        assert the_switch(placement).leaf_index == bytes([1, 0, 2, 0, 1, 0])
    else:
        part = block_of(placement)
        assert part is not None
        assert (part.blocks, part.superpods, part.phases) == ([0, 1], ["0", "1"], ["rule-0", "rule-4"])
        assert part.block_index == part.superpod_index == bytes([1, 0, 2, 0, 1, 0])


def test_leaves_and_blocks_without_a_rank_are_left_out() -> None:
    for affinity in ("switch", "block"):
        job = Job("j", 2, 4, affinity=affinity)
        world = RecoveringGangs([job])
        world.place(job, 2)
        world.recover(job, [0, 1], "force", 4, placed=True)
        world.round(releases=[Release("uid-j", 1, "fault", ranks=[0, 1])])
        placement = world.state.fold.holdings[job.key].placement
        assert [place[0] for place in places_of(placement)] == ["n4", "n5"]
        if switch_of(placement) is not None:
            assert (the_switch(placement).leaves, the_switch(placement).leaf_index) == (["l2"], bytes([1, 0, 1, 0]))
        elif block_of(placement) is not None:
            assert (the_block(placement).blocks, the_block(placement).phases) == ([1], ["rule-4"])


def test_a_leaf_is_used_from_the_record_on_that_reserves_a_place_below_it() -> None:
    job = Job("j", 2, 4, affinity="switch")
    world = RecoveringGangs([job])
    world.place(job, 0)
    world.recover(job, [1], "grace", 4, placed=True)
    on = leaf_index_of(world.state.indexes).occupancy.job(job.key)
    assert on is not None
    assert (on.nodes, on.states) == (["n0", "n1", "n4"], bytes([1, 1, 1]))
    assert leaf_index_of(world.loaded().indexes).occupancy.job(job.key) == on
    world.round(releases=[Release("uid-j", 1, "fault", ranks=[1])])
    on = leaf_index_of(world.state.indexes).occupancy.job(job.key)
    assert on is not None
    assert on.nodes == ["n0", "n4"]


def test_a_block_that_is_placed_anew_has_the_rule_of_its_new_place() -> None:
    job = Job("j", 2, 2, affinity="block")
    world = RecoveringGangs([job])
    world.place(job, 0)

    def moved(number: int, ranks: tuple[int, ...], places: list[Place], seed: int) -> list[str]:
        """Rules of the blocks after some ranks have moved."""
        placement = world.placement_at(job, places, seed)
        world.round(recoveries=[step(number, ranks=ranks, placement=placement)])
        world.round(releases=[Release("uid-j", 1, "fault", ranks=list(ranks))])
        part = block_of(world.state.fold.holdings[job.key].placement)
        assert part is not None
        return part.phases

    assert moved(1, (0,), [("n1", (0, 1))], 5) == ["rule-0"]
    assert moved(2, (0, 1), [("n2", (0, 1)), ("n2", (2, 3))], 7) == ["rule-7"]
