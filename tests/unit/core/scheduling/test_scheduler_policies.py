"""Queue policies in the pure turn: what is decided does not depend on how turns were cut, nor on what is remembered,
and nobody is held for longer than there is a reason.
"""

import pytest

from berth.core.cluster.domains import shard_of
from berth.core.cluster.node_packing import pack_nodes
from berth.core.scheduling.turn import MissingShards
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodsSeen, TimerSeen
from berth.schemas.intake import Task
from berth.schemas.ledger import Round
from tests.support.cells import a_job, a_node
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.services.dispatcher.test_superpods import A3, in_blocks


def foreign(seat: Seat, node: str, *, chips: int = 0xFF) -> None:
    """Somebody else's pod runs on a node."""
    fact = PodsSeen(
        "default", "alien", "uid-alien", 0, pack([0], 4), pack_names([node]), pack([0], 4), pack([PodPhase.RUNNING], 1),
        pack([chips], 8), resource="huawei.com/Ascend910", foreign=True,
    )  # fmt: skip
    seat.fact("pod.default.alien", fact)


def told(record: Round | None) -> dict[str, tuple[str, int]]:
    """Code and moment that a record tells those who wait."""
    verdicts = record.verdicts if record is not None else []
    return {one.name: (one.refusal.code, one.refusal.start_ms) for one in verdicts if one.refusal is not None}


def test_under_fifo_a_look_that_wakes_somebody_behind_the_head_changes_nothing_that_is_decided_later() -> None:
    """The room that woke it may be gone by the time that the head leaves; a reader looks only then."""
    seats = []
    for looks in (True, False):
        seat = Seat("a", "b", queue_policy="fifo")
        for name, chips, priority in (("z", 8, 0), ("x", 4, 0), ("y", 4, 0), ("small", 2, 1), ("head", 8, 5)):
            seat.job(a_job(name, chips=chips, priority=priority))
            seat.round()
        seat.ended("x")
        assert seat.round() is not None
        assert not looks or seat.round() is None
        for node in ("a", "b"):
            seat.ill(node)
        assert not looks or seat.round() is None
        seat.job(a_job("head", chips=8, priority=5), state="cancelled")
        assert seat.round() is None
        for node in ("a", "b"):
            seat.ill(node, NodeHealth.OK)
        assert list(seat.verdicts()) == [("small", True)]
        seats.append(seat)
    assert seats[0].scheduler.dump() == seats[1].scheduler.dump()


def test_pods_of_others_that_move_are_where_they_are_and_not_where_they_were() -> None:
    seat = Seat("a", "b", "c", queue_policy="easy", reserve_chips=16, unknown_run_ms=100_000)
    foreign(seat, "a")
    seat.round(at_ms=5)
    seat.job(a_job("large", chips=8, replicas=3))
    assert told(seat.round(at_ms=6)) == {"large": ("no-room", 100_005)}
    foreign(seat, "b")
    assert seat.round(at_ms=10) is not None
    other = restarted(seat)
    records = [one.round(at_ms=20) for one in (seat, other)]
    assert records[0] == records[1]
    assert told(records[0]) == {"large": ("no-room", 100_010)}


def test_who_is_held_for_the_sake_of_one_who_can_never_start_any_more_is_let_go() -> None:
    """Somebody runs for ever, and a node is lost that the large one needs."""
    for loses in ("node", "health"):
        seat = Seat("a", "b", "c", queue_policy="easy", reserve_chips=16, unknown_run_ms=10)
        seat.ill("b", NodeHealth.OK)
        seat.job(a_job("endless", chips=8))
        seat.round(at_ms=5)
        seat.job(a_job("large", chips=8, replicas=3))
        seat.job(a_job("small", chips=8))
        assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100), "small": ("reserved", 100)}
        assert seat.round(at_ms=200) is None
        if loses == "node":
            seat.fact("node.leaf-b", pack_nodes("leaf-b", [], at_ms=2))
        else:
            seat.ill("b")
        other = restarted(seat)
        for one in (seat, other):
            assert list(one.verdicts()) == [("small", True)], loses


