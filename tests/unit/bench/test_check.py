"""What the check of the benches says about reports that are made up."""

import msgspec
import pytest

from bench.catalogue import BENCHES, Bench
from bench.check import Ended, faults_of
from bench.report import Machine, Report, Row, row

_MACHINE = Machine(processor="some", cores=2, system="Linux", python="3.11")
_GOOD = row("a case", "rate", "1/s", [3.0], limits=[4.0], target=1.0)


def _report(*rows: Row) -> Report:
    return Report(bench="made up", machine=_MACHINE, rows=list(rows))


def _bench(rows: int) -> Bench:
    return Bench(_report, _report, rows, limit_s=7.0)


def _faults(*rows: Row, log: str = "", wanted: int = 1) -> list[str]:
    return faults_of(Ended(0, msgspec.json.encode(_report(*rows)), log), _bench(wanted))[1]


def test_measured_rows_have_no_fault() -> None:
    difference = row("a case", "grown", "MiB", [-1.0], can_be_zero=True)
    ended = Ended(0, msgspec.json.encode(_report(_GOOD, difference)), "a warning\n")
    assert faults_of(ended, _bench(2)) == (2, [])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (row("a case", "rate", "1/s", [0.0]), "a case, rate: 0.0 1/s is no measured value"),
        (row("a case", "rate", "1/s", [-2.0]), "a case, rate: -2.0 1/s is no measured value"),
        (row("a case", "rate", "1/s", [1.0], limits=[0.0]), "a case, rate: 0.0 1/s is no measured limit"),
    ],
)
def test_a_row_without_a_figure_is_a_fault(bad: Row, said: str) -> None:
    assert _faults(_GOOD, bad) == [said]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_a_fault(value: float) -> None:
    (fault,) = _faults(row("a case", "rate", "1/s", [value], can_be_zero=True))
    assert "its report is not one: Expected `float`, got `null` - at `$.rows[0].value`" in fault


def test_a_bench_that_lacks_rows_says_what_was_left_out() -> None:
    assert _faults(_GOOD, log="left out: no trace\n", wanted=2) == ["1 rows, expected 2: left out: no trace"]
    assert _faults(wanted=1) == ["0 rows, expected 1"]


def test_a_bench_that_fails_is_told_with_its_log() -> None:
    log = "dispatcher ended with exit code 3 before its bench was done with it; its log is empty\n"
    assert faults_of(Ended(1, b"", log), _bench(1)) == (0, [f"exit code 1: {log.strip()}"])
    assert faults_of(Ended(-9, b"", ""), _bench(1)) == (0, ["exit code -9: it wrote nothing"])


def test_a_bench_that_does_not_end_is_told_with_its_limit() -> None:
    assert faults_of(Ended(None, b"", ""), _bench(1)) == (0, ["it did not end within its 7 s"])


def test_every_bench_must_have_rows_and_end() -> None:
    assert [name for name, bench in BENCHES.items() if bench.rows < 1 or not 0 < bench.limit_s <= 240] == []
