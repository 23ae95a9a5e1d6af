"""Ranks that a running gang lacks are reserved for, block while they can start, and keep their places for a moment."""

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_health
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import NodeHealth, OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.intake import FROM_PODS, JobRequest
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import FaultCell
from tests.support.replacements import holding_of
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_scheduler_policies import told


def placed(record: Round | None) -> list[str]:
    """Names of the jobs that a record places."""
    return [one.name for one in record.verdicts if one.placement is not None] if record is not None else []


def fragile(name: str, chips: int = 8, *, since_seq: int = 1) -> JobRequest:
    """A request for a rank that a running gang lacks."""
    request = a_job(name, chips=chips)
    return msgspec.structs.replace(request, origin=FROM_PODS, since_seq=since_seq, is_fragile=True)


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_rank_that_a_running_gang_lacks_has_a_reservation_whatever_its_size(policy: str) -> None:
    """Work that runs longer than the present pod on its node would keep it out again and again."""
    seat = Seat("a", "b", queue_policy=policy, reserve_chips=64, unknown_run_ms=1_000)
    gang, long = (
        msgspec.structs.replace(a_job(name, chips=chips), run_ms=1_000_000)
        for name, chips in (("gang", 8), ("long", 4))
    )
    seat.job(gang)
    seat.job(a_job("short", chips=4))
    seat.round()
    seat.job(fragile("rank", since_seq=1))
    assert told(seat.round(at_ms=100))["rank"][1] > 0
    seat.job(long)
    assert told(seat.round(at_ms=101))["long"][0] == "reserved"
    ordinary = Seat("a", "b", queue_policy=policy, reserve_chips=64, unknown_run_ms=1_000)
    for request in (gang, a_job("short", chips=4), a_job("rank", chips=8)):
        ordinary.job(request)
        ordinary.round()
    ordinary.job(long)
    assert placed(ordinary.round(at_ms=101)) == ["long"]


def test_under_fifo_a_rank_that_a_running_gang_lacks_blocks_while_some_node_could_take_it() -> None:
    seat = Seat("a", "b", queue_policy="fifo")
    seat.job(a_job("gang", chips=8))
    seat.job(a_job("other", chips=4))
    seat.round()
    seat.job(fragile("rank"))
    seat.job(a_job("behind", chips=4))
    assert told(seat.round()) == {"rank": ("no-room", 0), "behind": ("behind", 0)}
    assert told(restarted(seat).round()) == {}


def test_under_fifo_a_rank_that_no_node_could_take_blocks_nobody() -> None:
    """No spare node: each has a chip that is broken."""
    seat = Seat("a", "b", queue_policy="fifo")
    seat.job(a_job("gang", chips=4))
    seat.round()
    for node in "ab":
        broken = [NodeCondition(node, unhealthy=0b1)]
        seat.fact(f"health.leaf-{node}", pack_health(f"leaf-{node}", broken, at_ms=1))
    seat.job(fragile("rank"))
    seat.job(a_job("behind", chips=2))
    record = seat.round()
    assert told(record) == {"rank": ("no-room", 0)}
    assert placed(record) == ["behind"]
    later = restarted(seat)
    for one in (seat, later):
        one.job(a_job("latest", chips=2))
        assert placed(one.round()) == ["latest"]
        one.ill("b", NodeHealth.OK)
        one.ended("behind")
        one.round()
        assert one.state.fold.gangs["uid-rank"].phase == "placed"


def test_under_fifo_a_rank_that_waits_for_a_barred_node_blocks_nobody() -> None:
    seat = Seat("a", "b", queue_policy="fifo")
    for node in "ab":
        seat.ill(node)
    seat.job(fragile("rank"))
    seat.job(a_job("behind", chips=2))
    assert told(seat.round()) == {"rank": ("no-room", 0), "behind": ("no-room", 0)}


def of_a_gang(name: str, chips: int = 8, *, pods: int = 2, replicas: int = 1) -> JobRequest:
    return msgspec.structs.replace(
        a_job(name, chips=chips, replicas=replicas), origin=FROM_PODS, annotations={"berth/gang-pods": str(pods)}
    )


