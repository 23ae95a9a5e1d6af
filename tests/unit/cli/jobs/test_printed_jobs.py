"""The tables of ``berth jobs`` on terminals of several widths: every number is read back."""

import pytest

from berth.cli.jobs.job_table import job_table
from berth.cli.jobs.queue_order import positions
from berth.cli.output import print_table
from berth.schemas.placement import Run, placement_of
from berth.schemas.status import JobStatus
from tests.support.printed_tables import WIDTHS, columns_in, open_terminal, words_of

NOW_MS = 1_760_000_000_000
WHY = "1234 of 5678 nodes have 16 chips, and 17 are free at most: 90210 are needed"


def _jobs() -> list[JobStatus]:
    placed = placement_of(
        ["node-00007", "node-01234"], [tuple(range(16)), (3, 5)], [Run(1, 16), Run(1, 2)], resource="r"
    )
    waits = [
        JobStatus("team", f"job-{number}", f"uid-{number}", "waiting", NOW_MS - 1000 * number, NOW_MS, priority=-number,
                  pods=number, chips=16 * number, sentence=f"{WHY} {number}", submitted_ms=NOW_MS - 60_000 * number)
        for number in (5, 12345)
    ]  # fmt: skip
    runs = JobStatus(
        "team", "runs", "uid-1", "running", NOW_MS - 30_000, NOW_MS, attempt=17, placement=placed, pods=2, chips=18,
        queue="research", submitted_ms=NOW_MS - 7_200_000,
    )  # fmt: skip
    return [*waits, runs]


WIDE: dict[str, list[object]] = {
    "JOB": ["team/job-5", "team/job-12345", "team/runs"],
    "PHASE": ["waiting", "waiting", "running"],
    "POSITION": [1, 2, "-"],
    "PRIORITY": [-5, -12345, 0],
    "PODS": [5, 12345, 2],
    "CHIPS": [80, 197520, 18],
    "AGE": ["5 min", "9 d", "2 h"],
    "IN PHASE": ["5 s", "3 h", "30 s"],
    "ATTEMPT": ["-", "-", 17],
    "QUEUE": ["-", "-", "research"],
    "UID": ["uid-5", "uid-12345", "uid-1"],
    "WHERE, OR WHY NOT": [f"{WHY} 5", f"{WHY} 12345", "node-00007:0-15, node-01234:3,5"],
}
ONLY_WIDE = ("IN PHASE", "ATTEMPT", "QUEUE", "UID")
USUAL = {header: cells for header, cells in WIDE.items() if header not in ONLY_WIDE}
USUAL["WHERE, OR WHY NOT"] = [f"{WHY} 5", f"{WHY} 12345", "node-00007, node-01234"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_wide", [False, True])
def test_every_word_of_every_column_is_read_back(width: int, monkeypatch: pytest.MonkeyPatch, *, is_wide: bool) -> None:
    table = WIDE if is_wide else USUAL
    shown = _jobs()
    terminal = open_terminal(monkeypatch, width)
    print_table(job_table(shown, positions(shown), NOW_MS, is_wide=is_wide))
    lines = terminal.lines
    assert max(map(len, lines)) <= width
    found = columns_in(lines, list(table))
    assert found == {header: words_of(cells) for header, cells in table.items()}
