"""Drains: nodes that a person takes out of service take no pod that is expected to run then."""

import msgspec
import pytest

from berth.core.explain.refusal_text import sentence
from berth.core.scheduling.following import follow_record
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import TimerSeen
from berth.schemas.fault_facts import REASON_MAX, DrainSeen
from berth.schemas.ledger import Epoch, Release, Verdict
from berth.schemas.refusal import NodeReason
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell, on


def a_cell(count: int = 2, **changes: object) -> CoreCell:
    nodes = [a_node(f"n{number}", leaf=f"leaf{number // 2}", superpod=f"{number // 2}") for number in range(count)]
    return CoreCell(nodes, keeps=True, **changes)


def drain(ground: CoreCell, name: str, since_ms: int, kind: str = "node") -> None:
    ground.fact(SUBJECTS.fact_drain(kind, name), DrainSeen(kind, name, since_ms))  # type: ignore[arg-type]  # a kind


def undrain(ground: CoreCell, name: str, kind: str = "node") -> None:
    ground.fact(SUBJECTS.fact_drain(kind, name), DrainSeen(kind, name, gone=True))  # type: ignore[arg-type]  # a kind


def where(verdicts: list[Verdict]) -> dict[str, list[str]]:
    return {one.name: one.placement.names() for one in verdicts if one.placement is not None}


def placed(ground: CoreCell) -> dict[str, list[str]]:
    """All turns until there is nothing to decide.

    Raises:
        AssertionError: There are more than can be.
    """
    found: dict[str, list[str]] = {}
    for _ in range(20):
        verdicts = ground.decide()
        if not verdicts:
            return found
        found |= where(verdicts)
    raise AssertionError("turns do not end")


def test_a_drained_node_takes_no_pod() -> None:
    ground = a_cell()
    drain(ground, "n0", ground.now_ms)
    ground.ask(a_job("a", chips=8), a_job("b", chips=8))
    assert placed(ground) == {"a": ["n1"]}
    refusal = ground.state.fold.gangs["uid-b"].refusal
    assert refusal is not None
    assert {count.reason: count.nodes for count in refusal.counts} == {NodeReason.DRAINED: 1, NodeReason.SHORTAGE: 1}
    assert "1 is drained" in sentence(refusal)


def test_an_epoch_without_the_rule_takes_a_drained_node() -> None:
    ground = a_cell(1)
    drain(ground, "n0", ground.now_ms)
    fold = ground.state.fold
    assert "drains" in {rule.name for rule in fold.rules}
    ground.scheduler.begin(ground.folded(Epoch(2, fold.head, 0, ground.now_ms, "d", fold.settings)).changes)
    ground.ask(a_job("a", chips=8))
    assert placed(ground) == {"a": ["n0"]}


def test_pods_without_chips_too() -> None:
    ground = a_cell(1)
    drain(ground, "n0", ground.now_ms)
    request = a_job("plain", chips=0, resource="", node_selector={}, labels={}, annotations={})
    ground.ask(request)
    assert placed(ground) == {}


def test_an_undrained_node_wakes_what_waited_for_it() -> None:
    ground = a_cell(1)
    drain(ground, "n0", ground.now_ms)
    ground.ask(a_job("a", chips=8))
    assert placed(ground) == {}
    assert ground.decide() == [], "it sleeps"
    undrain(ground, "n0")
    assert placed(ground) == {"a": ["n0"]}


def test_a_drain_that_moves_to_later_wakes_too() -> None:
    ground = a_cell(1)
    drain(ground, "n0", ground.now_ms)
    ground.ask(a_job("a", chips=8, run_ms=500))
    assert placed(ground) == {}
    drain(ground, "n0", ground.now_ms + 500)
    assert placed(ground) == {"a": ["n0"]}