def test_who_is_held_while_a_shard_is_silent_is_tried_again_once_it_may_be_heard() -> None:
    seat = Seat("a", "b", "c", queue_policy="easy", reserve_chips=16, unknown_run_ms=10)
    seat.job(a_job("endless", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("half", chips=4))
    seat.round(at_ms=2)
    half = next(one for one in seat.state.fold.holdings.values() if one.name == "half").placement.names()[0]
    silent = shard_of(f"leaf-{half}", 97)
    assert [shard_of(f"leaf-{node}", 97) for node in "abc"].count(silent) == 1
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100)}
    seat.job(a_job("small", chips=4))
    assert told(seat.round(MissingShards(97, [silent]), at_ms=101)) == {"small": ("reserved", 101)}
    other = restarted(seat)
    for one in (seat, other):
        one.fact("timer", TimerSeen(1100))
        assert one.round(at_ms=1100) is None
        one.fact("timer", TimerSeen(1101))
        assert list(one.verdicts()) == [("small", True)]


def test_a_gang_that_came_and_went_between_two_records_lets_nobody_go() -> None:
    """A round that looked at it and was taken back is one that no reader knows of."""
    seats = []
    for looks in (True, False):
        seat = Seat("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=10)
        seat.job(a_job("endless", chips=8))
        seat.round(at_ms=1)
        seat.job(a_job("large", chips=8, replicas=2))
        seat.job(a_job("small", chips=8))
        assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100), "small": ("reserved", 100)}
        seat.job(a_job("another", chips=8, replicas=2))
        if looks:
            opening = seat.scheduler.open(101).opening
            assert opening is not None
            seat.scheduler.take_back(opening)
        seat.job(a_job("another", chips=8, replicas=2), state="cancelled")
        assert seat.round(at_ms=102) is None
        seats.append(seat)
    assert seats[0].scheduler.dump() == seats[1].scheduler.dump()


def test_under_fifo_a_head_that_is_larger_than_what_is_left_of_the_cluster_lets_the_next_go() -> None:
    seat = Seat("a", "b", "c", queue_policy="fifo")
    seat.job(a_job("first", chips=8))
    seat.round()
    holding = next(iter(seat.state.fold.holdings.values()))
    node = holding.placement.names()[0]
    for name, nodes in (("head", 3), ("second", 3), ("small", 1)):
        seat.job(a_job(name, chips=8, replicas=nodes))
    seat.round()
    seat.fact(f"node.leaf-{node}", pack_nodes(f"leaf-{node}", [], at_ms=2))
    other = restarted(seat)
    for one in (seat, other):
        record = one.round()
        assert told(record) == {"head": ("larger-than-cluster", 0), "second": ("larger-than-cluster", 0)}
        assert one.state.fold.gangs["uid-small"].phase == "placed"
        assert one.round() is None


def test_who_was_larger_than_the_cluster_waits_for_its_turn_once_the_cluster_has_grown_by_nodes_without_room() -> None:
    """Under fifo nobody passes it from then on; at first the node that came takes no work."""
    seat = Seat("a", queue_policy="fifo")
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round()) == {"large": ("larger-than-cluster", 0)}
    seat.ill("b", NodeHealth.NO_NEW_WORK)
    seat.fact("node.leaf-b", pack_nodes("leaf-b", [a_node("b", leaf="b")], at_ms=2))
    seat.job(a_job("small", chips=8))
    other = restarted(seat)
    for one in (seat, other):
        assert told(one.round()) == {"large": ("no-room", 0), "small": ("behind", 0)}
        assert one.round() is None


