"""Check for texts that UTF-8 can represent.

It cannot represent half a surrogate pair, which JSON, YAML and the environment may contain.
"""

from typing import Final

UTF8_TEXT: Final = "text without half a surrogate pair (U+D800 to U+DFFF)"
"""Valid values, for an error."""


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