@pytest.mark.parametrize(("kind", "name"), [("leaf", "leaf0"), ("superpod", "0")])
def test_a_place_is_drained_with_all_its_nodes_also_those_that_come(kind: str, name: str) -> None:
    ground = a_cell(3)
    drain(ground, name, ground.now_ms, kind)
    table = ground.state.table
    assert sorted(table.names[row] for row in table.drained_ms) == ["n0", "n1"]
    ground.nodes["n9"] = a_node("n9", leaf="leaf0", superpod="0")
    ground.publish()
    assert sorted(table.names[row] for row in table.drained_ms) == ["n0", "n1", "n9"]
    del ground.nodes["n0"]
    ground.publish()
    assert sorted(table.names[row] for row in table.drained_ms) == ["n1", "n9"]
    ground.nodes["n1"] = a_node("n1", leaf="leaf1", superpod="1")
    ground.publish()
    assert sorted(table.names[row] for row in table.drained_ms) == ["n9"]


def test_the_first_drain_of_a_node_counts() -> None:
    ground = a_cell(1)
    table = ground.state.table
    drain(ground, "leaf0", 9_000, "leaf")
    drain(ground, "n0", 7_000)
    assert table.drained_ms == {0: 7_000}
    undrain(ground, "n0")
    assert table.drained_ms == {0: 9_000}
    undrain(ground, "leaf0", "leaf")
    assert not table.drained_ms
    assert table.drains.times == ()


def test_a_drain_before_its_node_is_known_counts() -> None:
    ground = a_cell(1)
    drain(ground, "late", ground.now_ms)
    ground.nodes = {"late": a_node("late")}
    ground.publish()
    ground.ask(a_job("a"))
    assert placed(ground) == {}


@pytest.mark.parametrize(("run_ms", "fits"), [(999, True), (1_000, True), (1_001, False)])
def test_before_a_planned_drain_only_jobs_that_end_in_time_start(run_ms: int, *, fits: bool) -> None:
    ground = a_cell(1)
    drain(ground, "n0", ground.now_ms + 1_000)
    ground.ask(a_job("a", run_ms=run_ms))
    assert placed(ground) == ({"a": ["n0"]} if fits else {})


@pytest.mark.parametrize(("unknown_ms", "fits"), [(1_000, True), (1_001, False)])
def test_a_job_without_a_run_time_runs_as_long_as_is_assumed(unknown_ms: int, *, fits: bool) -> None:
    ground = a_cell(1, unknown_run_ms=unknown_ms)
    drain(ground, "n0", ground.now_ms + 1_000)
    ground.ask(a_job("a"))
    assert placed(ground) == ({"a": ["n0"]} if fits else {})


def test_only_drains_before_the_end_of_a_job_count() -> None:
    ground = a_cell(3)
    drain(ground, "n0", ground.now_ms)
    drain(ground, "n1", ground.now_ms + 1_000)
    drain(ground, "n2", ground.now_ms + 2_000)
    jobs = [
        a_job("long", chips=8, run_ms=3_000),
        a_job("middle", chips=8, run_ms=1_500),
        a_job("short", chips=8, run_ms=1),
    ]
    ground.ask(*jobs)
    assert placed(ground) == {"middle": ["n2"], "short": ["n1"]}


