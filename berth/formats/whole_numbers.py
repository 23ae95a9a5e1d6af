"""Whole numbers in texts of users: annotations, labels, data of ConfigMaps."""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

WHOLE_MAX: Final = (1 << 63) - 1
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""A number of a Kubernetes object. JSON of users may have longer ones, which msgspec accepts and no message holds."""
Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Likewise, where times may be."""
_CHARACTERS_MAX: Final = 19
"""Most digits of a number. Python refuses very long ones."""


def whole_number(text: str, *, most: int = WHOLE_MAX) -> int | None:
    """Number in a text of decimal digits; None for any other text, and for more than ``most``."""
    if len(text) > _CHARACTERS_MAX or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= most else None
