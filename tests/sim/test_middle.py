"""What is checked in the middle of a run finds what is wrong."""

from types import SimpleNamespace

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.scheduling.gang_class import Sleep
from berth.core.scheduling.turn import MissingShards
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.message import Message
from berth.schemas.refusal import Refusal
from tests.sim.errors import Failure
from tests.sim.middle import SHARDS, Middle, see_answered, see_refused
from tests.sim.observer import Observer
from tests.sim.run import live
from tests.sim.world import World
from tests.support.cells import a_job, a_node
from tests.unit.core.scheduling.test_scheduler import Seat


@pytest.fixture(scope="module")
def observer() -> Observer:
    """That of a cell at rest."""
    found: list[World] = []
    lived = live(8, on_end=found.append)
    assert lived.kind == ""
    return found[0].observer


class _Seen(Seat):
    """A seat whose facts an observer sees."""

    def __init__(self, *nodes: str, **settings: object) -> None:
        self.observer = Observer("c")
        super().__init__(*nodes, **settings)
        self.observer.state, self.observer.scheduler = self.state, self.scheduler

    def fact(self, subject: str, fact: Message) -> None:
        super().fact(subject, fact)
        self.observer.facts.append(Stored(f"berth.c.fact.{subject}", self.state.facts_seq, encode(fact), 0))


@pytest.mark.parametrize("seed", range(len(SHARDS)))
def test_a_history_is_decided_alike_with_any_number_of_scorers(observer: Observer, seed: int) -> None:
    name = f"decided with {SHARDS[seed]} scorers"
    before = observer.count[name]
    Middle(observer, seed).see_replayed()
    assert observer.count[name] > before


