"""Jobs as a table: what a row holds, and which jobs share one."""

from typing import get_args

from rich.style import Style

from berth.cli.jobs.job_table import STYLES, job_table, sharing
from berth.cli.jobs.listing import View
from berth.cli.jobs.live_list import screen_lines
from berth.cli.jobs.queue_order import positions
from berth.schemas.placement import Run, placement_of
from berth.schemas.status import JobStatus, Phase
from tests.unit.cli.jobs.test_queue_order import a_status

NOW_MS = 10_000_000
WHY = "4 pods of 8 chips are needed, and 1 fits"


def sweep(count: int, *, start: int = 1, sentence: str = WHY) -> list[JobStatus]:
    """Jobs that wait alike, submitted a minute apart."""
    return [
        a_status(f"s{at}", seq=at, sentence=sentence, submitted_ms=NOW_MS - 60_000 * (20 - at), pods=4, chips=32)
        for at in range(start, start + count)
    ]


def rows(shown: list[JobStatus], *, is_wide: bool = False, shares: bool = False, width: int | None = None) -> list[str]:
    table = job_table(shown, positions(shown), NOW_MS, is_wide=is_wide, shares=shares)
    return [line.plain for line in table.lines(width)]


def test_every_phase_has_a_style_that_a_terminal_knows() -> None:
    assert sorted(STYLES) == sorted(get_args(Phase))
    assert [style for style in STYLES.values() if not Style.parse(style)] == []


def test_a_row_has_position_priority_and_the_age_since_the_request() -> None:
    again = a_status("train", seq=7, priority=3, pods=4, chips=32, submitted_ms=NOW_MS - 7_200_000, sentence=WHY)
    placed = placement_of(["a2-0", "a2-1"], [tuple(range(8)), (0, 1, 2)], [Run(1, 8), Run(1, 3)], resource="r")
    runs = a_status("eval", "running", placement=placed, attempt=2, chips=11, pods=2, queue="research")
    head, first, second = rows([again, runs])
    assert head.split() == [
        "JOB",
        "PHASE",
        "POSITION",
        "PRIORITY",
        "PODS",
        "CHIPS",
        "AGE",
        "WHERE,",
        "OR",
        "WHY",
        "NOT",
    ]
    assert first.split(maxsplit=8) == ["ml/train", "waiting", "1", "3", "4", "32", "2", "h", WHY]
    assert second.split(maxsplit=7) == ["ml/eval", "running", "-", "0", "2", "11", "-", "a2-0, a2-1"]
    wide = rows([runs], is_wide=True)[1]
    assert wide.endswith("2        research  uid-eval  a2-0:0-7, a2-1:0-2")


def test_jobs_that_wait_alike_share_a_row() -> None:
    queue = [*sweep(12), *sweep(2, start=13, sentence="another reason")]
    _, shared, *others = rows(queue, shares=True)
    assert shared.startswith("ml/s1 and 11 more  waiting  1-12 ")
    assert "8 min to 19 min" in shared
    assert [line.split()[0] for line in others] == ["ml/s13", "ml/s14"], "two are not many"
    assert sharing(queue) == (1, 12)
    assert len(rows(queue)) == 1 + 14
    assert [line.split()[2] for line in rows(queue)[1:]] == [str(at) for at in range(1, 15)]


def test_jobs_that_differ_in_what_a_row_shows_do_not_share_it() -> None:
    queue = sweep(3)
    for changes in (
        {"priority": 1},
        {"chips": 8},
        {"pods": 1},
        {"warning": "w"},
        {"sentence": "s"},
        {"phase": "failed"},
    ):
        other = JobStatus(**{field: getattr(queue[1], field) for field in queue[1].__struct_fields__} | changes)
        assert sharing([queue[0], other, queue[2]]) == (0, 0), changes


def test_names_and_reasons_cannot_move_the_cursor() -> None:
    text = "\n".join(rows([a_status("x", sentence="\x1b[2Jgone")]))
    assert "\x1b" not in text
    assert "\\x1b[2Jgone" in text


def test_a_screen_says_how_many_lines_do_not_fit() -> None:
    known = {("ml", one.name): one for at in range(1, 40) for one in sweep(1, start=at, sentence=f"reason {at}")}
    lines = [line.plain for line in screen_lines(known, View(None, [], "queue"), 120, 10)]
    assert len(lines) == 10
    assert lines[1].startswith("ml/s1 ")
    assert lines[-1] == "... 31 lines more; narrow the list with --filter"
    small = {key: known[key] for key in list(known)[:3]}
    assert len(screen_lines(small, View(None, [], "queue"), 120, 10)) == 4
    over = {("ml", "x"): a_status("x", "failed")}
    assert [line.plain for line in screen_lines(over, View(None, [], "queue"), 120, 10)] == [
        "1 job is over; list them with --all"
    ]
