"""Which snapshots are kept."""

from berth.schemas.status import SnapshotEnd
from berth.services.dispatcher.snapshots import kept_of


def an_end(number: int, *, at_ms: int = 0) -> SnapshotEnd:
    return SnapshotEnd(ledger_seq=number, facts_seq=10 * number, chunks=1, bytes_total=1, checksum=0, at_ms=at_ms)


def kept(*ends: SnapshotEnd, oldest_fact: int = 1, apart_ms: int = 1000) -> list[int]:
    return [end.ledger_seq for end in kept_of(ends, oldest_fact=oldest_fact, apart_ms=apart_ms)]


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


def test_of_older_ones_one_in_a_while_is_enough() -> None:
    ends = [an_end(number, at_ms=400 * number) for number in range(1, 12)]
    assert kept(*ends) == [1, 4, 7, 9, 10, 11]


def test_a_snapshot_written_twice_counts_once() -> None:
    assert kept(an_end(2, at_ms=1), an_end(2, at_ms=5)) == [2]
