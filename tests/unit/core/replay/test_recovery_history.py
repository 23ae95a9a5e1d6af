"""Recoveries in the history of a job: one line for each, with what was kept, what moved, and how long it took."""

from berth.core.replay.job_history import Look, Point, Trail, View
from berth.core.replay.recovery_history import PastRecovery
from berth.schemas.recording import BEGINNING
from tests.support.recovering_job import Recovering

KEY = ("default", "j")


def look(life: Recovering, until: int = 1 << 40) -> Look:
    entries = life.world.entries()
    trail = Trail(KEY, BEGINNING, Point(ledger_seq=until))
    for entry in entries:
        trail.add(entry)
    trail.close()
    found = trail.life()
    assert found is not None
    view = View(KEY, found, trail, BEGINNING)
    for entry in entries:
        if not view.add(entry):
            break
    return view.end()


def test_a_job_without_faults_has_no_recoveries() -> None:
    assert look(Recovering()).recoveries == ()


def test_steps_of_one_recovery_are_one_line_until_every_rank_is_at_its_place() -> None:
    life = Recovering()
    nodes = life.nodes()
    life.recover(0, placed=False)
    life.end(0)
    life.recover(0, 1)
    before = look(life)
    life.end(1)
    (told,) = look(life).recoveries
    now = life.nodes()
    assert (told.steps, told.ranks, told.placed_ms) == (2, [0, 1], life.world.state.fold.at_ms)
    assert told.sentence == (
        f"a chip is unhealthy; ranks 0,1 replaced, 1 of 3 pods kept; moved: rank 0 from {nodes[0]} to {now[0]},"
        f" rank 1 from {nodes[1]} to {now[1]}; 2 steps; every rank was at its place after"
        f" {(told.placed_ms - 40) / 1000:.1f} s"
    )
    assert [one.sentence for one in before.recoveries] == [
        "a chip is unhealthy; ranks 0,1 replaced, 1 of 3 pods kept; 2 steps; not every rank is at its place yet"
    ]
    assert before.status is not None
    assert before.status.recovery is not None


def test_a_later_fault_is_a_recovery_of_its_own() -> None:
    life = Recovering()
    life.recover(0)
    life.end(0)
    life.bind()
    life.recover(2, how="mark")
    assert [(one.ranks, one.how) for one in look(life).recoveries] == [([0], "grace"), ([2], "mark")]
    assert look(life).recoveries[1].sentence == "a chip is unhealthy; 1 pod marked, nothing deleted"


def test_a_restart_is_over_when_the_next_attempt_is_placed() -> None:
    life = Recovering()
    life.recover(scope="job")
    life.world.follow(life.job)
    life.world.evicted(life.job)
    life.world.carry_out()
    (waits,) = look(life).recoveries
    assert waits.placed_ms == 0
    life.world.place(life.job, 5)
    (told,) = look(life).recoveries
    assert told.sentence.startswith("a chip is unhealthy; the whole job was restarted, 3 pods; moved: rank 0 from n")
    assert told.sentence.endswith(f"at its place after {(life.world.state.fold.at_ms - 40) / 1000:.1f} s")


def test_an_earlier_point_does_not_know_later_recoveries() -> None:
    life = Recovering()
    head = life.world.state.fold.head
    life.recover(0)
    assert look(life, head).recoveries == ()
    assert len(look(life, head + 1).recoveries) == 1


def test_only_ranks_on_other_nodes_have_moved() -> None:
    told = PastRecovery(0, 1, "k", "x", "pod", "force", 8, 1, [0, 1, 2, 3, 4, 5], dict.fromkeys(range(8), "a"))
    told.placed_ms, told.moved = 1_500, dict.fromkeys(range(6), "a")
    kept = "x; ranks 0-5 replaced, 2 of 8 pods kept"
    assert told.sentence == f"{kept}; all on the nodes of before; every rank was at its place after 1.5 s"
    told.moved = dict.fromkeys(range(6), "b")
    assert f"{kept}; moved: rank 0 from a to b, " in told.sentence
    assert "rank 3 from a to b and 2 more; every" in told.sentence
