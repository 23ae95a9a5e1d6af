"""Texts from outside as lines that are safe to show: on a terminal, in a log, in an Event.

Names, reasons, labels and messages come from whoever may write them. A terminal obeys control characters in them: they
move its cursor, rename its window or write to its clipboard; a line feed forges a line, and the signs of the direction
of writing turn a name round. So whatever shows a text makes it :data:`Shown` first.
"""

import re
from typing import Final, NewType

Shown = NewType("Shown", str)
"""Text of printable characters alone: no control character, line break, sign of direction or half a surrogate pair."""

_MAYBE: Final = re.compile(r"[^ -~]")
_BMP_MAX: Final = 0xFFFF


def shown(text: str) -> Shown:
    """The text on one line; other characters than printable ones and blanks are escaped as in Python."""
    if text.isprintable():
        return Shown(text)
    return Shown("".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text))


def shown_json(text: str) -> Shown:
    """JSON with the same meaning on one line; characters that are not printable are escaped as in JSON.

    Args:
        text: JSON, without line breaks between its values.
    """
    return Shown(text if text.isprintable() else _MAYBE.sub(_escape, text))


def _escape(found: re.Match[str]) -> str:
    sign = found.group()
    if sign.isprintable():
        return sign
    code = ord(sign)
    if code <= _BMP_MAX:
        return f"\\u{code:04x}"
    code -= _BMP_MAX + 1
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