def gone(seat: Seat, name: str, *ranks: int, at_ms: int) -> None:
    """Pods of a job are deleted; the others run."""
    holding = next(one for one in seat.state.fold.holdings.values() if one.name == name)
    names = holding.placement.names()
    phases = [PodPhase.GONE if rank in ranks else PodPhase.RUNNING for rank in range(len(names))]
    fact = PodsSeen(
        "default", name, holding.uid, holding.attempt, pack(range(len(names)), 4), pack_names(names),
        pack(range(len(names)), 4), pack(phases, 1), pack([0xFF] * len(names), 8), at_ms=at_ms,
    )  # fmt: skip
    seat.fact(f"pod.default.{name}", fact)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_place_of_a_deleted_pod_is_kept_for_a_request_of_its_gang(replicas: int) -> None:
    """Case a/02, its variant: a younger job took the place in the second before the pod was made again."""
    seat = Seat("a", "b")
    seat.job(of_a_gang("gang", replicas=replicas))
    if replicas == 1:
        seat.job(of_a_gang("more"))
    seat.round(at_ms=5)
    seat.job(a_job("young", chips=8))
    seat.round(at_ms=900)
    gone(seat, "gang", 0, at_ms=1_000)
    assert seat.round(at_ms=1_001) is None
    assert seat.scheduler.next_due_ms == 4_000
    assert restarted(seat).round(at_ms=2_000) is None
    seat.job(fragile("again"))
    assert [placed(seat.round(at_ms=at_ms)) for at_ms in (2_000, 2_001)] == [[], ["again"]]


@pytest.mark.parametrize(
    ("at_ms", "kept"), [(3_999, True), (4_000, False), (500, False)], ids=["early", "late", "clock set back"]
)
def test_a_place_is_kept_for_three_seconds(at_ms: int, *, kept: bool) -> None:
    seat = Seat("a", "b")
    seat.job(of_a_gang("gang", replicas=2))
    seat.round(at_ms=5)
    gone(seat, "gang", 0, at_ms=1_000)
    record = seat.round(at_ms=at_ms)
    assert (record is None) is kept


def test_the_place_of_a_pod_that_is_alone_is_free_at_once() -> None:
    seat = Seat("a")
    seat.job(of_a_gang("alone", pods=1))
    seat.round(at_ms=5)
    gone(seat, "alone", 0, at_ms=1_000)
    record = seat.round(at_ms=1_001)
    assert record is not None
    assert [one.reason for one in record.releases] == ["vanished"]


def of_three(nodes: str) -> FaultCell:
    """A gang of three pods, one on each of the nodes a, b and c; the chips of b break, and its pod leaves."""
    cell = FaultCell([a_node(name) for name in nodes])
    cell.run(of_a_gang("gang", pods=3, replicas=3))
    cell.break_chip("b")
    cell.turns()
    cell.remove("gang")
    return cell


def test_the_place_of_a_pod_that_left_for_a_fault_is_not_kept() -> None:
    """Its rank gets another one, which must not wait."""
    cell = of_three("abcd")
    cell.turns()
    assert (cell.node_of("gang", 1), cell.state.held("b")) == ("d", 0)


def test_a_place_is_kept_no_longer_although_its_gang_was_looked_at_for_a_fault_meanwhile() -> None:
    """The turn in between finds no place for another rank and has no record: a replay does not know of it."""
    cell = of_three("abc")
    cell.turns()
    cell.wait_for_places("gang", 1)
    cell.pods["gang"][2].phase = PodPhase.GONE
    cell.say("gang")
    before = len(cell.records)
    assert cell.wait(1_000) == []
    assert len(cell.records) == before, "it is kept"
    cell.wait(2_000)
    assert [one.ranks for record in cell.records[before:] for one in record.releases] == [[2]]


def test_a_gang_that_was_refused_after_its_pause_sleeps_on_when_the_clock_is_set_back() -> None:
    """Turns without a record leave nothing behind: a replay does not know of them."""
    cell = FaultCell([a_node("a")])
    cell.place(a_job("early", chips=8))
    outcome = OutcomeSeen("default", "early", holding_of(cell.state, "early").uid, 1, "failed")
    cell.fact(SUBJECTS.fact_outcome("default", "early"), outcome)
    cell.ask(a_job("late", chips=8))
    cell.turns()
    assert (cell.phase("early"), cell.phase("late")) == ("waiting", "placed")
    cell.wait(1_000)
    refused = cell.state.fold.gangs["uid-early"].refusal
    assert refused is not None
    before = len(cell.records)
    cell.wait(-500)
    cell.wait(500)
    assert len(cell.records) == before
