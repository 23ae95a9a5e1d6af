"""What the next job of its like is taken to run."""

from berth.core.state.ledger import LedgerDump, LedgerFold
from berth.core.state.run_times import LIKES_MAX, TIMES_MAX, Range, RunTime, RunTimes, stem_of
from berth.schemas.ledger import Epoch, Release, ReleaseReason, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of


def test_the_estimate_is_the_mean_of_the_last_two_of_one_namespace_and_size() -> None:
    known = RunTimes()
    assert known.estimate_ms("ml", 8) is None
    known.note("ml", "job", 8, 100)
    assert known.estimate_ms("ml", 8) == 100
    known.note("ml", "job", 8, 205)
    assert known.estimate_ms("ml", 8) == 152
    known.note("ml", "job", 8, 0)
    assert known.estimate_ms("ml", 8) == 102
    assert known.estimate_ms("ml", 16) is None
    assert known.estimate_ms("vision", 8) is None


def test_the_kind_that_ended_longest_ago_is_forgotten_first() -> None:
    known = RunTimes()
    for chips in range(LIKES_MAX):
        known.note("ml", "job", chips, chips)
    known.note("ml", "job", 0, 7)
    known.note("new", "job", 1, 9)
    assert known.estimate_ms("ml", 0) == 3
    assert known.estimate_ms("ml", 1) is None
    assert known.estimate_ms("ml", 2) == 2
    again = RunTimes()
    again.load(known.dump())
    again.note("newer", "job", 1, 9)
    assert again.estimate_ms("ml", 2) is None, "what is loaded keeps its age"
    assert len(again.dump()) == LIKES_MAX


def a_fold(reason: ReleaseReason, *, ranks: list[int], seconds: int = 90) -> LedgerFold:
    """A ledger in which a job of two pods of 4 chips was placed at 1 s, and released."""
    placement = placement_of(["n1", "n2"], [(0, 1, 2, 3), (0, 1, 2, 3)], [Run(2, 4)], resource="r")
    records: list[Epoch | Round] = [
        Epoch(1, 0, 0, 0, "test", Settings()),
        Round(1, 1, 0, 1_000, 1, verdicts=[Verdict("ml", "job", "u", 1, placement)]),
        Round(1, 2, 0, 1_000 * (1 + seconds), 2, releases=[Release("u", 1, reason, ranks=ranks)]),
    ]
    fold = LedgerFold()
    for sequence, record in enumerate(records, start=1):
        fold.apply(sequence, fold.encoded(record))
    return fold


def test_only_a_job_that_ran_to_its_end_tells_how_long_its_like_run() -> None:
    assert a_fold("succeeded", ranks=[]).run_times.dump() == [RunTime("ml", 8, 90_000)]
    assert a_fold("failed", ranks=[]).run_times.dump() == []
    assert a_fold("cancelled", ranks=[]).run_times.dump() == []
    assert a_fold("succeeded", ranks=[1]).run_times.dump() == []


def test_estimates_are_part_of_the_folded_ledger_and_may_be_missing_in_an_old_one() -> None:
    dump = a_fold("succeeded", ranks=[]).dump()
    again = LedgerFold()
    again.load(dump)
    assert again.run_times.estimate_ms("ml", 8) == 90_000
    old = LedgerDump(1, 1, "h", Settings(), 0, 0, 0, [], [])
    again.load(old)
    assert again.run_times.dump() == []


def test_the_stem_of_a_name_is_without_what_tells_runs_apart() -> None:
    names = ("train", "train-7", "train-20261130-3", "train-x7k2p", "train.12", "7-8")
    assert [stem_of(name) for name in names] == ["train", "train", "train", "train", "train", "7"]
    assert stem_of("llama-7b-large") == "llama-7b-large"
    assert stem_of("llama-7b") == "llama-7b"


def test_a_range_is_of_the_last_jobs_with_the_stem_and_else_of_the_last_two_of_the_size() -> None:
    known = RunTimes()
    assert known.range_ms("ml", "train-1", 8) is None
    for number in range(2 * TIMES_MAX):
        known.note("ml", f"train-{number}", 8, number)
    assert known.range_ms("ml", "train-99", 8) == Range(TIMES_MAX + 3, 2 * TIMES_MAX - 4)
    assert known.range_ms("ml", "train-99", 8, beyond_ms=2 * TIMES_MAX - 2) == Range(31, 31)
    assert known.range_ms("ml", "train-99", 8, beyond_ms=2 * TIMES_MAX) is None
    assert known.range_ms("ml", "eval", 8) == Range(30, 31)
    assert known.range_ms("ml", "eval", 16) is None


def test_what_is_learned_of_stems_is_bounded_and_part_of_the_folded_ledger() -> None:
    known = RunTimes()
    for chips in range(LIKES_MAX + 1):
        known.note("ml", "job", chips, 1)
    assert len(known.dump_stems()) == LIKES_MAX
    again = LedgerFold()
    again.load(a_fold("succeeded", ranks=[]).dump())
    assert again.run_times.range_ms("ml", "job-2", 8) == Range(90_000, 90_000)
