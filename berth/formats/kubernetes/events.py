"""Kubernetes Events about objects.

An Event is identified by its object, reason and message: repeating it raises its count. Times are passed in as numbers.

Source: Kubernetes API, v1 Event.
"""

import hashlib
from typing import Final, Literal

import msgspec

from berth.formats.kubernetes.paths import api_path
from berth.formats.shown import shown
from berth.schemas.units import UnixMs, rfc3339

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
