"""Soft share on withheld or unhealthy chips: they take no pod, and wake waiting gangs when they come back."""

import pytest

from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.requests.job_validation import SHARE_AICORE, SHARE_HBM, SHARE_POLICY
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job, a_node
from tests.unit.core.scheduling.test_scheduler import Seat, restarted

DOMAIN = "leaf-s"
QUOTA = {SHARE_AICORE: "60", SHARE_HBM: "1024", SHARE_POLICY: "elastic"}


class ShareSeat(Seat):
    """A cell of one soft-share node with chips 0 and 1."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        node = a_node("s", "soft-share", leaf="s", chips=0b11, allocatable=2)
        self.fact(f"node.{DOMAIN}", pack_nodes(DOMAIN, [node], at_ms=1))

    def says(self, *, unhealthy: int = 0, withheld: int = 0) -> None:
        condition = NodeCondition("s", unhealthy=unhealthy, withheld=withheld)
        self.fact(f"health.{DOMAIN}", pack_health(DOMAIN, [condition], at_ms=1))

    def shares(self, name: str, **quota: str) -> None:
        labels = QUOTA | quota
        self.job(a_job(name, chips=1, product="soft-share", labels=labels))


def placed(record: Round | None) -> dict[str, list[int]]:
    """Chips of each gang that a record places."""
    assert record is not None
    return {
        verdict.name: [chip for chips in verdict.placement.chips_by_rank() for chip in chips]
        for verdict in record.verdicts
        if verdict.placement is not None
    }


def test_a_withheld_chip_takes_no_pod_and_others_are_decided() -> None:
    seat = ShareSeat()
    seat.says(withheld=0b01)
    seat.shares("first")
    assert placed(seat.round()) == {"first": [1]}


def test_a_node_that_withholds_all_chips_refuses_and_the_next_round_goes_on() -> None:
    seat = ShareSeat()
    seat.says(withheld=0b11)
    seat.shares("first")
    assert placed(seat.round()) == {}
    seat.says(withheld=0b10)
    assert placed(seat.round()) == {"first": [0]}


def test_a_chip_that_is_shared_and_then_withheld_takes_no_further_pod() -> None:
    seat = ShareSeat()
    small = {SHARE_AICORE: "10"}
    seat.shares("first", **small)
    assert placed(seat.round()) == {"first": [0]}
    seat.says(withheld=0b01)
    seat.shares("second", **small)
    assert placed(seat.round()) == {"second": [1]}


@pytest.mark.parametrize("bad", ["withheld", "unhealthy"])
def test_a_shared_chip_that_comes_back_wakes_who_waits_for_it(bad: str) -> None:
    """Nothing gets free by it: the chip is shared all the time."""
    seat = ShareSeat()
    small = {SHARE_AICORE: "10"}
    seat.shares("first", **small)
    assert placed(seat.round()) == {"first": [0]}
    seat.says(**({bad: 0b01} | ({"withheld": 0b11} if bad == "withheld" else {"withheld": 0b10})))
    seat.shares("second", **small)
    assert placed(seat.round()) == {}
    assert seat.round() is None
    other = restarted(seat)
    for one in (seat, other):
        one.fact(f"health.{DOMAIN}", pack_health(DOMAIN, [NodeCondition("s", withheld=0b10)], at_ms=1))
        one.scheduler.sync()
    again = restarted(seat)
    record = seat.round()
    assert placed(record) == {"second": [0]}
    assert other.round() == record
    assert again.round() == record


def test_a_round_that_is_taken_back_leaves_what_came_back_to_the_next() -> None:
    seat = ShareSeat()
    small = {SHARE_AICORE: "10"}
    seat.shares("first", **small)
    seat.round()
    seat.says(withheld=0b11)
    seat.shares("second", **small)
    seat.round()
    seat.says(withheld=0b10)
    opening = seat.scheduler.open(5).opening
    assert opening is not None
    seat.scheduler.take_back(opening)
    assert placed(seat.round()) == {"second": [0]}
