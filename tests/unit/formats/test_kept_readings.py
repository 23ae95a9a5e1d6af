"""What is kept of the texts that were read last."""

from berth.formats.kept_readings import KeptReadings


def test_what_was_read_is_kept_until_there_are_too_many() -> None:
    kept = KeptReadings[int](2)
    for number, text in enumerate((b"a", b"b")):
        assert kept.put(text, number) == number
    assert (kept.get(b"a"), kept.get(b"b")) == (0, 1)
    kept.put(b"c", 2)
    assert (kept.get(b"a"), kept.get(b"c")) == (None, 2)


def test_large_texts_are_fewer() -> None:
    kept = KeptReadings[int](1000, bytes_max=100)
    for number in range(50):
        kept.put(bytes([number]) * 40, number)
        assert sum(kept.get(bytes([other]) * 40) is not None for other in range(50)) <= 2
