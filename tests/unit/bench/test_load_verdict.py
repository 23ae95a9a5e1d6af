"""The verdict on a load, from samples that are made up, and its page."""

from pathlib import Path

import msgspec
import pytest

from bench.load.hour import Settings
from bench.load.page import page, pictures, repetition, section
from bench.load.samples import (
    WATCHED,
    Course,
    CourseFile,
    Latency,
    ProcessSample,
    Sample,
    StreamSample,
    read_course,
)
from bench.load.verdict import rows_of, windows
from bench.report import Machine, Report, Row, row
from berth.schemas.subjects import StreamName

_MIB = 1 << 20
_SETTINGS = dict.fromkeys(Settings.__struct_fields__, 10.0) | {"seconds": 3600.0, "used": 0.7}


def _sample(at_s: float, *, memory: float = 100.0, mib: float = 50.0, lag: int = 0, p99_ms: float = 9.0) -> Sample:
    return Sample(
        at_s=at_s,
        submitted=round(at_s * 8),
        placed=round(at_s * 8),
        failed=0,
        refused=0,
        latency=Latency(80, 4.0, p99_ms, 2 * p99_ms),
        processes={name: ProcessSample(memory, memory + 10, at_s / 4) for name in ("leader", "client")},
        streams={name.value: StreamSample(10, round(mib * _MIB), 1, 10, 1, lag) for name in WATCHED},
        snapshots=3,
        snapshot_seq=7,
    )


def _course(samples: list[Sample]) -> Course:
    return Course(
        Machine(processor="some", cores=2, system="Linux", python="3.11"), dict(_SETTINGS), 10.0, 8.0, samples
    )


def _missed(samples: list[Sample]) -> set[str]:
    return {one.metric for one in rows_of(_course(samples)) if one.ok is False}


def _hour(**changes: float) -> list[Sample]:
    """Samples of an hour, the last quarter of which has other values."""
    ten_s = range(10, 3601, 10)
    return [_sample(float(at), **(changes if at > 2700 else {})) for at in ten_s]  # type: ignore[arg-type]  # lag is int


def test_a_cell_that_stays_as_it_is_meets_all_targets() -> None:
    rows = rows_of(_course(_hour()))
    assert {one.ok for one in rows} == {True, None}
    found = {one.metric: one for one in rows}
    assert found["memory of leader, growth"].value == 0
    assert found["CPU of leader"].value == 25
    assert found["memory of client, growth"].ok is None, "the client is no part of the cell"


def test_the_windows_of_an_hour_are_minutes_10_to_20_and_the_last_10() -> None:
    early, late = windows(_hour())
    assert (early[0].at_s, early[-1].at_s, late[0].at_s, late[-1].at_s) == (600, 1190, 3010, 3600)


def test_latency_is_compared_from_the_moment_on_from_which_conditions_are_equal() -> None:
    samples = [_sample(float(at), p99_ms=90.0 if at < 1500 else 9.0) for at in range(10, 3601, 10)]  # s
    found = {one.metric: one for one in rows_of(_course(samples), 1500.0)}
    assert (found["latency p99, at first"].value, found["latency p99, last over first"].value) == (9.0, 1.0)
    assert (found["longest latency"].value, found["longest latency"].case) == (18.0, "second 1500 to 3600")
    rows = [one for one in rows_of(_course(samples), 1500.0) if one.metric == "memory of leader, growth"]
    assert [(one.case, one.ok) for one in rows] == [("second 600 to 3600", True), ("second 1500 to 3600", None)]