@pytest.mark.parametrize("policy", ["skip", "fifo", "easy", "conservative"])
def test_time_brings_a_planned_drain_nearer(policy: str) -> None:
    ground = a_cell(1, queue_policy=policy)
    drain(ground, "n0", ground.now_ms + 10_000)
    ground.now_ms += 5_000
    ground.ask(a_job("a", run_ms=6_000))
    assert placed(ground) == {}
    ground.ask(a_job("b", chips=2, run_ms=5_000))
    assert placed(ground) == ({} if policy == "fifo" else {"b": ["n0"]})


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_reservation_that_a_planned_drain_makes_impossible_holds_nobody_any_longer(policy: str) -> None:
    ground = a_cell(2, queue_policy=policy, reserve_chips=16)
    ground.place(a_job("late", chips=8, run_ms=1_000))
    drain(ground, "n1", ground.now_ms + 10_000)
    last_ms = ground.now_ms + 10_000 - 4_000
    ground.ask(a_job("large", chips=8, replicas=2, run_ms=4_000), a_job("small", chips=8, run_ms=3_000))
    assert placed(ground) == {}
    refusal = ground.state.fold.gangs["uid-small"].refusal
    assert refusal is not None
    assert (refusal.code, refusal.ahead) == ("reserved", "default/large")
    found: dict[str, list[str]] = {}
    while (due_ms := ground.scheduler.queue.retry_at_ms) > ground.now_ms:
        ground.now_ms = due_ms
        ground.fact(SUBJECTS.fact_timer, TimerSeen(due_ms))
        found |= placed(ground)
    assert found == {"small": ["n1"]}
    assert ground.now_ms == last_ms + 1, "large would end when the drain begins if it started one moment earlier"


def test_a_shorter_job_of_the_same_class_starts_before_a_longer_one() -> None:
    ground = a_cell(2)
    ground.place(a_job("runs", chips=8, run_ms=100), a_job("runs-too", chips=8, run_ms=100))
    ground.ask(a_job("long", chips=8, run_ms=90_000), a_job("longer", chips=8, run_ms=95_000))
    ground.ask(a_job("short", chips=8, run_ms=10))
    assert placed(ground) == {}, "all of the class sleep"
    drain(ground, "n0", ground.now_ms + 1_000)
    drain(ground, "n1", ground.now_ms + 1_000)
    ground.release(Release("uid-runs", 1, "succeeded"))
    assert placed(ground) == {"short": ["n0"]}, "though the round reads of a class only as many as chips are free"
    assert len(ground.scheduler.queue.sleeping()) == 1, "the others sleep, or each turn would try them"
    ground.release(Release("uid-short", 1, "succeeded"))
    assert placed(ground) == {}
    undrain(ground, "n1")
    undrain(ground, "n0")
    assert set(placed(ground)) == {"long"}


def test_a_class_without_shorter_gangs_sleeps_whole() -> None:
    ground = a_cell(1)
    drain(ground, "n0", ground.now_ms + 1_000)
    ground.ask(*(a_job(f"j{number}", chips=8, run_ms=2_000 + number) for number in range(5)))
    assert placed(ground) == {}
    assert not ground.scheduler.queue.is_holding
    assert len(ground.scheduler.queue.sleeping()) == 1


def test_all_gangs_of_a_class_that_may_not_start_are_held_at_once() -> None:
    ground = a_cell(1)
    ground.place(a_job("runs", chips=8, run_ms=1))
    ground.ask(*(a_job(f"long{number}", chips=8, run_ms=5_000) for number in range(5)))
    ground.ask(a_job("short", chips=8, run_ms=10))
    assert placed(ground) == {}
    drain(ground, "n0", ground.now_ms + 1_000)
    ground.release(Release("uid-runs", 1, "succeeded"))
    verdicts = ground.decide()
    assert [one.name for one in verdicts] == ["long0"], "the round reads two gangs of the class, for one fits at most"
    assert {one.uid for one in ground.scheduler.queue.held} == {f"uid-long{number}" for number in range(5)}
    assert where(ground.decide()) == {"short": ["n0"]}


