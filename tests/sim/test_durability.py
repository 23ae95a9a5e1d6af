"""What a power cut leaves of a simulated stream, and what an operator makes of it."""

import pytest

from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName, Subjects
from tests.sim.durability import SYNC_S, SimStream

SPECS = {spec.name: spec for spec in Subjects("c").streams()}


def stream_of(name: StreamName, subjects: list[str], *, every_s: float = 1.0) -> SimStream:
    stream = SimStream(SPECS[name], "creation 1", phase_s=0.0)
    for number, subject in enumerate(subjects, 1):
        stream.now_s = number * every_s
        stream.put(Stored(subject, number, b"", number), None)
    return stream


@pytest.mark.parametrize(("share", "left"), [(0.0, 20), (0.5, 22), (1.0, 25)])
def test_a_stream_keeps_what_was_synced_and_a_part_of_the_rest(share: float, left: int) -> None:
    stream = stream_of(StreamName.LEDGER, ["l"] * 25)
    assert stream.lose_power(SYNC_S + 7.0, share) == 25 - left
    assert (stream.first_seq, stream.last_seq, list(stream.messages)) == (1, left, list(range(1, left + 1)))
    assert stream.newest == {"l": left}


def test_the_message_that_a_lost_one_replaced_is_there_again() -> None:
    stream = stream_of(StreamName.STATUS, ["a", "b", "a"], every_s=8.0)
    assert list(stream.messages) == [2, 3]
    stream.lose_power(SYNC_S + 5.0, 0.0)
    assert stream.newest == {"a": 1, "b": 2}
    stream.put(Stored("b", 3, b"", 0), None)
    assert list(stream.messages) == [1, 3]


def test_a_purge_after_the_last_sync_did_not_happen() -> None:
    stream = stream_of(StreamName.LEDGER, ["l"] * 4)
    stream.now_s = SYNC_S + 1.0
    stream.purge(3, None)
    assert stream.first_seq == 3
    assert stream.lose_power(SYNC_S + 2.0, 0.0) == 0
    assert stream.first_seq == 1


def test_two_power_cuts_lose_no_more_than_each_takes() -> None:
    stream = stream_of(StreamName.FACTS, ["f"] * 30)
    stream.lose_power(31.0, 0.0)
    assert stream.last_seq == 20
    stream.now_s = 35.0
    stream.put(Stored("f", 21, b"", 0), None)
    stream.lose_power(SYNC_S * 2 + 1.0, 0.0)
    assert stream.last_seq == 21
