"""An error of Berth while one gang is decided sets that gang aside: the others are decided, the record says so, a
replay does the same.

The error is one that there was: a soft-share node that withholds its chips is taken to fit, and has no chip.
"""

from collections.abc import Sequence
from typing import cast

import pytest
from structlog.testing import capture_logs

from berth.core.changes import Changes
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.cluster.view import RowState
from berth.core.errors import InvariantError
from berth.core.explain.model import all_sentences
from berth.core.explain.refusal_text import sentence
from berth.core.gangs import Gang
from berth.core.placement.offers import candidates_of, merge, offer_of
from berth.core.placement.scoring import Candidates, Reasons, Scorer, Scores
from berth.core.replay.replay import replayed
from berth.core.requests.job_validation import SHARE_AICORE, SHARE_HBM, SHARE_POLICY
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards
from berth.core.scheduling.verdicts import Decisions
from berth.core.scheduling.wakeups import Wakeups
from berth.core.state.cell import State
from berth.core.state.internal_errors import RETRY_MS
from berth.core.state.lifecycle import examine
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen, TimerSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Settings, Verdict
from berth.schemas.nodes import NodeCondition
from berth.schemas.offers import Shape
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.refusal import NodeReason, ReasonCount
from berth.schemas.status import DeadLetter
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.chained_records import rechained
from tests.unit.core.explain.test_explainer import told
from tests.unit.core.scheduling.test_scheduler import Seat, restarted

WITHHELD = pytest.mark.usefixtures("offers_withheld")
NO_CHIP = "a node that fits has no chip for the pod"
POLICIES = pytest.mark.parametrize("policy", ["skip", "fifo", "easy", "conservative"])


@pytest.fixture
def offers_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """Withheld chips count among those that a node offers to pods which share."""
    monkeypatch.setattr(SoftShareTable, "offered", lambda shares, row: int(shares._table.chips[row]))


class BrokenSeat(Seat):
    """A soft-share node s that withholds its chips 0 and 1, and a node a with 8 chips; it remembers its history."""

    def __init__(self, **settings: object) -> None:
        self.history: list[Entry] = []
        super().__init__("a", **settings)
        node = a_node("s", "soft-share", leaf="s", chips=0b11, allocatable=2)
        self.fact("node.leaf-s", pack_nodes("leaf-s", [node], at_ms=1))
        self.says(0b11)

    def says(self, withheld: int) -> None:
        self.fact("health.leaf-s", pack_health("leaf-s", [NodeCondition("s", withheld=withheld)], at_ms=1))

    def fact(self, subject: str, fact: object) -> None:
        super().fact(subject, fact)  # type: ignore[arg-type]  # as there
        self.history.append(Entry(self.state.facts_seq, encode(fact), f"berth.c.fact.{subject}"))  # type: ignore[arg-type]  # as there

    def begin(self, **settings: object) -> None:
        fold = self.state.fold
        new = Settings(**settings)  # type: ignore[arg-type]  # fields of the settings
        record = Epoch(fold.epoch + 1, fold.head, self.state.facts_seq, 1, "d", new, rules=rules_of(new))
        self.history.append(Entry(fold.head + 1, fold.encoded(record)))
        super().begin(**settings)

    def decided(self) -> list[Verdict]:
        record = self.round()
        assert record is not None
        self.history.append(Entry(self.state.fold.head, encode(record)))
        return record.verdicts


def shares(name: str, *, aicore: int = 60, replicas: int = 1, priority: int = 0) -> JobRequest:
    labels = {SHARE_AICORE: str(aicore), SHARE_HBM: "1024", SHARE_POLICY: "elastic"}
    tasks = [Task("worker", replicas, 1, 1_000)]
    return a_job(name, tasks=tasks, product="soft-share", labels=labels, priority=priority)


