"""What is wrong with a report of a device plug-in, a node's agent or ClusterD; and JSON read so that this can be said."""

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

SUSPECT: Final = "is suspect: newest report refused"
"""Words in the reason of a node of which some source's newest report could not be taken; the last good one holds."""
_SHOWN_MAX: Final = 60


class ReportError(ValueError):
    """A report that does not say what it should.

    Attributes:
        field: Where, such as ``DeviceInfoCfg.CheckCode``.
        value: What stands there, shortened.
        expected: What would be right.
    """

    def __init__(self, *, field: str, value: object, expected: str) -> None:
        text = shown(value)
        super().__init__(f"{field} is {text}, expected {expected}")
        self.field = field
        self.value = text
        self.expected = expected


def shown(value: object) -> str:
    """A value in a sentence, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def decoded(text: str | msgspec.Raw, decoder: msgspec.json.Decoder[T], *, field: str) -> T:
    """Value of a JSON text.

    Raises:
        ReportError: It is no JSON, is cut off, or has another form; names ``field`` and the path below it.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise ReportError(field=field + path.removesuffix("`"), value=_text(text), expected=_lower(reason)) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ReportError(field=field, value=_text(text), expected=f"JSON ({error})") from error


def _text(text: str | msgspec.Raw) -> str:
    return text if isinstance(text, str) else bytes(text).decode(errors="replace")


def _lower(reason: str) -> str:
    """``Expected `str`, got `int``` without its first word."""
    return reason.removeprefix("Expected ")