def test_what_is_given_back_on_a_node_that_is_gone_lets_go_of_whom_a_restart_would_let_go_of() -> None:
    """Of a node that is gone a reader of a snapshot knows nothing, nor what it had."""
    for policy in ("easy", "conservative"):
        seat = Seat("a", "b", "c", queue_policy=policy, reserve_chips=16, unknown_run_ms=10)
        seat.job(a_job("first", chips=8))
        seat.round(at_ms=1)
        node = next(iter(seat.state.fold.holdings.values())).placement.names()[0]
        seat.job(a_job("endless", chips=8))
        seat.round(at_ms=2)
        seat.fact(f"node.leaf-{node}", pack_nodes(f"leaf-{node}", [], at_ms=2))
        seat.job(a_job("large", chips=8, replicas=2))
        seat.job(a_job("small", chips=8))
        assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100), "small": ("reserved", 100)}
        other = restarted(seat)
        for one in (seat, other):
            one.ended("first")
        for at_ms in (101, 102, 103):
            records = [one.round(at_ms=at_ms) for one in (seat, other)]
            assert records[0] == records[1]
        assert seat.scheduler.dump() == other.scheduler.dump()


def test_under_fifo_no_clock_is_asked_for_those_behind_the_head() -> None:
    seat = Seat("a", "b", queue_policy="fifo")
    seat.job(a_job("wide", chips=8, replicas=2))
    seat.round(MissingShards(97, [shard_of("leaf-b", 97)]), at_ms=100)
    assert seat.scheduler.queue.retry_at_ms == 1100
    seat.job(a_job("filler", chips=8, priority=9))
    seat.job(a_job("head", chips=4, replicas=3, priority=8))
    assert told(seat.round(at_ms=200)) == {"head": ("no-room", 0)}
    assert seat.scheduler.queue.retry_at_ms == 0
    seat.fact("timer", TimerSeen(1100))
    assert seat.round(at_ms=1100) is None
    seat.job(a_job("head", chips=4, replicas=3, priority=8), state="cancelled")
    assert told(seat.round(at_ms=1101)) == {"wide": ("no-room", 0)}


def test_under_fifo_who_becomes_head_by_time_alone_is_told_that_it_is_larger_than_the_cluster() -> None:
    """However often somebody looked between the node's end and the moment for which the first in the queue waits."""
    looked, straight = (Seat("a", "b", queue_policy="fifo", shard_retry_ms=10) for _ in range(2))
    records = []
    for seat in (looked, straight):
        seat.job(a_job("runs", chips=8))
        seat.job(a_job("large", chips=8, replicas=2))
        seat.round()
        seat.job(a_job("first", chips=8, priority=1))
        assert told(seat.round(MissingShards(1, [0]))) == {"first": ("no-room", 0)}
        node = next(name for name in "ab" if not seat.state.held(name))
        seat.fact(f"node.leaf-{node}", pack_nodes(f"leaf-{node}", [], at_ms=2))
        if seat is looked:
            assert seat.round() is None
        seat.fact("timer", TimerSeen(15))
        records.append(seat.round(at_ms=15))
    assert told(records[0]) == {"first": ("no-room", 0), "large": ("behind", 0)}
    assert records[0] == records[1]


def test_a_gang_one_of_whose_tasks_needs_more_than_there_is_is_told_so_once() -> None:
    seat = Seat("a", "b", queue_policy="fifo")
    seat.job(a_job("runs", chips=8, replicas=2))
    seat.round()
    selector = dict(a_job("j").node_selector)
    tasks = [Task("small", 1, 8), Task("many", 3, 8, node_selector=selector | {"zone": "nowhere"})]
    seat.job(a_job("large", tasks=tasks))
    record = seat.round()
    assert record is not None
    (verdict,) = record.verdicts
    assert verdict.refusal is not None
    assert verdict.refusal.code == "larger-than-cluster"
    assert (verdict.refusal.field, verdict.refusal.value) == ("tasks[1].replicas", "3")
    assert seat.round() is None


