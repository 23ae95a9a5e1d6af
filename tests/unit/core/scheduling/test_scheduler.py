"""Turns of the scheduler: the same history gives the same decisions however it is cut, and after turns taken back."""

import tracemalloc
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from berth.core.changes import Changes
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.errors import InvariantError
from berth.core.placement.projected_state import footprint_of
from berth.core.scheduling.reservations import Footprints
from berth.core.scheduling.rules.backfill import Memory
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards
from berth.core.state.cell import State
from berth.core.state.internal_errors import SetAside
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, JobState, NodeHealth, PodPhase, PodsSeen, TimerSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job, a_node


class Seat:
    """A state and its decider, fed by hand; a new epoch at the start."""

    def __init__(self, *nodes: str, **settings: object) -> None:
        self.state = State(keeps=True)
        self.scheduler = Scheduler(self.state)
        self.intake = 0
        self.set_aside: Sequence[SetAside] = ()
        """Of the last round."""
        for name in nodes:
            self.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [a_node(name, leaf=name)], at_ms=1))
        self.begin(**settings)

    def begin(self, **settings: object) -> None:
        fold = self.state.fold
        new = Settings(**settings)  # type: ignore[arg-type]  # fields of the settings
        record = Epoch(fold.epoch + 1, fold.head, self.state.facts_seq, 1, "d", new, rules=rules_of(new))
        self.scheduler.begin(self.state.apply_record(fold.head + 1, self.state.fold.encoded(record)).changes)

    def fact(self, subject: str, fact: Message) -> None:
        applied = self.state.apply_fact(f"berth.c.fact.{subject}", self.state.facts_seq + 1, encode(fact))
        assert applied.error == ""
        self.scheduler.note(applied.changes)

    def job(self, request: JobRequest, *, state: JobState = "accepted", uid: str = "") -> None:
        before, self.intake = self.intake, self.intake + 1
        seen = JobSeen(
            "default",
            request.name,
            uid or request.uid,
            state,
            self.intake,
            self.intake,
            1,
            request,
            after_seq=before,
        )
        self.fact(f"job.default.{request.name}", seen)

    def ill(self, node: str, level: NodeHealth = NodeHealth.NO_NEW_WORK) -> None:
        self.fact(f"health.leaf-{node}", pack_health(f"leaf-{node}", [NodeCondition(node, level=level)], at_ms=1))

    def ended(self, name: str) -> None:
        holding = next(holding for holding in self.state.fold.holdings.values() if holding.name == name)
        names = holding.placement.names()
        seen = PodsSeen(
            "default", name, holding.uid, holding.attempt, pack(range(len(names)), 4), pack_names(sorted(set(names))),
            pack([sorted(set(names)).index(node) for node in names], 4), pack([PodPhase.SUCCEEDED] * len(names), 1),
            pack([0] * len(names), 8),
        )  # fmt: skip
        self.fact(f"pod.default.{name}", seen)

    def round(self, missing_shards: MissingShards | None = None, at_ms: int = 5) -> Round | None:
        """A round that is decided and stored; None when there is nothing to decide."""
        opening = self.scheduler.open(at_ms).opening
        if opening is None:
            return None
        recorded = self.scheduler.decide(opening, missing_shards)
        self.set_aside = recorded.set_aside
        self.scheduler.adopt(
            recorded, self.state.apply_record(self.state.fold.head + 1, self.state.fold.encoded(recorded.round))
        )
        return recorded.round

    def verdicts(self, missing_shards: MissingShards | None = None) -> Iterator[tuple[str, bool]]:
        """Jobs of the next round in its order, and whether they were placed."""
        record = self.round(missing_shards)
        for verdict in record.verdicts if record is not None else []:
            yield verdict.name, verdict.placement is not None


def restarted(seat: Seat) -> Seat:
    """Another one, from a snapshot."""
    other = Seat.__new__(Seat)
    other.state = State(keeps=True)
    changes, waiting = other.state.load(decode(seat.state.dump(seat.scheduler.dump()), SnapshotBody))
    other.scheduler, other.intake = Scheduler(other.state), seat.intake
    assert waiting is not None
    other.scheduler.load(waiting, changes)
    return other


@pytest.fixture
def full() -> Seat:
    """A node that a job fills, and two that wait for it, asleep."""
    seat = Seat("a", "b")
    seat.job(a_job("first", chips=8))
    seat.job(a_job("second", chips=8))
    seat.job(a_job("third", chips=8))
    seat.job(a_job("fourth", chips=8))
    assert list(seat.verdicts()) == [("first", True), ("second", True), ("third", False), ("fourth", False)]
    return seat


