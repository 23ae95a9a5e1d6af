"""Jobs as a table: what a row holds, and which jobs share one."""

from typing import get_args

import msgspec
from rich.style import Style

from berth.cli.jobs.job_table import STYLES, job_table, sharing, totals_line
from berth.cli.jobs.job_view import View
from berth.cli.jobs.live_list import screen_lines
from berth.cli.jobs.queue_order import positions
from berth.core.explain.refusal_text import sentence
from berth.schemas.placement import Run, placement_of
from berth.schemas.programs.lists import PlaceUse
from berth.schemas.refusal import NodeReason, ReasonCount, Refusal
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
    assert head.split() == ["JOB", "PHASE", "PODS", "CHIPS", "AGE", "POS", "WHERE,", "OR", "WHY", "NOT"]
    assert first.split(maxsplit=6) == ["ml/train", "waiting", "4", "32", "2h", "1", WHY]
    assert second.split(maxsplit=6) == ["ml/eval", "running", "2", "11", "-", "-", "a2-0, a2-1"]
    wide = rows([runs], is_wide=True)[1]
    assert wide.endswith("2        research  uid-eval  a2-0:0-7, a2-1:0-2")
    assert rows([again], is_wide=True)[1].split()[6] == "3", "the priority"


def test_jobs_that_wait_for_the_same_share_a_row_at_the_place_of_the_first() -> None:
    queue = [*sweep(6), *sweep(2, start=7, sentence="another reason"), *sweep(6, start=9)]
    _, shared, *others = rows(queue, shares=True)
    assert shared.split(maxsplit=7)[:7] == ["ml/s1", "+11", "waiting", "4", "32", "19m", "1-14"]
    assert [line.split()[0] for line in others] == ["ml/s7", "ml/s8"], "two are not many"
    assert sharing(queue) == (1, 12)
    assert len(rows(queue)) == 1 + 14
    assert [line.split()[5] for line in rows(queue)[1:]] == [str(at) for at in range(1, 15)]


def no_room(name: str, pods: int, *, fit: int = 10, seq: int = 1) -> JobStatus:
    counts = [ReasonCount(NodeReason.OTHER_RESOURCE, 1952), ReasonCount(NodeReason.SHORTAGE, 48 - fit)]
    refusal = Refusal(
        "no-room", pods_need=pods, pods_have=fit, chips=8, form="module910bx8", nodes_total=2000, nodes_fit=fit,
        counts=counts,
    )  # fmt: skip
    return a_status(name, seq=seq, refusal=refusal, sentence=sentence(refusal), pods=pods, chips=8 * pods)


def test_jobs_of_several_sizes_that_wait_for_the_same_nodes_share_a_row() -> None:
    alike = [no_room(f"s{pods}", pods, seq=pods) for pods in (16, 1200, 24)]
    shared = rows([*alike, no_room("other", 16, fit=3, seq=2000)], shares=True)
    assert len(shared) == 3
    why = "10 of 48 A2 nodes free, needs 16-1,200: 38 have fewer than 8 free chips"
    assert shared[1].split(maxsplit=7) == ["ml/s16", "+2", "waiting", "16-1,200", "128-9,600", "-", "1-3", why]


def test_a_reason_with_room_for_several_pods_of_a_node_counts_pods() -> None:
    one = no_room("a", 16)
    assert one.refusal is not None
    refusal = msgspec.structs.replace(one.refusal, pods_have=14)
    many = msgspec.structs.replace(one, refusal=refusal, sentence=sentence(refusal))
    assert rows([many])[1].endswith("room for 14 of 16 pods, 10 of 48 A2 nodes fit: 38 have fewer than 8 free chips")


def test_jobs_that_do_not_wait_alike_do_not_share_a_row() -> None:
    queue = sweep(3)
    for changes in ({"warning": "w"}, {"sentence": "s"}, {"phase": "failed"}, {"namespace": "n"}):
        other = msgspec.structs.replace(queue[1], **changes)
        assert sharing([queue[0], other, queue[2]]) == (0, 0), changes


def test_totals_count_jobs_and_chips() -> None:
    placed = placement_of(["a2-0"], [tuple(range(8))], [Run(1, 8)], resource="r")
    runs = a_status("eval", "running", placement=placed, chips=8, pods=1)
    waits = [a_status(name, chips=11_500) for name in "ab"]
    over = a_status("old", "succeeded", placement=placed, chips=8)
    assert totals_line([*waits, runs, over]) == "2 wait for 23,000 chips, 1 runs on 8 chips"
    use = PlaceUse(used=21_856, chips=22_144)
    assert totals_line([*waits, runs], use) == "2 wait for 23,000 chips, 1 runs, 21,856 of 22,144 chips in use"


def test_names_and_reasons_cannot_move_the_cursor() -> None:
    text = "\n".join(rows([a_status("x", sentence="\x1b[2Jgone")]))
    assert "\x1b" not in text
    assert "\\x1b[2Jgone" in text


def test_a_screen_says_how_many_lines_do_not_fit() -> None:
    known = {("ml", one.name): one for at in range(1, 40) for one in sweep(1, start=at, sentence=f"reason {at}")}
    lines = [line.plain for line in screen_lines(known, View(None, [], "queue"), 120, 10)]
    assert len(lines) == 10
    assert lines[1].startswith("ml/s1 ")
    assert lines[-2:] == [
        "... 32 lines more; narrow the list with --filter",
        "39 wait for 1,248 chips, 0 run on 0 chips",
    ]
    small = {key: known[key] for key in list(known)[:3]}
    assert len(screen_lines(small, View(None, [], "queue"), 120, 10)) == 5
    over = {("ml", "x"): a_status("x", "failed")}
    assert [line.plain for line in screen_lines(over, View(None, [], "queue"), 120, 10)] == [
        "1 job is over; list them with --all"
    ]
