"""When a large gang is expected to start: after evictions, while pods terminate, after a round that is not stored."""

import msgspec

from berth.core.cluster.node_packing import pack_nodes
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import Task
from berth.schemas.pod_constraints import PodConstraints
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, OneNode, OnePod, near, usage_of
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_scheduler_policies import told


def a_seat() -> Seat:
    """A job of one second on one of two nodes."""
    seat = Seat("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=5_000)
    seat.job(a_job("first", chips=8, run_ms=1_000))
    seat.round(at_ms=1)
    return seat


def terminating(seat: Seat) -> None:
    (holding,) = seat.state.fold.holdings.values()
    (node,) = holding.placement.names()
    fact = PodsSeen(
        "default", "first", holding.uid, 1, pack([0], 4), pack_names([node]), pack([0], 4),
        pack([PodPhase.TERMINATING], 1), pack([0xFF], 8),
    )  # fmt: skip
    seat.fact("pod.default.first", fact)


def test_a_large_gang_starts_when_the_one_that_runs_has_run_as_long_as_it_says() -> None:
    seat = a_seat()
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}


def test_chips_of_pods_that_terminate_are_given_back_as_others_are() -> None:
    seat = a_seat()
    terminating(seat)
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}


def test_an_attempt_that_is_being_deleted_is_expected_to_end_at_once() -> None:
    seat = a_seat()
    seat.job(a_job("first", chips=8, run_ms=1_000), state="cancelled")
    record = seat.round(at_ms=50)
    assert record is not None
    assert [eviction.uid for eviction in record.evictions] == ["uid-first"]
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100)}


def test_placements_of_a_round_that_was_never_stored_delay_no_reservation() -> None:
    seat = a_seat()
    seat.job(a_job("other", chips=8, run_ms=50_000, priority=1))
    seat.job(a_job("large", chips=8, replicas=2))
    opening = seat.scheduler.open(100).opening
    assert opening is not None
    assert told(seat.scheduler.decide(opening).round) == {"large": ("no-room", 50_100)}
    seat.scheduler.take_back(opening)
    seat.job(a_job("other", chips=8, run_ms=50_000, priority=1), state="cancelled")
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}


def test_chips_that_a_pod_has_in_place_of_the_decided_ones_are_given_back_when_it_ends() -> None:
    """What was reserved before the correction reserves nothing that a reader which begins later would not."""
    seat = Seat("a", queue_policy="conservative", reserve_chips=8, unknown_run_ms=5_000, corrections=1)
    seat.job(a_job("first", chips=2, run_ms=1_000))
    seat.round(at_ms=1)
    seat.job(a_job("large", chips=8))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}
    (holding,) = seat.state.fold.holdings.values()
    mask = 0b11000000
    assert holding.placement.chips_by_rank() == [(0, 1)]
    fact = PodsSeen(
        "default", "first", holding.uid, 1, pack([0], 4), pack_names(["a"]), pack([0], 4),
        pack([PodPhase.RUNNING], 1), pack([mask], 8), resource=holding.placement.resource,
    )  # fmt: skip
    seat.fact("pod.default.first", fact)
    record = seat.round(at_ms=200)
    assert record is not None
    assert [one.chips for one in record.corrections] == [[[6, 7]]]
    seat.job(a_job("large", chips=8), state="cancelled")
    seat.job(a_job("wide", chips=8))
    other = restarted(seat)
    assert told(seat.round(at_ms=300)) == told(other.round(at_ms=300)) == {"wide": ("no-room", 1_001)}


def labelled(seat: Seat, *names: str) -> None:
    """Nodes with their names as labels."""
    for name in names:
        node = a_node(name, leaf=name)
        node = msgspec.structs.replace(node, labels={**node.labels, HOST: name})
        seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [node], at_ms=1))


def expected(seat: Seat, at_ms: int) -> dict[str, int]:
    """Starts of reservations, which a reader that begins now expects too."""
    found = seat.scheduler.decisions.starts(at_ms)
    assert found == restarted(seat).scheduler.decisions.starts(at_ms)
    return found


def test_a_reservation_follows_pods_of_others_near_which_its_gang_may_not_be() -> None:
    """They have no chips: nothing of the nodes changes."""
    seat = Seat(queue_policy="conservative", reserve_chips=8, unknown_run_ms=5_000, corrections=1)
    labelled(seat, "a", "b")
    nodes = [OneNode("a"), OneNode("b")]
    seat.fact("usage.all", usage_of("all", nodes, []))
    seat.job(a_job("first", chips=8, run_ms=1_000))
    seat.job(a_job("second", chips=8, run_ms=2_000))
    seat.round(at_ms=1)
    at = {one.name: one.placement.names()[0] for one in seat.state.fold.holdings.values()}
    shy = PodConstraints(anti_affinity=(near(HOST, app="other"),))
    seat.job(a_job("large", tasks=[Task("worker", 1, 8, constraints=shy)]))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}
    assert expected(seat, 150) == {"uid-large": 1_001}
    seat.fact("usage.all", usage_of("all", nodes, [OnePod(at["first"], labels={"app": "other"})]))
    assert expected(seat, 200) == {"uid-large": 2_001}


def test_a_reservation_follows_the_nodes_that_its_gang_avoids() -> None:
    seat = Seat(queue_policy="conservative", reserve_chips=8, unknown_run_ms=5_000, corrections=1)
    labelled(seat, "a", "b")
    seat.job(a_job("first", chips=8, run_ms=1_000))
    seat.job(a_job("second", chips=8, run_ms=1_000))
    seat.round(at_ms=1)
    large = a_job("large", chips=8, priority=1)
    wide = a_job("wide", chips=8)
    seat.job(large)
    seat.job(msgspec.structs.replace(wide, node_selector={**wide.node_selector, HOST: "a"}))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001), "wide": ("no-room", 6_001)}
    seat.job(msgspec.structs.replace(large, avoided=["a"]))
    seat.round(at_ms=200)
    assert expected(seat, 300) == {"uid-large": 1_001, "uid-wide": 1_001}