def test_who_was_refused_sleeps_until_something_helps(full: Seat) -> None:
    assert full.round() is None
    full.ill("a")
    assert full.round() is None
    full.ended("first")  # its node takes no new work
    record = full.round()
    assert record is not None
    assert (record.verdicts, [release.uid for release in record.releases]) == ([], ["uid-first"])
    assert full.round() is None
    full.ill("a", NodeHealth.OK)
    assert list(full.verdicts()) == [("third", True), ("fourth", False)]


def test_a_round_that_was_taken_back_leaves_what_it_woke_asleep(full: Seat) -> None:
    full.ended("first")
    assert full.round() is not None
    before = full.scheduler.dump()
    assert (len(before.sleeping), before.capacity_gained) == (1, ["a"])
    opening = full.scheduler.open(6).opening
    assert opening is not None
    assert [gang.name for gang in opening.gangs] == ["third", "fourth"]
    assert full.scheduler.dump().sleeping == []
    full.scheduler.take_back(opening)
    assert full.scheduler.dump() == before
    full.ill("a")  # by now nothing would wake them
    assert full.round() is None


def test_a_round_is_taken_back_once_only(full: Seat) -> None:
    full.ended("first")
    full.round()
    opening = full.scheduler.open(6).opening
    assert opening is not None
    full.scheduler.take_back(opening)
    once = full.scheduler.dump()
    with pytest.raises(InvariantError, match="round 3: the turn was ended before"):
        full.scheduler.take_back(opening)
    assert full.scheduler.dump() == once


def test_looking_when_there_is_nothing_to_decide_changes_nothing_that_is_decided_later(full: Seat) -> None:
    other = Seat("a", "b")
    for name in ("first", "second", "third", "fourth"):
        other.job(a_job(name, chips=8))
    other.round()
    for seat, looks in ((full, True), (other, False)):
        for node, level in (("b", NodeHealth.NO_NEW_WORK), ("a", NodeHealth.NO_NEW_WORK), ("b", NodeHealth.OK)):
            seat.ill(node, level)
            assert not looks or seat.round() is None
        seat.ended("second")
    records = [full.round(), other.round()]
    assert records[0] == records[1]
    assert [full.round(), full.scheduler.dump()] == [other.round(), other.scheduler.dump()]


def test_a_snapshot_says_who_sleeps_and_its_reader_goes_on_alike(full: Seat) -> None:
    full.ended("first")
    full.round()
    full.job(a_job("fifth", chips=8, priority=9))
    other = restarted(full)
    found = [[seat.round(), seat.round(), seat.scheduler.dump()] for seat in (full, other)]
    assert found[0] == found[1]
    first = found[0][0]
    assert isinstance(first, Round)
    assert [verdict.name for verdict in first.verdicts] == ["fifth", "third"]


@pytest.mark.parametrize("state", ["cancelled", "tombstone"])
def test_a_snapshot_before_a_turn_has_no_gang_whose_job_is_over(full: Seat, state: JobState) -> None:
    """A class sleeps in a snapshot by one of its gangs: that must be one that a reader still finds."""
    known, (sleeper,) = full.scheduler.queue.dump()
    assert (known, sleeper.uid) == (["uid-fourth", "uid-third"], "uid-fourth")
    full.job(a_job("fourth", chips=8), state=state)
    other = restarted(full)
    assert (full.round(), other.round()) == (None, None), "the class sleeps for a reader, too"
    assert other.scheduler.dump() == full.scheduler.dump()


def test_a_snapshot_before_a_turn_has_a_job_that_was_accepted_again_without_a_verdict(full: Seat) -> None:
    full.job(a_job("third", chips=8, priority=9))
    other = restarted(full)
    record = full.round()
    assert record is not None
    assert [verdict.name for verdict in record.verdicts] == ["third"]
    assert other.round() == record


def test_a_missing_shard_is_told_and_its_wait_ends_with_the_clock_of_the_facts() -> None:
    seat = Seat("a", "b")
    lost = next(shard for shard in (0, 1) if seat.scheduler.decisions.silent(MissingShards(2, [shard])) is not None)
    seat.job(a_job("job", chips=8, replicas=2))
    record = seat.round(MissingShards(2, [lost]), at_ms=100)
    assert record is not None
    assert (record.missing, record.shards) == ([lost], 2)
    assert record.verdicts[0].refusal is not None
    assert record.verdicts[0].refusal.missing_shards == [lost]
    assert seat.round() is None
    seat.fact("timer", TimerSeen(1099))
    assert seat.round() is None
    seat.fact("timer", TimerSeen(1100))
    assert list(seat.verdicts()) == [("job", True)]


