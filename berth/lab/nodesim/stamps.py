"""Times in the form of Kubernetes."""

from datetime import UTC, datetime
from typing import Final

from berth.schemas.units import UnixMs

_MS: Final = 1000


def stamp(at_ms: UnixMs) -> str:
    """Time as RFC 3339 in UTC, whole seconds: ``2026-11-20T11:41:02Z``."""
    return datetime.fromtimestamp(at_ms // _MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(at_ms: UnixMs) -> str:
    """The same with six decimal places, as in Leases."""
    return datetime.fromtimestamp(at_ms / _MS, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment_ms(text: str | None) -> UnixMs | None:
    """Milliseconds since 1970 of an RFC 3339 text; None for any other text."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return round(found.timestamp() * _MS) if found.tzinfo is not None else None
