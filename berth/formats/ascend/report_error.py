"""Errors in reports of a device plug-in, the agent of a node or ClusterD, and a JSON decoder that names their place."""

from typing import Final, Generic, TypeVar

import msgspec

from berth.formats.shortened import cut

T = TypeVar("T")
R = TypeVar("R")

SUSPECT: Final = "is suspect: newest report refused"
"""Part of the reason of a node if the newest report of a source is invalid and the last valid one stays in force."""
STALE: Final = "report is more than"
"""Part of the reason of a node whose newest report is too old."""
NO_REPORT: Final = "no report"
"""Part of the reason of a node without a report that can be read."""
_SHOWN_MAX: Final = 60
_EXPECTED_MAX: Final = 300
"""What the decoder of JSON expects may have a key of the text."""


class ReportError(ValueError):
    """An invalid report.

    Attributes:
        field: Path of the field, such as ``DeviceInfoCfg.CheckCode``.
        value: Its value, shortened.
        expected: Valid values.
    """

    def __init__(self, *, field: str, value: object, expected: str) -> None:
        text = shown(value)
        expected = cut(expected, _EXPECTED_MAX)
        super().__init__(f"{field} is {text}, expected {expected}")
        self.field = field
        self.value = text
        self.expected = expected


class RefusedReport(msgspec.Struct, Generic[R], frozen=True):
    """What can be read of a report that is refused.

    Attributes:
        report: What it says as far as it can be read; None for nothing.
        gap: Why its health cannot be read, or not all of it; empty if it can.
    """

    report: R | None
    gap: str = ""


def lacks_report(reason: str) -> str:
    """What a node takes no new work for, by its reason: :data:`STALE` or :data:`NO_REPORT`; empty for anything else."""
    return next((word for word in (STALE, NO_REPORT) if word in reason), "")


def shown(value: object) -> str:
    """A value for a sentence, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def text_of(value: object, field: str) -> str:
    """A value that must be a text.

    Raises:
        ReportError: The value is not a text.
    """
    if not isinstance(value, str):
        raise ReportError(field=field, value=value, expected=f"`str`, got `{type(value).__name__}`")
    return value


def decoded(text: str | msgspec.Raw, decoder: msgspec.json.Decoder[T], *, field: str) -> T:
    """Value of a JSON text.

    Raises:
        ReportError: It is not JSON, is cut off, or has another form; it names ``field`` and the path below it.
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