def test_what_grows_before_minute_10_does_not_count() -> None:
    assert not _missed([_sample(float(at), memory=min(at, 600) / 6) for at in range(10, 3601, 10)])


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"memory": 101.9}, set()),
        ({"memory": 102.1}, {"memory of leader, growth"}),
        ({"mib": 53.4}, set()),
        ({"mib": 53.6}, {f"{name}, growth beyond 1 MiB" for name in WATCHED if name != StreamName.SNAPSHOT}),
        ({"lag": 1}, {f"{name}, least lag at last" for name in WATCHED}),
        ({"p99_ms": 13.4}, set()),
        ({"p99_ms": 13.6}, {"latency p99, last over first"}),
    ],
)
def test_growth_beyond_a_bound_misses_its_target(changes: dict[str, float], missed: set[str]) -> None:
    assert _missed(_hour(**changes)) == missed


@pytest.mark.parametrize(("mib", "missed"), [(70.0, set()), (90.0, {"SNAPSHOT, growth beyond a snapshot"})])
def test_one_snapshot_more_is_no_growth(mib: float, missed: set[str]) -> None:
    assert _missed(_hour(mib=mib)) & {"SNAPSHOT, growth beyond a snapshot"} == missed, "three are kept of mib / 3 each"


def test_a_short_load_is_compared_from_the_moment_on_at_which_it_is_settled() -> None:
    samples = [_sample(float(at), memory=min(at, 400) / 4) for at in range(10, 721, 10)]
    assert "memory of leader, growth" in {one.metric for one in rows_of(_course(samples)) if one.ok is False}
    rows = rows_of(_course(samples), 400.0, settled_s=400.0)
    assert {one.ok for one in rows} == {True, None}
    assert {one.case for one in rows if "memory" in one.metric} == {"second 400 to 720"}


def test_a_repetition_has_its_own_verdict() -> None:
    text = repetition(_course(_hour(memory=110.0)), ["With something repaired."])
    assert "## The same again, for 3,600 s\n\n- With something repaired.\n\n**Verdict: " in text
    assert "are met; not: memory of leader, growth**" in text


def test_jobs_that_are_not_placed_miss_the_target() -> None:
    samples = [msgspec.structs.replace(one, placed=one.placed * 98 // 100) for one in _hour()]
    assert _missed(samples) == {"jobs placed"}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_samples_give_no_verdict(count: int) -> None:
    with pytest.raises(ValueError, match="too few for a verdict"):
        rows_of(_course([_sample(10.0 * at) for at in range(1, count + 1)]))


def test_a_course_is_read_as_it_was_written_without_a_line_that_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    course = _course([_sample(10.0), _sample(20.0)])
    file = CourseFile(path, _course([]))
    with pytest.raises(ValueError, match="has no sample"):
        read_course(path)
    for sample in course.samples:
        file.add(sample)
    with path.open("ab") as broken:
        broken.write(b'{"at_s":3')
    assert read_course(path) == course


def test_the_page_has_the_verdict_and_all_figures() -> None:
    course = _course(_hour(memory=110.0))
    text = page(course, ["Somebody was loud beside it."])
    assert "\n- Somebody was loud beside it.\n\n" in text
    rows: list[Row] = rows_of(course)
    judged = sum(one.ok is not None for one in rows)
    assert f"**Verdict: {judged - 1} of {judged} are met; not: memory of leader, growth**" in text
    assert all(f"| {one.metric} |" in text for one in rows)


def test_each_plot_is_a_png_and_differs_from_the_others() -> None:
    made = pictures(_course(_hour()))
    assert sorted(made) == ["latency", "memory", "streams"]
    assert all(content.startswith(b"\x89PNG") for content in made.values())
    assert len(set(made.values())) == len(made)


@pytest.mark.parametrize("bench", ["waiting", "nodes", "reports", "health"])
def test_a_section_says_what_a_bench_measures_and_has_its_rows(bench: str) -> None:
    rows = [row("some case", "how long", "s", [3.0], target=2.0), row("some case", "how much", "MiB", [1234.5])]
    text = section(Report(bench=bench, machine=_course([]).machine, rows=rows))
    assert f"`{bench}`: " in text
    assert "| some case | how long | 3.00 | s | 2.00 | no |" in text
    assert "| some case | how much | 1,234.50 | MiB |  |  |" in text
