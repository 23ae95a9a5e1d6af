"""Kubernetes Events about objects.

An Event is identified by its object, reason and message: repeating it raises its count. Times are passed in as numbers.

Source: Kubernetes API, v1 Event.
"""

import hashlib
from typing import Final, Literal

import msgspec

from berth.formats.kubernetes.paths import api_path
from berth.formats.shown import shown
from berth.schemas.units import UnixMs

COMPONENT: Final = "berth"
DEFAULT_NAMESPACE: Final = "default"
"""Namespace of Events about objects without a namespace."""
MESSAGE_MAX: Final = 1024
"""Longest message that the API accepts, in characters."""
NAME_MAX: Final = 253
TRACE_ID: Final = "berth/trace-id"
"""Annotation of Events about a job."""
EventType = Literal["Normal", "Warning"]
_HASH_BYTES: Final = 8
_S_MS: Final = 1000
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
_MINUTE_S: Final = 60


class Involved(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Object of an Event. By convention the uid of a node is its name."""

    api_version: str = ""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""


class _EventMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    annotations: dict[str, str] = {}


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    component: str


class EventBody(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A new Event, as the API accepts it."""

    api_version: str = "v1"
    kind: str = "Event"
    metadata: _EventMeta
    involved_object: Involved
    reason: str
    message: str
    type: EventType
    count: int
    first_timestamp: str
    last_timestamp: str
    source: _Source = _Source(COMPONENT)
    reporting_component: str = COMPONENT
    reporting_instance: str = ""


def events_path(involved: Involved) -> str:
    """Path of the collection of Events about an object."""
    return api_path("v1", "namespaces", involved.namespace or DEFAULT_NAMESPACE, "events")


def event_name(involved: Involved, *, reason: str, message: str) -> str:
    """Name of an Event; it depends on object, reason and message alone."""
    parts = (involved.kind, involved.namespace, involved.name, involved.uid, reason, message)
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=_HASH_BYTES).hexdigest()
    return f"{involved.name[: NAME_MAX - len(digest) - 1].rstrip('.-')}.{digest}"


def new_event(
    involved: Involved,
    *,
    reason: str,
    message: str,
    kind: EventType = "Warning",
    count: int = 1,
    first_ms: UnixMs,
    last_ms: UnixMs,
    trace_id: str = "",
) -> EventBody:
    """An Event.

    Args:
        involved: Its object.
        reason: One word in camel case.
        message: One sentence; it is made printable, and cut to :data:`MESSAGE_MAX` characters.
        kind: Whether it is a warning.
        count: Number of occurrences.
        first_ms: Time of the first occurrence.
        last_ms: Time of the last occurrence.
        trace_id: Trace of the job, as the annotation :data:`TRACE_ID`; empty without.
    """
    text = shown(message)
    return EventBody(
        metadata=_EventMeta(
            event_name(involved, reason=reason, message=message),
            involved.namespace or DEFAULT_NAMESPACE,
            {TRACE_ID: trace_id} if trace_id else {},
        ),
        involved_object=involved,
        reason=reason,
        message=text if len(text) <= MESSAGE_MAX else f"{text[: MESSAGE_MAX - 1]}…",
        type=kind,
        count=count,
        first_timestamp=rfc3339(first_ms),
        last_timestamp=rfc3339(last_ms),
    )


def repeated(count: int, last_ms: UnixMs) -> dict[str, object]:
    """Merge patch for one more occurrence of an Event.

    Args:
        count: Number of occurrences, including this one.
        last_ms: Time of this occurrence.
    """
    return {"count": count, "lastTimestamp": rfc3339(last_ms)}


def rfc3339(at_ms: UnixMs) -> str:
    """A time in UTC to the second, as Kubernetes writes it: ``2026-11-20T08:00:00Z``."""
    seconds = at_ms // _S_MS
    days, rest = divmod(seconds, _DAY_S)
    year, month, day = _civil(days)
    return (
        f"{year:04d}-{month:02d}-{day:02d}T"
        f"{rest // _HOUR_S:02d}:{rest % _HOUR_S // _MINUTE_S:02d}:{rest % _MINUTE_S:02d}Z"
    )


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the Gregorian calendar, from days since 1970-01-01.

    Counted in eras of 400 years that begin on 1 March, so that leap days come last.
    """
    era_days, century_days, four_year_days, year_days = 146_097, 36_524, 1_460, 365
    shifted = days + 719_468
    era, of_era = divmod(shifted, era_days)
    year_of_era = (of_era - of_era // four_year_days + of_era // century_days - of_era // (era_days - 1)) // year_days
    of_year = of_era - (year_days * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * month_from_march + 2) // 5 + 1
    january, february = 10, 11
    is_next_year = month_from_march in {january, february}
    month = month_from_march - 9 if is_next_year else month_from_march + 3
    return era * 400 + year_of_era + is_next_year, month, day