def test_who_is_held_is_tried_again_when_one_before_it_starts_and_moves_the_reservation() -> None:
    """Nobody has left, and the one that starts was not there when the room was reserved."""
    for policy in ("easy", "conservative"):
        seat = Seat("a", "b", "c", queue_policy=policy, reserve_chips=16, unknown_run_ms=10)
        seat.job(a_job("endless", chips=8))
        seat.round(at_ms=5)
        seat.job(a_job("large", chips=8, replicas=3))
        seat.job(a_job("short", chips=8, run_ms=1))
        assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100), "short": ("reserved", 100)}
        assert seat.round(at_ms=200) is None
        seat.job(a_job("first", chips=8, priority=1, run_ms=1_000))
        record = seat.round(at_ms=200)
        assert record is not None
        assert [verdict.name for verdict in record.verdicts if verdict.placement is not None] == ["first"], policy
        other = restarted(seat)
        for one in (seat, other):
            assert list(one.verdicts()) == [("short", True)], policy


def in_zone(zone: str) -> dict[str, str]:
    return dict(a_job("j").node_selector) | {"zone": zone}


def put(seat: Seat, name: str, zone: str) -> None:
    """A node of eight chips in a zone."""
    labels = dict(a_node(name).labels) | {"zone": zone}
    seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [a_node(name, leaf=name, labels=labels)], at_ms=1))


def started(record: Round | None) -> list[str]:
    """Jobs that a record places."""
    return [one.name for one in record.verdicts if one.placement is not None] if record is not None else []


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_who_is_held_is_tried_again_when_one_behind_it_starts(policy: str) -> None:
    """It may find room elsewhere by now: on the node on which the other one has begun."""
    seat = Seat(queue_policy=policy, reserve_chips=8, unknown_run_ms=10)
    put(seat, "c", "blue")
    put(seat, "z", "red")
    seat.job(a_job("endless", chips=4, node_selector=in_zone("red")))
    seat.round(at_ms=5)
    seat.job(a_job("large", chips=8, node_selector=in_zone("red")))
    seat.job(a_job("small", chips=4))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100), "small": ("reserved", 100)}
    seat.job(a_job("last", chips=4, node_selector=in_zone("blue")))
    assert started(seat.round(at_ms=100)) == ["last"]
    other = restarted(seat)
    for one in (seat, other):
        assert one.scheduler.has_work
        assert started(one.round(at_ms=100)) == ["small"]
        assert not one.scheduler.has_work


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_who_is_held_is_tried_again_when_somebody_is_to_end(policy: str) -> None:
    """Who is evicted is expected to end at once, so the room that is kept may be elsewhere."""
    seat = Seat("a", "b", queue_policy=policy, reserve_chips=8)
    seat.job(a_job("short", chips=4, run_ms=500))
    seat.round(at_ms=1)
    seat.job(a_job("wide", chips=8, run_ms=700))
    seat.round(at_ms=1)
    assert {one.name: one.placement.names() for one in seat.state.fold.holdings.values()} == {
        "short": ["a"],
        "wide": ["b"],
    }
    seat.job(a_job("large", chips=8, run_ms=1_000))
    seat.job(a_job("small", chips=4, run_ms=5_000))
    assert told(seat.round(at_ms=10)) == {"large": ("no-room", 501), "small": ("reserved", 501)}
    assert seat.round(at_ms=10) is None
    seat.job(a_job("wide", chips=8, run_ms=700), state="cancelled")
    record = seat.round(at_ms=10)
    assert record is not None
    assert [one.uid for one in record.evictions] == ["uid-wide"]
    other = restarted(seat)
    for one in (seat, other):
        assert started(one.round(at_ms=10)) == ["small"]


