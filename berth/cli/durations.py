"""Durations of options."""

import re
from typing import Final

from berth.cli.output import WRONG_USE, CommandError
from berth.formats.quantities import QuantityError, duration_ms

_SECONDS: Final = re.compile(r"[0-9]{1,9}([.][0-9]{1,9})?")
_DAYS: Final = re.compile(r"([1-9][0-9]{0,4})d")
_SECOND_MS: Final = 1000
_DAY_MS: Final = 86_400_000


def option_ms(option: str, text: str) -> int:
    """Duration of an option in milliseconds, at least 1.

    Args:
        option: The option, such as ``--for``.
        text: Its value, such as ``30m`` or ``7d``.

    Raises:
        CommandError: It is no duration above 0.
    """
    try:
        found = days_or_duration_ms(text)
    except QuantityError as error:
        raise CommandError(
            f"{option} is {text!r}, expected days such as 7d, or {error.expected}", code=WRONG_USE
        ) from error
    if not found:
        raise CommandError(f"{option} is {text!r}, expected a duration above 0", code=WRONG_USE)
    return found


def option_s(option: str, text: str) -> float:
    """Longest wait in seconds, 0 or more.

    Args:
        option: The option, such as ``--timeout``.
        text: Its value: a number of seconds, or a duration such as ``30m`` or ``7d``.

    Raises:
        CommandError: The text is neither a number nor a duration.
    """
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        return days_or_duration_ms(text) / _SECOND_MS
    except QuantityError as error:
        raise CommandError(
            f"{option} is {text!r}, expected seconds, days such as 7d, or {error.expected}", code=WRONG_USE
        ) from error


def days_or_duration_ms(text: str) -> int:
    """Milliseconds of a number of days such as ``7d``, or of a duration.

    Raises:
        QuantityError: It is neither a number of days nor a duration.
    """
    days = _DAYS.fullmatch(text)
    return int(days[1]) * _DAY_MS if days is not None else duration_ms(text)
