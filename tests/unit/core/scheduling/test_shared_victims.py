"""Jobs that share chips end for others, and others for them; what is left of a chip meanwhile is given to nobody."""

from berth.core.cluster.node_packing import pack_nodes
from berth.schemas.intake import JobRequest
from tests.support.cells import a_job, a_node
from tests.unit.core.scheduling.test_preemption import ended, gone, made, placed
from tests.unit.core.scheduling.test_scheduler import Seat


def quota(name: str, percent: int, *, pods: int = 1, **more: object) -> JobRequest:
    request = a_job(name, product="soft-share", replicas=pods, **more)  # type: ignore[arg-type]  # fields of a request
    quotas = {"aicoreQuota": str(percent), "hbmQuota": "4000", "policy": "elastic"}
    request.labels.update({f"huawei.com/scheduler.softShareDev.{key}": value for key, value in quotas.items()})
    return request


def whole(name: str, **more: object) -> JobRequest:
    return a_job(name, product="soft-share", annotations={}, **more)  # type: ignore[arg-type]  # as above


def seat_of(*jobs: JobRequest, chips: int = 1, **settings: object) -> Seat:
    """A node of so many chips, which jobs share."""
    seat = Seat(**{"preempt": 2, **settings})
    node = a_node("a", "soft-share", chips=(1 << chips) - 1, allocatable=chips)
    seat.fact("node.leaf-a", pack_nodes("leaf-a", [node], at_ms=1))
    for job in jobs:
        seat.job(job)
        made(seat, 1)
    return seat


def test_a_quota_that_is_given_back_makes_room_for_one_of_higher_priority() -> None:
    seat = seat_of(quota("keeps", 30, priority=5), quota("low", 70))
    seat.job(quota("high", 60, priority=1))
    record = made(seat, 100)
    (step,) = record.recoveries
    assert (step.name, step.cause) == (
        "low", "preempted for a job of priority 1, above 0, that needs room for 1 pod on shared chips in one node",
    )  # fmt: skip
    gone(seat, "low")
    made(seat, 200)
    assert placed(made(seat, 201)) == {"high": ["a"]}


def test_what_is_left_of_a_chip_is_given_to_nobody_until_the_others_have_left() -> None:
    seat = seat_of(quota("low", 50))
    seat.job(quota("high", 100, priority=1))
    assert ended(made(seat, 100)) == ["low"]
    seat.job(quota("small", 20, priority=1))
    assert placed(made(seat, 101)) == {}
    gone(seat, "low")
    made(seat, 200)
    assert placed(made(seat, 201)) == {"high": ["a"]}


def test_the_rest_of_a_chip_is_free_again_once_the_gang_has_its_quota() -> None:
    seat = seat_of(quota("low", 100))
    seat.job(quota("high", 60, priority=1))
    made(seat, 100)
    gone(seat, "low")
    made(seat, 200)
    assert placed(made(seat, 201)) == {"high": ["a"]}
    seat.job(quota("small", 40))
    record = made(seat, 300)
    assert placed(record)["small"] == ["a"]


def test_no_more_sharers_end_than_are_needed() -> None:
    seat = seat_of(quota("one", 40), quota("two", 30), quota("three", 30))
    seat.job(quota("high", 60, priority=1))
    assert len(ended(made(seat, 100))) == 2


def test_a_job_of_whole_chips_gets_one_that_others_share() -> None:
    seat = seat_of(quota("one", 40), quota("two", 40), chips=1)
    seat.job(whole("high", priority=1))
    assert ended(made(seat, 100)) == ["one", "two"]
    gone(seat, "one")
    made(seat, 200)
    seat.job(quota("small", 10, priority=1))
    assert placed(made(seat, 201)) == {}
    gone(seat, "two")
    made(seat, 300)
    assert placed(made(seat, 301)) == {"high": ["a"]}


def test_a_job_that_shares_gets_a_whole_chip_of_another_one() -> None:
    seat = seat_of(whole("low"))
    seat.job(quota("high", 60, pods=1, priority=1))
    assert ended(made(seat, 100)) == ["low"]
    gone(seat, "low")
    made(seat, 200)
    assert placed(made(seat, 201)) == {"high": ["a"]}