def test_who_is_held_is_tried_again_when_somebody_new_is_held_and_has_a_reservation() -> None:
    """It takes the place of a later reservation: there are only so many."""
    seat = Seat(queue_policy="conservative", reserve_chips=8, reserve_depth=2)
    for name, zone in (("a", "red"), ("b", "red"), ("c", "blue"), ("d", "blue")):
        put(seat, name, zone)
    for zone in ("red", "blue"):
        seat.job(a_job(f"runs-{zone}", chips=8, node_selector=in_zone(zone)))
    seat.round(at_ms=1)
    seat.job(a_job("first", chips=8, replicas=2, priority=9, node_selector=in_zone("red")))
    seat.job(a_job("third", chips=8, replicas=2, node_selector=in_zone("blue")))
    seat.job(a_job("small", chips=4, node_selector=in_zone("blue")))
    record = seat.round(at_ms=10)
    assert {name: code for name, (code, _) in told(record).items()} == {
        "first": "no-room", "third": "no-room", "small": "reserved",
    }  # fmt: skip
    seat.job(a_job("second", chips=8, priority=5, node_selector=in_zone("red")))
    record = seat.round(at_ms=10)
    assert {name: code for name, (code, _) in told(record).items()} == {"second": "reserved"}
    other = restarted(seat)
    for one in (seat, other):
        assert started(one.round(at_ms=10)) == ["small"]
        assert started(one.round(at_ms=10)) == []  # the one that is held is tried once more
        assert one.round(at_ms=10) is None


def test_who_is_held_is_tried_again_when_somebody_should_have_ended() -> None:
    """Not only when the reservation begins that was told: by now it may be another."""
    seat = Seat("a", "b", queue_policy="easy", reserve_chips=16)
    seat.job(a_job("soon", chips=4, run_ms=300))
    seat.job(a_job("later", chips=4, run_ms=500))
    seat.round(at_ms=1)
    seat.job(a_job("large", chips=8, replicas=2))
    seat.job(a_job("small", chips=8, run_ms=1_000))
    assert told(seat.round(at_ms=10)) == {"large": ("no-room", 501), "small": ("reserved", 501)}
    assert seat.scheduler.queue.retry_at_ms == 301


def test_who_is_held_is_tried_again_when_nodes_stand_in_another_order() -> None:
    """No node is more or less than it was, but plans take others."""
    seat = Seat(queue_policy="easy", reserve_chips=32, reserve_nodes=0, unknown_run_ms=10)

    def stand(name: str, leaf: str, zone: str) -> None:
        labels = dict(a_node(name, A3).labels) | {"zone": zone}
        node = a_node(name, A3, superpod="0", leaf=leaf, labels=labels)
        seat.fact(f"node.domain-{name}", pack_nodes(f"domain-{name}", [node], at_ms=1))

    for name, leaf, zone in (("a", "b", "red"), ("c", "c", "red"), ("d", "z", "blue")):
        stand(name, leaf, zone)
    seat.job(in_blocks("runs", 1, 1))
    assert started(seat.round(at_ms=1)) == ["runs"]
    seat.job(in_blocks("large", 2, 1, node_selector=dict(in_blocks("j", 1, 1).node_selector) | {"zone": "red"}))
    seat.job(in_blocks("small", 1, 1))
    assert told(seat.round(at_ms=100)) == {"large": ("no-blocks", 100), "small": ("reserved", 100)}
    assert seat.round(at_ms=100) is None
    stand("d", "a", "blue")
    other = restarted(seat)
    for one in (seat, other):
        assert started(one.round(at_ms=100)) == ["small"]


def test_a_reservation_behind_one_that_could_begin_now_is_planned_anew() -> None:
    """The first one sleeps because a shard was missing; its reservation, and all behind it, move with the clock."""
    seat = Seat("a", "b", "c", queue_policy="conservative", reserve_chips=16, reserve_depth=2)
    missing_shards = MissingShards(7, [shard_of(f"leaf-{node}", 7) for node in "ab"])
    seat.job(a_job("first", chips=8, replicas=2, priority=2, run_ms=1))
    assert told(seat.round(missing_shards, at_ms=5)) == {"first": ("no-room", 0)}
    seat.job(a_job("second", chips=8, replicas=3, priority=1, run_ms=500))
    assert told(seat.round(at_ms=6)) == {"second": ("reserved", 6)}
    other = restarted(seat)
    for one in (seat, other):
        one.job(a_job("third", chips=8, run_ms=1))
        record = one.round(at_ms=7)
        assert record is not None
        assert [verdict.name for verdict in record.verdicts if verdict.placement is not None] == ["third"]
