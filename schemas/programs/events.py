"""Events of jobs: one JSON object for every change, stored on ``berth.<cell>.event.job.<namespace>.<job>``.

The operation ``events`` of the service for programs gives those that are stored.
"""

from typing import Final

from berth.schemas.programs.replies import Rank
from berth.schemas.programs.shape import Reply, Shape, Whole

PHASES: Final = (
    "accepted",
    "rejected",
    "waiting",
    "recovering",
    "backup",
    "placed",
    "bound",
    "running",
    "ending",
    "succeeded",
    "failed",
    "cancelled",
)
"""Phases of events, in the order in which they can follow one another within a step. More may follow."""
FINAL: Final = frozenset({"rejected", "succeeded", "failed", "cancelled"})
"""Phases after which nothing more follows for the uid."""


class JobEvent(Shape, frozen=True, kw_only=True):
    """A change of a job.

    Attempts count from 1; 0 is the verdict on the request. Steps count the recoveries of an attempt; 0 is its first
    placement.
    """

    id: str
    """``<uid>/<attempt>/<step>/<phase>``: the same change always has the same id, however often it is published. It is
    also the header ``Nats-Msg-Id``. If a job goes on waiting for another reason, ``.<sequence>`` follows."""
    namespace: str
    name: str
    uid: str
    attempt: Whole
    step: Whole
    phase: str
    """``accepted``, ``rejected``, ``waiting``, ``recovering``, ``backup``, ``placed``, ``bound``, ``running``,
    ``ending``, ``succeeded``, ``failed`` or ``cancelled``. More may follow."""
    at_ms: Whole
    """Time of the decision or of the fact."""
    final: bool = False
    """Nothing more follows for this uid."""
    sentence: str = ""
    """Why, for people."""
    code: str = ""
    """Code of the refusal, reason of the end (such as ``vanished``) or kind of the fault; empty without."""
    request_seq: Whole = 0
    """Sequence at which the request is stored: ``sequence`` of the reply to its submission. 0 where it is unknown."""
    ranks: list[Rank] = []
    """``placed``: node and chips of every rank that has a place; ``backup``: those of the backup pods, for the ranks
    that have one. Empty otherwise."""
    source: str = ""
    """What the event was derived from: ``ledger`` or ``facts`` ..."""
    sequence: Whole = 0
    """... and the sequence there."""
    trace_id: str = ""
    """Id of the trace of the job, in 32 hexadecimal digits; it follows from the uid. Its spans are sent if the cell has
    a receiver of traces."""


class PositionedEvent(Shape, frozen=True, kw_only=True):
    """An event and its place in the stream of events."""

    position: Whole
    """It rises from event to event; other events, and what is no event, are in between."""
    stored_ms: Whole
    """When it was stored."""
    event: JobEvent


class EventsKept(Shape, frozen=True, kw_only=True):
    """How far the stream of events goes."""

    stream: str
    """Which stream it is: another text after it was made again."""
    first: Whole
    """Oldest position that is kept; ``last`` + 1 if none is."""
    last: Whole
    """Newest position."""


class EventsReply(Reply, frozen=True, kw_only=True):
    """Events of jobs, by position.

    An event that was lost with the end of the stream is stored again, with the same id and another position.
    """

    events: list[PositionedEvent]
    position: Whole
    """What was asked for up to here is in this reply and those before: ``after`` of the next request."""
    mark: str
    """What the stream of events was like: ``mark`` of the next request."""
    more: bool = False
    """More events are stored than the reply takes: ask again at once."""
    kept: EventsKept | None = None
    """How far the stream goes; only with ``limit`` 0."""


def event_id(uid: str, attempt: int, step: int, phase: str, sequence: int = 0) -> str:
    """Id of a change.

    Args:
        uid: Uid of the job.
        attempt: Of the job.
        step: Of the attempt.
        phase: What the job is now.
        sequence: Record from which on it waits for another reason; 0 for the first reason.
    """
    return f"{uid}/{attempt}/{step}/{phase}" + (f".{sequence}" if sequence else "")
