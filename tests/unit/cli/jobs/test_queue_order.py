"""Order of jobs in lists, positions in the queue, and conditions on fields."""

import random

import pytest

from berth.cli.jobs.filters import conditions_of, matching, names_phase
from berth.cli.jobs.queue_order import PHASES, in_order, positions
from berth.cli.output import WRONG_USE, CommandError
from berth.schemas.placement import Run, placement_of
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from tests.support.cells import Cell, a_job, a_node

NO_ROOM = Refusal("no-room", pods_need=2, nodes_total=3)


def a_status(name: str, phase: str = "waiting", *, seq: int = 0, **fields: object) -> JobStatus:
    return JobStatus("ml", name, f"uid-{name}", phase, 9, 9, accepted_seq=seq, **fields)  # type: ignore[arg-type]  # its fields


JOBS = [
    a_status("urgent", seq=9, priority=5, chips=8, submitted_ms=900),
    a_status("first", seq=1, chips=32, submitted_ms=100, queue="research", refusal=NO_ROOM),
    a_status("second", seq=2, chips=16, submitted_ms=200, queue="eval"),
    a_status("cpu", seq=1, is_plain=True, submitted_ms=100, priority=3),
    a_status(
        "runs",
        "running",
        seq=3,
        chips=4,
        submitted_ms=50,
        placement=placement_of(["n-7"], [(0,)], [Run(1, 1)], resource="r"),
    ),
    a_status("old", "succeeded", seq=4, chips=4, submitted_ms=40),
]


def names(statuses: list[JobStatus]) -> str:
    return " ".join(status.name for status in statuses)


def test_jobs_that_wait_come_first_in_the_order_of_the_queue() -> None:
    mixed = list(JOBS)
    random.Random(4).shuffle(mixed)  # noqa: S311  # an order, no secret
    assert names(in_order(mixed)) == "urgent first second cpu runs old"
    assert positions(mixed) == {("ml", "urgent"): 1, ("ml", "first"): 2, ("ml", "second"): 3, ("ml", "cpu"): 1}


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [
        ("name", "cpu first old runs second urgent"),
        ("-name", "urgent second runs old first cpu"),
        ("age", "urgent second first cpu runs old"),
        ("-age", "old runs first cpu second urgent"),
        ("chips,-name", "cpu runs old urgent second first"),
        ("-phase", "old runs urgent first second cpu"),
        ("-priority", "urgent cpu first second runs old"),
    ],
)
def test_the_user_chooses_another_order(sort: str, wanted: str) -> None:
    assert names(in_order(JOBS, sort)) == wanted


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        CommandError, match=r"^--sort is 'name,prio', expected one or several of queue, age, "
    ) as caught:
        in_order(JOBS, "name,prio")
    assert caught.value.code == WRONG_USE
    assert str(caught.value).endswith("did you mean priority?")


async def test_positions_are_those_that_the_dispatcher_tries() -> None:
    cell = await Cell().open()
    try:
        await cell.nodes([a_node("a")])
        for name, priority in (("holds", 9), ("low", 1), ("high", 7), ("middle", 4)):
            await cell.submit(a_job(name, chips=8, priority=priority))
            await cell.turns(2)
        found = [status for name in ("low", "high", "middle", "holds") if (status := await cell.status(name))]
    finally:
        await cell.close()
    assert names(in_order(found)) == "high middle low holds"
    assert positions(found) == {("default", "high"): 1, ("default", "middle"): 2, ("default", "low"): 3}


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["phase=running"], "runs"),
        (["phase=running,succeeded"], "runs old"),
        (["phase!=waiting"], "runs old"),
        (["name=*r*t"], "urgent first"),
        (["name=ml/c?u"], "cpu"),
        (["name=first", "phase=running"], ""),
        (["queue=research,eval"], "first second"),
        (["priority=5"], "urgent"),
        (["node=n-?"], "runs"),
        (["reason=no-room"], "first"),
        (["queue!=research", "phase=waiting"], "urgent second cpu"),
    ],
)
def test_jobs_are_chosen_by_their_fields(texts: list[str], wanted: str) -> None:
    assert names(matching(in_order(JOBS), conditions_of(texts))) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("running", "--filter is 'running', expected FIELD=VALUE or FIELD!=VALUE"),
        ("=x", "--filter is '=x', expected FIELD=VALUE"),
        ("phas=running", "--filter is 'phas', expected one of phase, name, queue, .*did you mean phase?"),
        ("phase=running2", "--filter phase is 'running2', expected one of waiting, .*did you mean running?"),
        ("phase=", "--filter phase is '', expected one of"),
        ("priority=high", "--filter priority is 'high', expected a whole number"),
    ],
)
def test_a_wrong_condition_is_refused_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(CommandError, match=f"^{words}") as caught:
        conditions_of([text])
    assert caught.value.code == WRONG_USE


def test_a_condition_that_names_an_end_includes_jobs_that_are_over() -> None:
    assert names_phase(conditions_of(["phase=failed"]), {"failed"})
    assert not names_phase(conditions_of(["phase!=failed"]), {"failed"})
    assert not names_phase(conditions_of(["phase=waiting", "name=failed"]), {"failed"})


def test_every_phase_is_known() -> None:
    assert {status.phase for status in JOBS} <= set(PHASES)
