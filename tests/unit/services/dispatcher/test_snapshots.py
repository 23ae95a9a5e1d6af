"""Which snapshots are kept."""

from berth.schemas.status import SnapshotEnd
from berth.services.dispatcher.snapshots import kept_of


def an_end(number: int, *, at_ms: int = 0) -> SnapshotEnd:
    return SnapshotEnd(ledger_seq=number, facts_seq=10 * number, chunks=1, bytes_total=1, checksum=0, at_ms=at_ms)


def kept(*ends: SnapshotEnd, oldest_fact: int = 1, synced_ms: int = 1_000_000, apart_ms: int = 1000) -> list[int]:
    found = kept_of(ends, oldest_fact=oldest_fact, synced_ms=synced_ms, apart_ms=apart_ms)
    return [end.ledger_seq for end in found]


def test_the_newest_three_are_kept_however_close_they_are() -> None:
    assert kept(an_end(1)) == [1]
    assert kept(an_end(3), an_end(1), an_end(2)) == [1, 2, 3]
    assert kept(*(an_end(number) for number in range(1, 9))) == [1, 6, 7, 8]


def test_the_oldest_kept_is_not_younger_than_the_oldest_fact() -> None:
    ends = [an_end(number, at_ms=5000 * number) for number in range(1, 9)]
    assert kept(*ends, oldest_fact=1) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert kept(*ends, oldest_fact=41) == [4, 5, 6, 7, 8]  # number 4 holds the facts up to 40
    assert kept(*ends, oldest_fact=40) == [3, 4, 5, 6, 7, 8]
    assert kept(*ends, oldest_fact=1000) == [8]


def test_the_oldest_kept_is_one_at_which_the_ledger_can_be_cut() -> None:
    ends = [an_end(number, at_ms=5000 * number) for number in range(1, 9)]
    assert kept(*ends, oldest_fact=1000, synced_ms=30_000) == [6, 7, 8]
    assert kept(*ends, oldest_fact=1000, synced_ms=14_999) == [2, 3, 4, 5, 6, 7, 8]
    assert kept(*ends, oldest_fact=31, synced_ms=30_000) == [3, 4, 5, 6, 7, 8]
    assert kept(*ends, oldest_fact=1000, synced_ms=0) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_facts_that_are_kept_for_a_short_time_do_not_let_the_ledger_grow() -> None:
    ends: list[SnapshotEnd] = []
    for number in range(1, 100):
        ends.append(an_end(number, at_ms=1000 * number))
        synced_ms = 1000 * (number - 30)
        found = kept_of(ends, oldest_fact=10 * (number - 5), synced_ms=synced_ms, apart_ms=5000)
        ends = found
    assert 65 <= ends[0].ledger_seq <= 69
    assert len(ends) <= 12


def test_of_older_ones_one_in_a_while_is_enough() -> None:
    ends = [an_end(number, at_ms=400 * number) for number in range(1, 12)]
    assert kept(*ends) == [1, 4, 7, 9, 10, 11]


def test_a_snapshot_written_twice_counts_once() -> None:
    assert kept(an_end(2, at_ms=1), an_end(2, at_ms=5)) == [2]
