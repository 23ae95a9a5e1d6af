"""What ``berth explain`` tells of a job in each phase, and when the history is gone."""

from collections.abc import AsyncIterator

import pytest

from berth.cli.jobs.explain_text import ExplainResult, describe, show
from berth.cli.jobs.finding import find_job
from berth.cli.jobs.rows import row_of
from berth.cli.output import CommandError
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    opened = await Cell().open()
    await opened.nodes([a_node("a"), a_node("b")])
    yield opened
    await opened.close()


async def told(cell: Cell, name: str) -> ExplainResult:
    return await describe(cell.user, cell.clock, await find_job(cell.user, name, "default"))


async def test_a_placed_job_is_told_from_history(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    await cell.submit(a_job("job", chips=4))
    await cell.turns(2)
    found = await told(cell, "job")
    capsys.readouterr()
    show(found)
    out = capsys.readouterr().out
    first, second, *others = out.splitlines()
    assert first == "default/job is placed since 2023-11-14 22:13:20.000 UTC"
    assert second.startswith("  Rank 0 (worker) is on a, chips 0-3: score 792"), "the answer comes first"
    decided, known = others[-2:]
    assert decided.startswith("Decided at 2023-11-14 22:13:20.000 UTC by record ")
    assert known == "2 nodes with 16 chips were known, 16 of them free, no job held chips."
    assert "Settings: " not in out
    show(found, with_settings=True)
    assert capsys.readouterr().out.splitlines()[-1].startswith("Settings: ")
    assert "(round 1 of epoch 1)" in out
    assert "Runner-up b" in out


async def test_without_history_the_state_of_now_is_used_and_said(cell: Cell) -> None:
    await cell.submit(a_job("job", chips=4))
    await cell.turns(2)
    status = await find_job(cell.user, "job", "default")
    await cell.user.purge(StreamName.SNAPSHOT, subject=f"{cell.user.subjects.root}snapshot.>")
    await cell.dispatcher.snapshots.write()
    await cell.user.purge(StreamName.LEDGER, keep_from_seq=status.ledger_seq + 1)
    found = await told(cell, "job")
    assert found.explanation is not None
    assert found.explanation.basis.is_current
    assert found.explanation.choices[0].node == "a"
    assert any(line.startswith("The history of this decision is no longer stored") for line in found.sentences)


async def test_a_rejected_job_names_the_setting(cell: Cell) -> None:
    await cell.submit(a_job("job", chips=4, replicas=2, product="module910x8"))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.phase == "rejected"
    assert found.explanation is not None
    assert found.explanation.setting == "decisions.strict_job_shape"
    assert (found.explanation.field, found.explanation.value) == ("tasks", "8 chips in 2 pods")


async def test_a_request_that_found_the_name_in_use_is_told_with_its_holder(cell: Cell) -> None:
    await cell.submit(a_job("job", chips=4))
    await cell.turns(2)
    await cell.submit(a_job("job", chips=2, uid="other"))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.phase == "placed"
    assert "Another request for this name was rejected" in found.sentences[-1]
    rejection = row_of(await find_job(cell.user, "job", "default")).rejection
    assert rejection is not None
    assert (rejection.uid, rejection.code) == ("other", "name-in-use")


async def test_a_job_cancelled_before_any_decision_says_why(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    await cell.submit(a_job("big", chips=8, replicas=3))
    await cell.turns(2)
    await cell.cancel("big")
    await cell.turns(2)
    found = await told(cell, "big")
    assert found.phase == "cancelled"
    capsys.readouterr()
    show(found)
    assert capsys.readouterr().out.startswith("default/big was cancelled; it ended at 2023-")
    assert found.explanation is not None
    assert found.explanation.outcome == "waiting"
    assert "Reason:" not in found.sentences[0]


async def test_the_reason_of_an_end_and_misspelled_labels_are_told(cell: Cell) -> None:
    await cell.submit(a_job("big", chips=8, replicas=3, labels={"tor-afinity": "large-model-schema"}))
    await cell.turns(4)
    found = await told(cell, "big")
    assert found.sentences[-1].startswith("Warning: ")
    assert "tor-afinity" in found.sentences[-1]
    assert not any("tor-afinity=" in line for line in found.sentences)
    await cell.cancel("big", reason="wrong data")
    await cell.turns(4)
    assert (await told(cell, "big")).sentences[0] == "Reason: wrong data."


async def test_an_unknown_job_is_answered_with_near_names(cell: Cell) -> None:
    await cell.submit(a_job("training", chips=1))
    await cell.turns(2)
    with pytest.raises(CommandError, match="near names: default/training"):
        await find_job(cell.user, "trainin", "default")
    with pytest.raises(CommandError, match="near names: default/training"):
        await find_job(cell.user, "elsewhere/training", "default")
