"""Types of numbers with a unit, so that signatures name it, and times as texts in the form of RFC 3339."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta

UnixMs = Annotated[int, Meta(ge=0, description="milliseconds since 1970-01-01T00:00:00Z")]
Sequence = Annotated[int, Meta(ge=0, description="stream sequence; 0 means: none yet")]
CpuMilli = Annotated[int, Meta(ge=0, description="thousandths of a CPU")]
MemoryMib = Annotated[int, Meta(ge=0, description="mebibytes")]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = 253_402_300_799_999
"""End of the year 9999, the last one that a text of this form can name."""


def rfc3339(at_ms: UnixMs) -> str:
    """A time in UTC to the second, as Kubernetes writes it: ``2026-11-20T08:00:00Z``; at most the end of year 9999."""
    return f"{_EPOCH + timedelta(milliseconds=min(at_ms, _LATEST_MS)):%Y-%m-%dT%H:%M:%SZ}"


def unix_ms(text: str | None) -> UnixMs:
    """Milliseconds since 1970 of a time with an offset from UTC; 0 for an earlier one, and for any other text."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return 0
    return max(round((at - _EPOCH) / timedelta(milliseconds=1)), 0) if at.tzinfo is not None else 0
