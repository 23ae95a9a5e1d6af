"""Texts of values for errors, of bounded length."""

from typing import Final

CHARACTERS_MAX: Final = 120
"""Longest text of a value, without the sign that it was cut."""
_BITS_MAX: Final = 1024
"""Python refuses to write numbers of more than 4,300 digits."""


def shortened(value: object, most: int = CHARACTERS_MAX) -> str:
    """The value as Python writes it, cut to ``most`` characters; a very large number by its number of bits."""
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes) and len(value) > most:
        value = value[: most + 1]  # its text is not shorter than itself
    return cut(repr(value), most)


def cut(text: str, most: int = CHARACTERS_MAX) -> str:
    """The text, or its first ``most`` characters and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"