def test_a_class_whose_first_gang_waits_for_a_shard_waits_as_a_whole_and_is_then_placed_as_a_whole(full: Seat) -> None:
    """The first gang is tried for all of them; the other keeps what it was refused for before."""
    full.ended("first")
    full.ended("second")
    assert full.round() is not None
    record = full.round(MissingShards(1, [0]), at_ms=100)
    assert record is not None
    assert [(verdict.name, verdict.placement) for verdict in record.verdicts] == [("third", None)]
    assert full.state.fold.gangs["uid-fourth"].refusal is not None
    full.fact("timer", TimerSeen(1099))
    assert full.round() is None
    full.fact("timer", TimerSeen(1100))
    assert list(full.verdicts()) == [("third", True), ("fourth", True)]


def test_a_new_epoch_tries_everybody_anew(full: Seat) -> None:
    full.begin(round_gangs_max=1)
    assert list(full.verdicts()) == [("third", False)]
    assert list(full.verdicts()) == [("fourth", False)]
    assert full.round() is None


def test_a_request_that_was_turned_away_takes_the_place_of_a_gang_with_its_uid(full: Seat) -> None:
    """One look at all of it must come to the same as one after each fact."""
    full.job(a_job("third", chips=8), state="cancelled")
    full.job(a_job("third", chips=8, uid="other"))
    full.job(a_job("third", chips=8), state="rejected")
    assert full.round() is None
    assert "uid-third" not in full.scheduler.queue
    assert "other" not in full.scheduler.queue
    assert "uid-fourth" in full.scheduler.queue


def test_a_gang_that_is_tried_again_waits_as_a_fresh_one(full: Seat) -> None:
    known, _ = full.scheduler.queue.dump()
    assert known == ["uid-fourth", "uid-third"]
    full.job(a_job("third", chips=4))
    assert list(full.verdicts()) == [("third", False)]
    assert full.round() is None


def test_what_was_said_before_there_were_nodes_does_not_hold_for_the_first_ones() -> None:
    seat = Seat()
    elsewhere = {"accelerator-type": "module-910b-8", "zone": "elsewhere"}
    for name, fields in (("stranger", {"node_selector": elsewhere}), ("wide", {"replicas": 2})):
        seat.job(a_job(name, chips=8, **fields))
    assert list(seat.verdicts()) == [("stranger", False), ("wide", False)]
    seat.fact("node.leaf-a", pack_nodes("leaf-a", [a_node("a", leaf="a")], at_ms=1))
    seat.job(a_job("small", chips=8))
    assert list(seat.verdicts()) == [("wide", False), ("small", True)]
    refusals = {gang.name: gang.refusal for gang in seat.state.fold.gangs.values()}
    assert refusals["wide"] is not None
    assert refusals["wide"].expected == (
        "the job asks for 16 chips of huawei.com/Ascend910, and there are 8 in all, on 1 nodes that it may use"
    )


def test_many_changes_without_a_turn_need_little_memory() -> None:
    """A dispatcher that may not decide, as while it waits for a cancellation, goes on to take facts."""
    seat = Seat("a")
    changes = Changes(capacity_gained={0: None}, applied=0)

    def grown(count: int) -> int:
        tracemalloc.start()
        for _ in range(count):
            seat.scheduler.note(msgspec.structs.replace(changes, jobs_changed={("default", "j"): None}))
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    grown(100)
    assert grown(5_000) < 200_000
    assert list(seat.scheduler.pending.capacity_gained) == [0]


def test_footprints_of_attempts_that_ended_are_forgotten() -> None:
    seat = Seat("a")
    seat.job(a_job("runs"))
    seat.round()
    (key,) = seat.state.fold.holdings
    placement = seat.state.fold.holdings[key].placement
    own: Footprints = {key: ((placement, [], {}, []), footprint_of(seat.state, (), placement))}
    memory = Memory()
    memory.footprints = {(f"uid-{number}", 1): own[key] for number in range(1_000)} | own
    memory.keep(seat.state)
    assert list(memory.footprints) == [key]
