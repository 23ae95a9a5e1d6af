"""Spans of the trace of a job: how long it waited, was bound and started, derived from its events.

Trace and spans have ids that follow from the uid of the job, so every process, and every repetition, names the same
ones. The trace of a job has one root, ``schedule``, from its submission until its pods are bound for the first time,
or until it ends without that. Later attempts and recoveries are below it.
"""

import hashlib
from collections import OrderedDict
from typing import Final, NamedTuple

from berth.core.state.cell import State
from berth.schemas.programs.events import JobEvent

_SPAN_BYTES: Final = 8
_RETURNED_MAX: Final = 50_000
"""Gangs whose time of return to the queue is known, and jobs whose begin is; of others a span may be left out."""
_ROOT: Final = "schedule"
_UNPLACED_ENDS: Final = frozenset({"rejected", "failed", "cancelled"})


class JobSpan(NamedTuple):
    """A part of the life of a job.

    Attributes:
        trace_id: 16 bytes; the same for all spans of a job.
        span_id: 8 bytes.
        parent_id: 8 bytes; empty for the root.
        name: ``schedule``, ``accept``, ``wait``, ``bind``, ``start`` or ``recover``.
        start_ms: In ms since 1970.
        end_ms: Not before ``start_ms``.
        attributes: Names and values, in the order of the names.
        error: Why it ended without success; empty if it did not.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ms: int
    end_ms: int
    attributes: tuple[tuple[str, str | int], ...]
    error: str


class JobSpans:
    """Derives spans while events are derived.

    Args:
        state: The state from which the events are derived.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._returned_ms: OrderedDict[str, int] = OrderedDict()
        self._open: OrderedDict[str, None] = OrderedDict()
        """Jobs that were seen from their acceptance on and whose root has not ended."""

    def ended_by(self, event: JobEvent) -> list[JobSpan]:
        """Spans that end with an event, the outer ones last.

        Args:
            event: The newest event that was derived; the state is that after its message.
        """
        if event.phase == "waiting" and event.attempt > 1 and event.uid not in self._returned_ms:
            self._returned_ms[event.uid] = event.at_ms
            while len(self._returned_ms) > _RETURNED_MAX:
                self._returned_ms.popitem(last=False)
        if event.phase == "accepted":
            self._open[event.uid] = None
            while len(self._open) > _RETURNED_MAX:
                self._open.popitem(last=False)
        spans = self._ended_by(event)
        if event.final or any(span.name == _ROOT for span in spans):
            self._open.pop(event.uid, None)
        if event.phase == "placed" or event.final:
            self._returned_ms.pop(event.uid, None)
        return spans

    def _ended_by(self, event: JobEvent) -> list[JobSpan]:
        submitted_ms, accepted_ms = self._request_times(event)
        match event.phase:
            case "accepted":
                return _span(event, "accept", submitted_ms)
            case "placed" if not event.step:
                start_ms = accepted_ms if event.attempt == 1 else self._returned_ms.get(event.uid, 0)
                return _span(event, "wait", start_ms)
            case "bound":
                return self._bound(event, submitted_ms)
            case "running":
                outcome = self._state.outcomes.get((event.namespace, event.name))
                is_its = outcome is not None and (outcome.uid, outcome.attempt) == (event.uid, event.attempt)
                return _span(event, "start", outcome.at_ms if outcome is not None and is_its else 0)
            case phase if phase in _UNPLACED_ENDS and self._is_open(event):
                return _span(event, _ROOT, submitted_ms, error=event.sentence or event.code or phase)
        return []

    def _bound(self, event: JobEvent, submitted_ms: int) -> list[JobSpan]:
        holding = self._state.fold.holdings.get((event.uid, event.attempt))
        if holding is None:
            return []
        if event.step:
            gang = self._state.fold.gangs.get(event.uid)
            recovery = gang.recovery if gang is not None else None
            since_ms = recovery.since_ms if recovery is not None and recovery.attempt == event.attempt else 0
            return _span(event, "recover", since_ms)
        found = _span(event, "bind", holding.at_ms)
        if event.attempt == 1 or event.uid in self._open:
            return [*found, *_span(event, _ROOT, submitted_ms)]
        return found

    def _is_open(self, event: JobEvent) -> bool:
        """Whether the root has not ended. Of a job whose begin was not seen only the first attempt is known."""
        return event.uid in self._open or (event.attempt <= 1 and not self._was_bound(event))

    def _was_bound(self, event: JobEvent) -> bool:
        """Whether a pod of the first attempt was bound."""
        outcome = self._state.outcomes.get((event.namespace, event.name))
        return outcome is not None and outcome.uid == event.uid and outcome.bound > 0

    def _request_times(self, event: JobEvent) -> tuple[int, int]:
        """When a job was submitted and accepted; 0 where it is not known."""
        job = self._state.jobs.get((event.namespace, event.name))
        if job is None or job.uid != event.uid:
            return (event.at_ms if event.phase == "rejected" else 0), 0
        created_ms = job.request.created_at_ms if job.request is not None else 0
        return min(created_ms or job.at_ms, job.at_ms), job.at_ms


def _span(event: JobEvent, name: str, start_ms: int, *, error: str = "") -> list[JobSpan]:
    """A span that ends with an event; none if nobody knows when it began."""
    if not start_ms:
        return []
    attributes: dict[str, str | int] = {
        "berth.attempt": event.attempt,
        "berth.code": event.code,
        "berth.job": event.name,
        "berth.namespace": event.namespace,
        "berth.nodes": len({rank.node for rank in event.ranks}),
        "berth.pods": len(event.ranks),
        "berth.sequence": event.sequence,
        "berth.step": event.step,
        "berth.uid": event.uid,
    }
    root = _hash(f"{event.uid}/{_ROOT}")
    is_root = name == _ROOT
    return [
        JobSpan(
            trace_id=bytes.fromhex(event.trace_id),
            span_id=root if is_root else _hash(f"{event.uid}/{event.attempt}/{event.step}/{name}"),
            parent_id=b"" if is_root else root,
            name=name,
            start_ms=min(start_ms, event.at_ms),
            end_ms=event.at_ms,
            attributes=tuple((key, value) for key, value in attributes.items() if value not in {"", 0}),
            error=error,
        )
    ]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_SPAN_BYTES).digest()
