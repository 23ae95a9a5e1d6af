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


HEADERS = ["JOB", "PHASE", "PODS", "CHIPS", "AGE", "POS", "WHERE, OR WHY NOT"]
WIDE: dict[str, list[object]] = {
    "JOB": ["team/job-5", "team/job-12345", "team/runs"],
    "PHASE": ["waiting", "waiting", "running"],
    "PODS": [5, "12,345", 2],
    "CHIPS": [80, "197,520", 18],
    "AGE": ["5m", "9d", "2h"],
    "POS": [1, 2, "-"],
    "PRIORITY": [-5, -12345, 0],
    "IN PHASE": ["5 s", "3 h", "30 s"],
    "ATTEMPT": ["-", "-", 17],
    "QUEUE": ["-", "-", "research"],
    "UID": ["uid-5", "uid-12345", "uid-1"],
    "WHERE, OR WHY NOT": [f"{WHY} 5", f"{WHY} 12345", "node-00007:0-15, node-01234:3,5"],
}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_word_of_every_column_of_the_wide_form_is_read_back(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _jobs()
    terminal = open_terminal(monkeypatch, width)
    print_table(job_table(shown, positions(shown), NOW_MS, is_wide=True))
    lines = terminal.lines
    assert max(map(len, lines)) <= width
    found = columns_in(lines, list(WIDE))
    assert found == {header: words_of(cells) for header, cells in WIDE.items()}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_job_is_a_line_with_all_numbers_and_the_begin_of_its_reason(
    width: int, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _jobs()
    terminal = open_terminal(monkeypatch, width)
    monkeypatch.setattr(terminal, "encoding", encoding, raising=False)
    print_table(job_table(shown, positions(shown), NOW_MS, is_wide=False))
    head, *lines = terminal.lines
    assert len(lines) == len(shown)
    assert max(map(len, lines)) <= width
    mark = "…" if encoding == "utf-8" else "~"
    wholes = zip(*(WIDE[header] for header in HEADERS[:-1]), strict=True)
    for line, (name, *others), where in zip(
        lines, wholes, [f"{WHY} 5", f"{WHY} 12345", "node-00007, node-01234"], strict=True
    ):
        first, *cells, last = line.split(maxsplit=len(HEADERS) - 1)
        assert cells == [str(other) for other in others]
        assert str(name).endswith(first.removeprefix(mark)), "its end tells it from others"
        assert where == last or (last.endswith(mark) and where.startswith(f"{last.removesuffix(mark)}")), last
        assert len(last) >= 10
    assert head.split()[:6] == HEADERS[:6]