def test_a_record_that_is_not_what_is_decided_again_is_found(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the facts about nodes nothing has a place, and the records say otherwise."""
    facts = [fact for fact in observer.facts if ".fact.node." not in fact.subject]
    monkeypatch.setattr(observer, "facts", facts)
    with pytest.raises(Failure, match="decided"):
        Middle(observer, 0).see_replayed()


def test_a_gang_that_waits_although_there_is_room_is_found(observer: Observer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that were accepted, as if each had been refused; nobody has any chips."""
    state = observer.state
    monkeypatch.setattr(state.fold, "holdings", {})
    monkeypatch.setattr(state.fold, "settings", msgspec.structs.replace(state.fold.settings, queue_policy="skip"))
    see_refused(observer)
    refused = SimpleNamespace(phase="waiting", refusal=Refusal("no-room", form="module910bx8"))
    for key, job in list(state.jobs.items()):
        if job.request is not None and job.state != "rejected":
            monkeypatch.setitem(state.jobs, key, msgspec.structs.replace(job, state="accepted"))
            monkeypatch.setitem(state.fold.gangs, job.uid, refused)
    with pytest.raises(Failure, match="could be placed"):
        see_refused(observer)


def test_who_waits_is_judged_once_the_leader_has_decided_what_is_due() -> None:
    """Until the next record is stored, nobody is woken for the room that the last one made."""
    seat = _Seen("a")
    seat.ill("a", NodeHealth.OK)
    seat.job(a_job("first", chips=8))
    seat.job(a_job("second", chips=8))
    assert list(seat.verdicts()) == [("first", True), ("second", False)]
    middle, count = Middle(seat.observer, 0), seat.observer.count
    middle.see_now(6)
    assert (count["looks at who waits"], count["planner, judged"]) == (1, 1)
    seat.ended("first")
    assert list(seat.verdicts()) == []
    assert seat.scheduler.pending.capacity_gained
    middle.see_now(7)
    assert count["looks at who waits"] == 1
    seat.scheduler._pending.clear()  # a leader that forgets whom to wake
    with pytest.raises(Failure, match="a gang waits that could be placed"):
        middle.see_now(7)


def test_the_gangs_of_a_class_are_not_judged_while_the_class_waits_for_a_scorer() -> None:
    """Its first gang is tried for all of them; what the others were refused for is from before there was room."""
    seat = _Seen("a")
    seat.ill("a", NodeHealth.OK)
    for name in ("first", "second", "third"):
        seat.job(a_job(name, chips=8))
    assert list(seat.verdicts()) == [("first", True), ("second", False), ("third", False)]
    seat.ended("first")
    assert list(seat.verdicts()) == []
    assert list(seat.verdicts(MissingShards(1, [0]))) == [("second", False)]
    middle, count = Middle(seat.observer, 0), seat.observer.count
    middle.see_now(6)
    assert count["looks at who waits"] == 1
    assert count["planner, not judged: a scorer is missing"] == 2
    with pytest.raises(Failure, match="waits for a scorer"):  # at rest all of them are there
        see_answered(seat.observer)
    (key,) = seat.scheduler.queue.sleeping()
    seat.scheduler.queue.restore_sleep(key, Sleep(retry_at_ms=0))  # a leader that never tries them again
    see_answered(seat.observer)
    with pytest.raises(Failure, match="a gang waits that could be placed"):
        see_refused(seat.observer)


def test_a_gang_whose_class_waits_for_room_by_now_is_not_judged_on_an_empty_cluster() -> None:
    """It was refused when the cluster was too small; since there is another node the first gang of its class waits."""
    seat = _Seen("a")
    seat.ill("a", NodeHealth.OK)
    seat.job(a_job("runs", chips=8))
    assert list(seat.verdicts()) == [("runs", True)]
    for name in ("first", "second"):
        seat.job(a_job(name, chips=8, replicas=2))
    assert list(seat.verdicts()) == [("first", False), ("second", False)]
    seat.fact("node.leaf-b", pack_nodes("leaf-b", [a_node("b", leaf="b")], at_ms=2))
    seat.ill("b", NodeHealth.OK)
    assert list(seat.verdicts()) == [("first", False)]
    refusals = [seat.state.fold.gangs[uid].refusal for uid in ("uid-first", "uid-second")]
    assert [refusal.code for refusal in refusals if refusal] == ["no-room", "larger-than-cluster"]
    see_refused(seat.observer)
    assert seat.observer.count["planner, judged: no-room"] == 2
    (key,) = seat.scheduler.queue.sleeping()
    seat.scheduler.queue.restore_sleep(key, Sleep(retry_at_ms=0, never=True))  # a leader that sees no node come
    with pytest.raises(Failure, match="a gang waits that could be placed"):
        see_refused(seat.observer)


def test_a_gang_that_a_reservation_holds_is_judged_by_room_once_its_class_waits_for_room() -> None:
    """The one before them has started, and the first of them, which is tried for both, finds no room."""
    seat = _Seen("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=100_000, round_gangs_max=1)
    seat.ill("a", NodeHealth.OK)
    seat.ill("b", NodeHealth.OK)
    seat.job(a_job("runs", chips=8, run_ms=10))
    assert list(seat.verdicts()) == [("runs", True)]
    seat.job(a_job("large", chips=8, replicas=2))
    for name in ("first", "second"):
        seat.job(a_job(name, chips=8))
    assert [list(seat.verdicts()) for _ in range(3)] == [[("large", False)], [("first", False)], [("second", False)]]
    see_refused(seat.observer)
    assert seat.observer.count["planner, judged: reserved"] == 2
    seat.ended("runs")
    assert [list(seat.verdicts()) for _ in range(3)] == [[], [("large", True)], [("first", False)]]
    refusals = [seat.state.fold.gangs[uid].refusal for uid in ("uid-first", "uid-second")]
    assert [refusal.code for refusal in refusals if refusal] == ["no-room", "reserved"]
    see_refused(seat.observer)
    assert seat.observer.count["planner, judged: no-room"] == 3
    seat.state.fold.holdings.clear()
    with pytest.raises(Failure, match="could be placed"):
        see_refused(seat.observer)


def test_a_gang_that_is_held_waits_for_one_that_is_before_it() -> None:
    seat = _Seen("a", queue_policy="easy")
    seat.ill("a", NodeHealth.OK)
    seat.job(a_job("held", chips=8))
    gone = Refusal("reserved", form="module910bx8", ahead="default/gone")
    seat.state.fold.gangs["uid-held"] = SimpleNamespace(phase="waiting", refusal=gone)  # type: ignore[assignment]  # a part
    seat.scheduler.queue.hold("uid-held", retry_at_ms=0)
    with pytest.raises(Failure, match="waits for none that is before it"):
        see_refused(seat.observer)


def test_a_gang_behind_one_that_left_waits_only_if_there_is_no_room_for_it() -> None:
    """Its class sleeps since the one ahead was refused, so it is not tried when that one is cancelled."""
    seat = _Seen("a")
    settings = msgspec.structs.replace(seat.state.fold.settings, queue_policy="fifo")
    seat.state.fold.settings = settings
    seat.ill("a", NodeHealth.OK)
    seat.job(a_job("one", chips=8))
    assert list(seat.verdicts()) == [("one", True)]
    seat.job(a_job("two", chips=8))
    (job,) = (job for job in seat.state.jobs.values() if job.name == "two")
    behind = Refusal("behind", form="module910bx8", ahead="ns/gone")
    seat.state.fold.gangs[job.uid] = SimpleNamespace(phase="waiting", refusal=behind)  # type: ignore[assignment]  # a part
    see_refused(seat.observer)
    assert seat.observer.count["planner, judged: no-room"] == 1
    seat.state.fold.holdings.clear()
    with pytest.raises(Failure, match="could be placed"):
        see_refused(seat.observer)


def test_a_gang_is_behind_another_one_only_in_a_strict_queue_and_only_if_that_one_is_before_it() -> None:
    """The first gang is too large for the node; the second one is not."""
    seat = _Seen("a")
    state = seat.state
    seat.ill("a", NodeHealth.OK)
    seat.job(a_job("large", chips=8, replicas=2))
    seat.job(a_job("small", chips=8))
    uids = {job.name: job.uid for job in state.jobs.values()}

    def refuse(name: str, refusal: Refusal) -> None:
        state.fold.gangs[uids[name]] = SimpleNamespace(phase="waiting", refusal=refusal)  # type: ignore[assignment]  # a part

    refuse("large", Refusal("no-room", form="module910bx8"))
    refuse("small", Refusal("behind", form="module910bx8", ahead="default/large"))
    state.fold.settings = msgspec.structs.replace(state.fold.settings, queue_policy="fifo")
    see_refused(seat.observer)
    assert seat.observer.count["planner, judged: behind"] == 1
    state.fold.settings = msgspec.structs.replace(state.fold.settings, queue_policy="skip")
    with pytest.raises(Failure, match="could be placed"):
        see_refused(seat.observer)
    refuse("large", Refusal("behind", form="module910bx8", ahead="default/large"))
    with pytest.raises(Failure, match="not before it"):
        see_refused(seat.observer)
