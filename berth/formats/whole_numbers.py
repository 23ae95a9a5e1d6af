"""Whole numbers in texts of users: annotations, labels, data of ConfigMaps."""

from typing import Final

WHOLE_MAX: Final = (1 << 63) - 1
_CHARACTERS_MAX: Final = 19
"""Most digits of a number. Python refuses very long ones."""


def whole_number(text: str, *, most: int = WHOLE_MAX) -> int | None:
    """Number in a text of decimal digits; None for any other text, and for more than ``most``."""
    if len(text) > _CHARACTERS_MAX or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= most else None
