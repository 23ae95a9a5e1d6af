"""Times in the form of Kubernetes."""

from datetime import UTC, datetime
from typing import Final

from berth.schemas.units import UnixMs, unix_ms
from berth.schemas.units import rfc3339 as stamp

_MS: Final = 1000


def micro_stamp(at_ms: UnixMs) -> str:
    """A time as RFC 3339 in UTC with six decimal places, as in Leases."""
    return datetime.fromtimestamp(at_ms / _MS, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment_ms(text: str | None) -> UnixMs | None:
    """Milliseconds since 1970 of an RFC 3339 text; None for any other text."""
    return unix_ms(text) or None


__all__ = ["micro_stamp", "moment_ms", "stamp"]
