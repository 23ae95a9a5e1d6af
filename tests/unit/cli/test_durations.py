"""Durations of options: above 0, or a clear error."""

import pytest

from berth.cli.durations import option_ms
from berth.cli.output import WRONG_USE, CommandError


@pytest.mark.parametrize(("text", "wanted"), [("1ms", 1), ("30m", 1_800_000), ("10s", 10_000)])
def test_durations_are_milliseconds(text: str, wanted: int) -> None:
    assert option_ms("--for", text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "a duration above 0"),
        ("0s", "a duration above 0"),
        ("soon", "a duration such as"),
        ("", "a duration such as"),
        ("-1m", "a duration such as"),
    ],
)
def test_a_wrong_duration_is_refused(text: str, words: str) -> None:
    with pytest.raises(CommandError, match=f"^--grace is '{text}', expected {words}") as caught:
        option_ms("--grace", text)
    assert caught.value.code == WRONG_USE