def said(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Each job of a record, and its refusal; empty for those that are placed."""
    return [(verdict.name, verdict.refusal.code if verdict.refusal is not None else "") for verdict in verdicts]


@POLICIES
@WITHHELD
def test_others_are_decided_in_the_same_round_whatever_the_queue_policy(policy: str) -> None:
    seat = BrokenSeat(queue_policy=policy, reserve_chips=1)
    seat.job(shares("broken", priority=1))
    seat.job(a_job("whole", chips=8))
    verdicts = seat.decided()
    assert said(verdicts) == [("broken", "internal"), ("whole", "")]
    refusal = verdicts[0].refusal
    assert refusal is not None
    assert (refusal.value, refusal.pods_need, verdicts[0].final) == (NO_CHIP, 1, False)
    assert NO_CHIP in sentence(refusal)
    (one,) = seat.set_aside
    assert one.subject == "default/broken"
    assert isinstance(one.error, InvariantError)
    assert one.error.subject == "node s"


@POLICIES
@WITHHELD
def test_a_gang_that_is_set_aside_blocks_nobody_behind_it(policy: str) -> None:
    seat = BrokenSeat(queue_policy=policy, reserve_chips=1)
    seat.job(shares("broken", priority=2))
    seat.job(a_job("first", chips=8, priority=1))
    assert said(seat.decided()) == [("broken", "internal"), ("first", "")]
    seat.job(a_job("second", chips=8))
    assert said(seat.decided()) == [("second", "no-room")]
    seat.ended("first")
    assert said(seat.decided()) == []
    assert said(seat.decided()) == [("second", "")]


@WITHHELD
def test_what_the_gang_had_taken_is_given_to_the_next() -> None:
    """Its first pod finds a chip on r, where cpu is left for one pod; its second comes to s."""
    seat = BrokenSeat()
    node = a_node("r", "soft-share", leaf="r", chips=0b11, allocatable=2, cpu_milli=1_000)
    seat.fact("node.leaf-r", pack_nodes("leaf-r", [node], at_ms=1))
    seat.job(shares("broken", replicas=2))
    seat.job(shares("next", aicore=100))
    verdicts = seat.decided()
    assert said(verdicts) == [("broken", "internal"), ("next", "")]
    assert verdicts[1].placement is not None
    assert (verdicts[1].placement.names(), verdicts[1].placement.chips_by_rank()) == (["r"], [(0,)])


@WITHHELD
def test_the_class_sleeps_with_the_gang_and_wakes_with_what_helps_it() -> None:
    seat = BrokenSeat()
    for name in ("one", "two"):
        seat.job(shares(name))
    assert said(seat.decided()) == [("one", "internal"), ("two", "internal")]
    assert seat.round() is None
    seat.job(shares("three"))
    assert said(seat.decided()) == [("three", "internal")], "a gang of the class that never had a verdict gets one"
    seat.says(0)
    assert said(seat.decided()) == [("one", ""), ("two", ""), ("three", "no-room")], "60 percent twice is too much"


@POLICIES
@WITHHELD
def test_a_replay_and_a_start_from_a_snapshot_set_aside_alike(policy: str) -> None:
    seat = BrokenSeat(queue_policy=policy, reserve_chips=1)
    seat.job(shares("broken", priority=1))
    seat.job(a_job("whole", chips=8))
    seat.decided()
    seat.says(0b10)
    other = restarted(seat)
    record = seat.round()
    assert other.round() == record
    assert record is not None
    seat.history.append(Entry(seat.state.fold.head, encode(record)))
    result = replayed(BEGINNING, rechained(seat.history))
    assert result.is_identical
    assert (result.rounds, result.digest) == (2, result.recorded_digest)


class BrokenScorer(Scorer):
    """Fails on pods of 4 chips; its message names a row, as numpy's do."""

    def evaluate(self, shape: Shape, without: Fits | None = None) -> tuple[Reasons, Scores]:
        if shape.chips == 4:
            raise IndexError(f"index {len(self.table)} is out of bounds")
        return super().evaluate(shape, without)

    def evaluate_one(self, shape: Shape, row: int, state: RowState, base: RowState | None = None) -> tuple[int, int]:
        if shape.chips == 4:
            raise IndexError(f"index {row} is out of bounds")
        return super().evaluate_one(shape, row, state, base)


def break_scoring(seat: Seat) -> None:
    """Let a scheduler score with errors from now on."""
    scheduler, state = seat.scheduler, seat.state
    scheduler.scorer = BrokenScorer(state.table, state.shares, state.fold.settings)
    scheduler.decisions = Decisions(state, scheduler.queue, scheduler.scorer, scheduler.rules)
    scheduler._wakeups = Wakeups(state, scheduler.queue, scheduler.scorer)


def test_a_shape_that_cannot_be_scored_leaves_the_other_shapes_alone() -> None:
    seat = Seat("a", "b")
    break_scoring(seat)
    seat.job(a_job("four", chips=4))
    seat.job(a_job("eight", chips=8))
    record = seat.round()
    assert record is not None
    assert said(record.verdicts) == [("four", "internal"), ("eight", "")]
    assert record.verdicts[0].refusal is not None
    assert record.verdicts[0].refusal.value == "IndexError"
    assert [one.subject for one in seat.set_aside] == ["default/four"]


def test_a_shard_reports_an_error_in_the_words_of_the_record() -> None:
    seat = Seat("a", "b")
    seat.job(a_job("four", chips=4))
    opening = seat.scheduler.open(5).opening
    assert opening is not None
    (shape,) = opening.asks
    table = seat.state.table
    broken = BrokenScorer(table, seat.state.shares, seat.state.fold.settings).candidates(shape, 1)
    sound = seat.scheduler.scorer.candidates(shape, 1)
    parts = [candidates_of(table, offer_of(table, found)) for found in (sound, broken)]
    found: Candidates = merge(table, parts, missing_nodes=0)
    (verdict,) = seat.scheduler.decisions.on_own_candidates(opening, MissingShards()).verdicts
    assert verdict.refusal is None
    verdicts = seat.scheduler.choose(opening, {shape: found}, opening.asks, MissingShards()).verdicts
    assert verdicts[0].refusal is not None
    assert (verdicts[0].refusal.code, verdicts[0].refusal.value) == ("internal", "IndexError")


class BrokenState(State):
    """Fails where it is asked who holds chips of node a."""

    def held(self, node: str) -> int:
        if node == "a":
            raise InvariantError("is not to be asked", subject=f"node {node}")
        return super().held(node)


def test_pods_of_others_that_cannot_be_adopted_leave_the_others_alone() -> None:
    state = BrokenState()
    for node in ("a", "b"):
        fact = pack_nodes(f"leaf-{node}", [a_node(node, leaf=node)], at_ms=1)
        assert state.apply_fact(f"berth.c.fact.node.leaf-{node}", state.facts_seq + 1, encode(fact)).error == ""
        pods = PodsSeen(
            "default", f"pod-{node}", f"uid-{node}", 0, pack([0], 4), pack_names([node]), pack([0], 4),
            pack([PodPhase.RUNNING], 1), pack([1], 8), foreign=True,
        )  # fmt: skip
        assert state.apply_fact(f"berth.c.fact.pod.default.pod-{node}", state.facts_seq + 1, encode(pods)).error == ""
    asked = {"uid-a": None, "uid-b": None}
    found, settled, set_aside, _ = examine(state, asked)
    assert [adoption.uid for adoption in found.adoptions] == ["uid-b"]
    assert [one.subject for one in set_aside] == ["uid-a"]
    assert settled == ["uid-a"], "it is left as it is until something changes for it"


class BrokenSettings:
    """Whatever is asked of it ends with an error."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)


async def test_a_request_that_cannot_be_judged_is_a_dead_letter_and_the_next_is_judged() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("broken"))
    await cell.settle()
    with capture_logs() as logs:
        await cell.dispatcher.intake.step(cast("Settings", BrokenSettings()), batch_max=1)
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["request could not be judged"]
    await cell.submit(a_job("sound"))
    await cell.turns(2)
    stored = [stored.data for stored in await cell.user.read(StreamName.DEAD)]
    assert [decode(data, DeadLetter).reason for data in stored] == ["an error of Berth: ZeroDivisionError"]
    status = await cell.status("sound")
    assert status is not None
    assert status.phase == "placed"
    await cell.close()


@WITHHELD
async def test_the_dispatcher_logs_the_error_and_counts_it() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("s", "soft-share", leaf="s", chips=0b11, allocatable=2), a_node("a", leaf="a")])
    await cell.health("leaf-s", [NodeCondition("s", withheld=0b11)])
    await cell.submit(shares("broken"), a_job("whole", chips=8))
    with capture_logs() as logs:
        await cell.turns(2)
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (entry["event"], entry["gang"]) == ("decision failed, gang set aside", "default/broken")
    assert isinstance(entry["exc_info"], InvariantError)
    broken, whole = await cell.status("broken"), await cell.status("whole")
    assert broken is not None
    assert whole is not None
    assert (broken.phase, whole.phase) == ("waiting", "placed")
    assert NO_CHIP in broken.sentence
    found = await told(cell, "broken")
    assert (found.outcome, found.code, found.nearest, found.unblocking) == ("waiting", "internal", [], None)
    assert any(NO_CHIP in line for line in all_sentences(found))
    await cell.close()


async def test_pods_that_cannot_be_adopted_are_reported_though_nothing_else_is_due() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a", leaf="a")])
    await cell.turns()
    cell.dispatcher.state.__class__ = BrokenState
    pods = PodsSeen(
        "default", "pod-a", "uid-a", 0, pack([0], 4), pack_names(["a"]), pack([0], 4), pack([PodPhase.RUNNING], 1),
        pack([1], 8), foreign=True,
    )  # fmt: skip
    await cell.user.publish(cell.user.subjects.fact_pod("default", "pod-a"), encode(pods))
    with capture_logs() as logs:
        await cell.turns(2)
    errors = [(entry["event"], entry["gang"]) for entry in logs if entry["log_level"] == "error"]
    assert errors == [("decision failed, gang set aside", "uid-a")], "once, and without a round"
    assert cell.dispatcher.state.fold.rounds == 0
    await cell.close()


class BrokenDecider(Scheduler):
    """Fails to read requests of jobs named broken."""

    def gang(self, job: JobSeen, request: JobRequest, attempt: int) -> Gang:
        if job.name == "broken":
            raise KeyError(job.name)
        return super().gang(job, request, attempt)


@POLICIES
def test_a_request_that_cannot_be_read_waits_and_the_others_are_decided(policy: str) -> None:
    seat = Seat("a", "b", queue_policy=policy, reserve_chips=1)
    seat.scheduler = BrokenDecider(seat.state)
    seat.scheduler.begin(Changes(applied=seat.state.applied))
    seat.job(a_job("broken", chips=8, priority=1))
    seat.job(a_job("sound", chips=8))
    record = seat.round()
    assert record is not None
    assert said(record.verdicts) == [("broken", "internal"), ("sound", "")]
    assert [verdict.final for verdict in record.verdicts] == [False, False]
    assert [(one.subject, str(one.error)) for one in seat.set_aside] == [("default/broken", "KeyError")]
    assert seat.round() is None
    seat.job(a_job("next", chips=8))
    record = seat.round()
    assert record is not None
    assert said(record.verdicts) == [("next", "")]


@POLICIES
def test_what_improves_wakes_the_others_and_time_wakes_the_class_that_cannot_be_scored(policy: str) -> None:
    seat = Seat("a", queue_policy=policy, reserve_chips=1)
    break_scoring(seat)
    seat.job(a_job("four", chips=4, priority=2))
    seat.job(a_job("first", chips=8, priority=1))
    seat.job(a_job("second", chips=8))
    record = seat.round(at_ms=1_000)
    assert record is not None
    assert said(record.verdicts)[:2] == [("four", "internal"), ("first", "")]
    seat.ended("first")
    assert seat.round(at_ms=1_001) is not None
    record = seat.round(at_ms=1_002)
    assert record is not None
    assert said(record.verdicts) == [("second", "")]
    assert seat.scheduler.queue.retry_at_ms == 1_000 + RETRY_MS
    seat.fact("timer", TimerSeen(1_000 + RETRY_MS))
    record = seat.round(at_ms=1_000 + RETRY_MS)
    assert record is not None
    assert said(record.verdicts) == [("four", "internal")]


def test_a_class_that_cannot_be_scored_any_more_is_set_aside() -> None:
    seat = Seat("a", queue_policy="fifo")
    seat.job(a_job("all", chips=8))
    seat.job(a_job("four", chips=4))
    assert seat.round() is not None
    break_scoring(seat)
    seat.ended("all")
    assert seat.round() is not None
    record = seat.round()
    assert record is not None
    assert said(record.verdicts) == [("four", "internal")]


def test_where_nobody_answered_no_error_is_known() -> None:
    """A replay must not know more of a shape than the dispatcher did."""
    seat = Seat("a")
    break_scoring(seat)
    seat.job(a_job("four", chips=4))
    record = seat.round(MissingShards(1, [0]))
    assert record is not None
    (verdict,) = record.verdicts
    assert verdict.refusal is not None
    assert (verdict.refusal.code, verdict.refusal.missing_shards) == ("no-room", [0])
    assert verdict.refusal.counts == [ReasonCount(NodeReason.SHARD_MISSING, 1)]
