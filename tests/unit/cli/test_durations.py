"""Durations of options: above 0, or a clear error."""

import pytest

from berth.cli.durations import option_ms, option_s
from berth.cli.output import WRONG_USE, CommandError


@pytest.mark.parametrize(("text", "wanted"), [("1ms", 1), ("30m", 1_800_000), ("10s", 10_000), ("7d", 604_800_000)])
def test_durations_are_milliseconds(text: str, wanted: int) -> None:
    assert option_ms("--for", text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "a duration above 0"),
        ("0s", "a duration above 0"),
        ("soon", "days such as 7d, or a duration such as"),
        ("0d", "days such as 7d, or a duration such as"),
        ("", "days such as 7d, or a duration such as"),
        ("-1m", "days such as 7d, or a duration such as"),
    ],
)
def test_a_wrong_duration_is_refused(text: str, words: str) -> None:
    with pytest.raises(CommandError, match=f"^--grace is '{text}', expected {words}") as caught:
        option_ms("--grace", text)
    assert caught.value.code == WRONG_USE


@pytest.mark.parametrize(
    ("text", "wanted"), [("0", 0.0), ("20", 20.0), ("0.5", 0.5), ("1m30s", 90.0), ("250ms", 0.25), ("1d", 86_400.0)]
)
def test_a_longest_wait_is_seconds_or_a_duration(text: str, wanted: float) -> None:
    assert option_s("--timeout", text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e9", "nan", "inf", "1,5"])
def test_a_wrong_longest_wait_is_refused(text: str) -> None:
    with pytest.raises(
        CommandError, match=f"^--timeout is '{text}', expected seconds, days such as 7d, or a duration such as"
    ) as caught:
        option_s("--timeout", text)
    assert caught.value.code == WRONG_USE
