"""Durations of options."""

from berth.cli.output import WRONG_USE, CommandError
from berth.formats.quantities import QuantityError, duration_ms


def option_ms(option: str, text: str) -> int:
    """Duration of an option in milliseconds, at least 1.

    Args:
        option: The option, such as ``--for``.
        text: Its value, such as ``30m``.

    Raises:
        CommandError: It is no duration above 0.
    """
    try:
        found = duration_ms(text)
    except QuantityError as error:
        raise CommandError(f"{option} is {text!r}, expected {error.expected}", code=WRONG_USE) from error
    if not found:
        raise CommandError(f"{option} is {text!r}, expected a duration above 0", code=WRONG_USE)
    return found
