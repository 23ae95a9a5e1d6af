"""Statuses of jobs that wait say why they wait now, whether or not they are decided again."""

from collections.abc import AsyncIterator, Sequence

import pytest

from berth.schemas.constraints import Taint
from berth.schemas.intake import Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from tests.support.cells import Cell, a_job, a_node

LOOK_S = 1.75
"""At most so long a reason stays as it was."""


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    """Two nodes, each in use, and three equal jobs that wait."""
    made = await Cell().open()
    yield await full(made)
    await made.close()


async def full(cell: Cell) -> Cell:
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("first", chips=8), a_job("second", chips=8))
    await cell.turns(2)
    await cell.submit(*(a_job(name, chips=8) for name in ("x", "y", "z")))
    await cell.turns(2)
    return cell


async def later(cell: Cell, seconds: float = LOOK_S) -> None:
    cell.clock.advance(seconds)
    await cell.turns(2)


async def said(cell: Cell, *names: str) -> list[str]:
    found = [await cell.status(name) for name in names]
    return [status.sentence if status is not None else "" for status in found]


async def renewed(cell: Cell, nodes: Sequence[NodeDescription]) -> None:
    await cell.nodes(nodes)
    await later(cell)


async def test_all_jobs_of_a_class_say_what_is_true_now(cell: Cell) -> None:
    rounds = cell.dispatcher.state.fold.rounds
    await renewed(cell, [a_node("a"), a_node("b", cordoned=True)])
    words = "0 of 2 nodes fit: 1 is cordoned, 1 has fewer than 8 free chips"
    assert await said(cell, "x", "y", "z") == [words] * 3
    assert cell.dispatcher.state.fold.rounds == rounds, "nothing was decided for it"


async def test_the_jobs_behind_the_one_that_is_placed_have_its_class_s_new_reason(cell: Cell) -> None:
    await renewed(cell, [a_node("a"), a_node("b"), a_node("c", cordoned=True)])
    assert "1 is cordoned" in (await said(cell, "z"))[0]
    await renewed(cell, [a_node("a"), a_node("b"), a_node("c")])
    assert await said(cell, "y", "z") == ["0 of 3 nodes fit: 3 have fewer than 8 free chips"] * 2


async def test_a_reason_that_stays_is_not_written_again(cell: Cell) -> None:
    written = cell.dispatcher.views.published
    await cell.health("bucket-all", [])
    await later(cell)
    await later(cell, 60)
    assert cell.dispatcher.views.published == written


async def test_the_next_leader_does_not_write_reasons_that_are_told(cell: Cell) -> None:
    await renewed(cell, [a_node("a"), a_node("b", cordoned=True)])
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(4)
    await later(cell)
    assert cell.dispatcher.views.published == 0


async def test_a_reason_is_looked_at_again_though_the_dispatcher_rests(cell: Cell) -> None:
    await later(cell)
    await cell.nodes([a_node("a"), a_node("b", cordoned=True)])
    await cell.turns(1)
    assert cell.dispatcher.rest_s <= LOOK_S


async def test_labels_are_named_in_the_status_and_not_in_the_record() -> None:
    """Case b/04."""
    cell = await Cell().open()
    of_arm = dict(a_node("n").labels) | {"host-arch": "huawei-arm"}
    await cell.nodes([a_node(f"n{number}", labels=of_arm) for number in range(4)])
    wanted = {"accelerator-type": "module-910b-8", "host-arch": "huawei-arm64"}
    await cell.submit(a_job("typo", chips=8, node_selector=wanted))
    await cell.turns(2)
    words = "4 nodes have accelerator-type=module-910b-8, none has host-arch=huawei-arm64; they have huawei-arm"
    assert await said(cell, "typo") == [words]
    assert not [data for data in await cell.ledger() if b"host-arch" in data]
    await later(cell)
    assert await said(cell, "typo") == [words]
    await cell.close()


async def test_a_taint_is_named_though_the_gang_is_heavy_and_not_tried_for_a_while() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node(f"n{number:02}", taints=[Taint("team", "blue", "NoSchedule")]) for number in range(50)])
    await cell.submit(a_job("job", tasks=[Task(f"t{number}", 1, 1, cpu_milli=number + 1) for number in range(400)]))
    await cell.turns(2)
    (words,) = await said(cell, "job")
    assert words.endswith("50 have the taint team=blue:NoSchedule, which the job does not tolerate")
    await cell.close()


async def test_a_taint_is_named() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a", taints=[Taint("team", "blue", "NoSchedule")]), a_node("b", ready=False)])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    assert await said(cell, "job") == [
        "0 of 2 nodes fit: 1 is not ready, 1 has the taint team=blue:NoSchedule, which the job does not tolerate"
    ]
    await cell.close()


async def test_a_broken_network_is_named() -> None:
    """Case a/25."""
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.health("bucket-all", [NodeCondition(name, network_unhealthy=1) for name in ("a", "b")])
    await cell.submit(a_job("job", chips=8, replicas=2))
    await cell.turns(2)
    assert await said(cell, "job") == ["0 of 2 nodes fit: 2 have fewer than 8 free chips beside network-unhealthy ones"]
    await cell.close()


async def test_a_job_behind_the_head_names_the_head_of_now() -> None:
    cell = await full(await Cell(queue_policy="fifo").open())
    assert await said(cell, "y", "z") == [
        f"waits behind default/{head}, which was first in the queue (queue_policy fifo)" for head in ("x", "x")
    ]
    await cell.cancel("x")
    await cell.turns(2)
    await later(cell)
    assert await said(cell, "y", "z") == [
        "0 of 2 nodes fit: 2 have fewer than 8 free chips",
        "waits behind default/y, which was first in the queue (queue_policy fifo)",
    ]
    await cell.close()


async def test_an_expected_start_that_has_passed_is_not_shown() -> None:
    cell = await full(await Cell(queue_policy="easy", reserve_chips=8, unknown_run_ms=60_000).open())
    assert "; room is reserved for it from " in (await said(cell, "x"))[0]
    cell.clock.advance(58.5)
    await cell.turns(3)
    assert await said(cell, "x") == ["0 of 2 nodes fit: 2 have fewer than 8 free chips"]
    await cell.close()


async def test_a_job_that_waits_for_a_reservation_shows_its_start_of_now() -> None:
    cell = await Cell(queue_policy="easy", reserve_chips=8, unknown_run_ms=600_000).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("long", chips=8, run_ms=500_000))
    await cell.turns(2)
    await cell.submit(a_job("wide", chips=8, replicas=2))
    await cell.turns(2)
    await cell.submit(a_job("late", chips=8))
    await cell.turns(2)
    (before,) = await said(cell, "late")
    assert "room is reserved for default/wide from " in before
    start = cell.dispatcher.state.fold.gangs["uid-late"].refusal
    assert start is not None
    cell.clock.advance((start.start_ms - cell.clock.now_ms()) / 1000 + 5)
    await cell.turns(3)
    assert await said(cell, "late") == [
        "1 of 2 nodes fits, but room is reserved for default/wide, and this job would delay it"
    ]
    await cell.close()


async def test_a_record_has_no_more_verdicts_than_without_reasons(cell: Cell) -> None:
    before = len(await cell.ledger())
    for number in range(3):
        await renewed(cell, [a_node("a"), a_node("b", cordoned=bool(number % 2))])
    assert len(await cell.ledger()) == before