def test_a_reader_of_a_snapshot_and_a_follower_decide_alike() -> None:
    ground = a_cell(3)
    drain(ground, "n0", ground.now_ms)
    drain(ground, "leaf1", ground.now_ms + 1_000, "leaf")
    ground.ask(a_job("long", chips=8, replicas=2, run_ms=3_000))
    ground.ask(a_job("short", chips=8, run_ms=10, node_selector=on("n2")))
    ground.decide()
    body = decode(ground.state.dump(ground.scheduler.dump()), SnapshotBody)
    state = State(keeps=True)
    loaded = state.load(body)
    other = Scheduler(state)
    assert loaded.waiting is not None
    other.load(loaded.waiting, loaded.changes)
    assert {state.table.names[row]: since for row, since in state.table.drained_ms.items()} == {
        ground.state.table.names[row]: since for row, since in ground.state.table.drained_ms.items()
    }
    assert state.dump(other.dump()) == ground.state.dump(ground.scheduler.dump())
    applied = state.apply_fact(
        SUBJECTS.fact_drain("node", "n0"), state.facts_seq + 1, encode(DrainSeen("node", "n0", gone=True))
    )
    other.note(applied.changes)
    undrain(ground, "n0")
    opening = ground.scheduler.open(ground.now_ms).opening
    assert opening is not None
    recorded = ground.scheduler.decide(opening)
    data = ground.state.fold.encoded(recorded.round)
    ground.scheduler.adopt(recorded, ground.folded(recorded.round))
    follow_record(other, state.fold.link(state.fold.head + 1, data))
    assert state.dump(other.dump()) == ground.state.dump(ground.scheduler.dump())
    assert "n0" in {name for one in recorded.round.verdicts if one.placement for name in one.placement.names()}


def test_what_would_help_leaves_drained_nodes_out() -> None:
    ground = a_cell(2)
    ground.place(a_job("runs", chips=8, node_selector=on("n1")))
    drain(ground, "n0", ground.now_ms)
    request = a_job("a", chips=8)
    refusal = ground.refuse(request)
    found = ground.unblocking(request, refusal)
    assert next([event.kind for event in way.events] for way in found.ways) == ["job-ends"]


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (DrainSeen("node", "", 1), "name: empty"),
        (DrainSeen("node", "n0"), "since_ms: 0, expected 1 to"),
        (DrainSeen("node", "n0", -1), "Expected `int` >= 0"),
        (DrainSeen("node", "n0", 1 << 53), "since_ms: 9007199254740992, expected 1 to"),
        (DrainSeen("node", "n0", 1, -1), "grace_ms: -1, expected 0 to"),
        (DrainSeen("node", "n0", 1, 1 << 53), "grace_ms: 9007199254740992, expected 0 to"),
        (DrainSeen("node", "n0", 1, reason="x" * (REASON_MAX + 1)), "reason: 1025 characters, expected at most 1024"),
        (DrainSeen("node", "n1", 1), "speaks of node/n1 on the subject"),
        (DrainSeen("leaf", "n0", 1), "speaks of leaf/n0 on the subject"),
        (DrainSeen("rack", "n0", 1), "Invalid enum value 'rack'"),  # type: ignore[arg-type]  # a kind that is none
    ],
)
def test_a_fact_that_is_wrong_changes_nothing(fact: DrainSeen, words: str) -> None:
    ground = a_cell(1)
    applied = ground.state.apply_fact(SUBJECTS.fact_drain("node", fact.name and "n0"), 99, encode(fact))
    assert words in applied.error
    assert not ground.state.table.drains
    assert not ground.state.table.drained_ms


@pytest.mark.parametrize("last_ms", [0, 1_999, 2_000, 2_001, 5_000])
def test_scoring_of_all_nodes_and_of_one_agree(last_ms: int) -> None:
    ground = a_cell(3)
    drain(ground, "n0", 2_000)
    drain(ground, "n1", 5_000)
    ground.ask(a_job("a"))
    ground.scheduler.sync()
    (gang,) = ground.scheduler.queue.gangs()
    shape = msgspec.structs.replace(gang.request_class[0][0], drained_ms=last_ms)
    scorer = ground.scheduler.scorer
    reasons, _ = scorer.evaluate(shape)
    assert reasons.tolist() == [scorer.evaluate_one(shape, row, scorer.row_state(row))[0] for row in range(3)]
    assert [reason == NodeReason.DRAINED for reason in reasons.tolist()] == [last_ms >= 2_000, last_ms >= 5_000, False]
