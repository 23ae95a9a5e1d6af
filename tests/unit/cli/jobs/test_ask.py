"""``berth ask`` and expected starts in ``berth jobs -o wide`` and ``berth explain``, on a cell in memory."""

import asyncio
import json
from pathlib import Path

import pytest

from berth.cli.jobs.starts import short_start
from berth.core.expected.expectation import ExpectedStart
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.own_command import OwnCommand
from tests.support.stored_cells import placed, stream

FILE = """
apiVersion: berth/v1
kind: Job
metadata: {name: new, namespace: default}
spec: {product: module910bx8, replicas: 2, chips: 8, runFor: 10m}
"""


async def a_cell(preempt: int = 0) -> Cell:
    """Two nodes, a job of 100 years on both (the clock of the commands is another one), and two that wait."""
    cell = await Cell(preempt=preempt).open()
    await cell.nodes([a_node(name, leaf="leaf0") for name in ("a", "b")])
    await placed(cell, a_job("runs", chips=8, replicas=2, run_ms=3_155_760_000_000))
    await cell.submit(*(a_job(name, chips=8, replicas=2, run_ms=600_000) for name in ("first", "second")))
    await cell.turns(3)
    await cell.close()
    return cell


@pytest.fixture(name="cell")
def stored_cell() -> Cell:
    return asyncio.run(a_cell())


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(FILE)
    return str(path)


def test_a_file_is_answered_and_nothing_is_sent(berth: OwnCommand, cell: Cell, job: str) -> None:
    before = len(stream(cell, StreamName.INTAKE).messages)
    code, out, err = berth("ask", "-f", job, "--queue", "research")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "default/new"
    assert lines[1].startswith("  Expected start: ")
    assert lines[2] == "  Position 3, behind 2 jobs that wait for 32 chips; position 1 in queue research."
    assert lines[3] == "  It gets its place when default/second, default/first, default/runs have ended."
    assert len(stream(cell, StreamName.INTAKE).messages) == before
    answer = json.loads(berth("ask", "-f", job, "--json")[1])
    (expected,) = answer["jobs"]
    assert (expected["queue"], expected["position"], answer["faults"]) == ("default", 3, [])
    assert expected["earliest_ms"] == expected["latest_ms"] > 0
    assert answer["ledger_seq"] > 0


def test_the_jobs_that_would_end_are_shown_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(FILE.replace("spec: {", "spec: {priority: 7, "))
    berth = OwnCommand(monkeypatch, capsys, asyncio.run(a_cell(preempt=2)).server)
    code, out, err = berth("ask", "-f", str(path), "--victims")
    assert code == 0, err
    assert out.splitlines()[-1] == (
        "  By preemption default/runs (16 chips, priority 0) would end for it, and it would start on leaf leaf0."
    )
    assert "By preemption" not in berth("ask", "-f", str(path))[1]
    (found,) = json.loads(berth("ask", "-f", str(path), "--victims", "--json")[1])["jobs"]
    assert [job["job"] for job in found["victims"]["jobs"]] == ["default/runs"]


def test_without_preemption_it_is_said_that_no_job_ends_for_others(berth: OwnCommand, job: str) -> None:
    code, _, err = berth("ask", "-f", job, "--victims")
    assert code == 0
    assert "no job ends for others: setting decisions.preempt of the dispatcher is 0" in err


def test_a_wrong_file_is_refused_as_by_submit(berth: OwnCommand, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(FILE.replace("replicas: 2", "replicas: 0"))
    code, out, err = berth("ask", "-f", str(path))
    assert (code, out) == (1, "")
    assert err.replace("nothing was sent\n", "") == berth("submit", str(path))[2].replace("nothing was sent\n", "")
    assert "replicas" in err
    assert berth("ask", "-f", str(path), "--queue", "a b")[::2] == (
        2,
        "error: --queue is 'a b', expected the name of a queue\n",
    )


def test_a_wide_list_has_the_positions_in_the_queue_and_the_starts(berth: OwnCommand) -> None:
    code, out, err = berth("jobs", "-o", "wide")
    assert code == 0, err
    head, first, second, runs, _ = out.splitlines()
    assert "IN QUEUE  STARTS" in head
    column = head.index("IN QUEUE")
    assert [line[column:].split()[0] for line in (first, second, runs)] == ["1", "2", "-"]
    assert all(" in " in line[column:] for line in (first, second))


def test_an_explanation_has_the_start(berth: OwnCommand) -> None:
    code, out, err = berth("explain", "first")
    assert code == 0, err
    assert "Expected start: " in out
    assert "It gets its place when default/runs has ended." in out
    found = json.loads(berth("explain", "first", "--json")[1])["explanation"]["expected_start"]
    assert (found["position"], found["held_by"]) == (1, ["default/runs"])


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (None, "-"),
        (ExpectedStart("n", "j", "u", "q", earliest_ms=300_000, latest_ms=300_000), "in 5 min"),
        (ExpectedStart("n", "j", "u", "q", earliest_ms=300_000, latest_ms=7_200_000), "in 5 min to 2 h"),
        (ExpectedStart("n", "j", "u", "q", earliest_ms=300_000), "in 5 min or later"),
        (ExpectedStart("n", "j", "u", "q", not_before_ms=300_000, code="not-before"), "after 5 min"),
        (ExpectedStart("n", "j", "u", "q", code="no-end"), "unknown"),
        (ExpectedStart("n", "j", "u", "q", code="queue"), "queue"),
    ],
)
def test_a_column_has_a_start_in_few_words(start: ExpectedStart | None, text: str) -> None:
    assert short_start(start, 0) == text
