"""What is expected of a job that waits: its place, when it starts, and what holds the place; and in words."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from berth.core.queues.refusals import text_of
from berth.core.text import pluralize
from berth.schemas.programs.expected import EndingJob, Victims
from berth.schemas.refusal import QueueRefusal

ExpectedCode = Literal["", "not-before", "no-end", "no-room", "queue", "behind", "too-many-tasks", "held", "paused"]
"""Why there is no expected start; empty if there is one."""
NAMED_MAX: Final = 3
"""Most jobs that are named of those whose end gives the place."""
BEHIND_MAX: Final = 64
"""Jobs of a lane whose starts are looked for, in their order."""

_WITHOUT: Final[dict[ExpectedCode, str]] = {
    "no-room": "none, as it would find no room if all jobs that run had ended",
    "too-many-tasks": "unknown, as its tasks are too many to be planned ahead",
    "held": "none, as it is held",
    "paused": "unknown, as it pauses after a try",
}
"""What is said of jobs without a start where there is no more to say."""


class ExpectedStart(msgspec.Struct, frozen=True):
    """What is expected of a job that waits, as of a state of the cell."""

    namespace: str
    name: str
    uid: str
    queue: str
    """The queue that its request names."""
    position: int = 0
    """Among all jobs with chips that wait, or all without, from 1 on; 0 for one that is held or pauses."""
    chips_ahead: int = 0
    """Chips that those before it wait for."""
    queue_position: int = 0
    """Among those of its queue."""
    queue_chips_ahead: int = 0
    earliest_ms: int = 0
    """When it starts with run times at their 20th percentile; 0 without an answer."""
    latest_ms: int = 0
    """When it starts with run times at their 80th percentile; 0 if nobody knows."""
    not_before_ms: int = 0
    """It starts no earlier: jobs so far behind have no other answer; 0 for the others."""
    code: ExpectedCode = ""
    ahead: str = ""
    """Job (``namespace/name``) because of which there is no answer, or no latest moment; empty without one."""
    held_by: list[str] = []
    """Jobs whose end gives it the place, the last one first; at most :data:`NAMED_MAX`."""
    held_by_more: int = 0
    """How many more there are."""
    limit: QueueRefusal | None = None
    """What its queue says of it now; None if it lets it in."""
    victims: Victims | None = None
    """Which jobs would end for it; None if nobody asked, or without preemption."""


def as_of(expected: ExpectedStart, now_ms: int) -> ExpectedStart:
    """The same at a later moment: no start is in the past."""
    return msgspec.structs.replace(
        expected,
        earliest_ms=max(expected.earliest_ms, now_ms) if expected.earliest_ms else 0,
        latest_ms=max(expected.latest_ms, now_ms) if expected.latest_ms else 0,
        not_before_ms=max(expected.not_before_ms, now_ms) if expected.not_before_ms else 0,
    )


def sentences(expected: ExpectedStart, clock: Callable[[int], str], *, at_ms: int) -> list[str]:
    """What is expected in sentences, each with its full stop.

    Args:
        expected: Of a job.
        clock: Formats a moment.
        at_ms: The moment of the state.
    """
    found = [f"Expected start: {start_words(expected, clock, at_ms=at_ms)}."]
    if expected.position:
        found.append(_place_words(expected))
    if expected.held_by:
        names = ", ".join(expected.held_by)
        more = f" and {expected.held_by_more} more" if expected.held_by_more else ""
        found.append(f"It gets its place when {names}{more} {'has' if len(expected.held_by) == 1 else 'have'} ended.")
    if expected.limit is not None and expected.code != "queue":
        found.append(f"Until then its queue does not let it in: {text_of(expected.limit)}.")
    if expected.victims is not None:
        found.append(_victims_words(expected.victims))
    return found


def start_words(expected: ExpectedStart, clock: Callable[[int], str], *, at_ms: int) -> str:
    """When a job is expected to start, or why nobody knows, without a full stop."""
    words = _WITHOUT.get(expected.code)
    if words is not None:
        return words
    if expected.code == "not-before":
        return f"not before {clock(expected.not_before_ms)}, for {BEHIND_MAX} jobs and more are ahead of it"
    if expected.code == "no-end":
        return f"unknown, as it needs the place of {_unknown_end(expected.ahead)}"
    if expected.code == "queue" and expected.limit is not None:
        return f"none, as its queue does not let it in: {text_of(expected.limit)}"
    if expected.code == "behind":
        return f"unknown, as it waits behind {expected.ahead}, whose start is unknown"
    return _range_words(expected, clock, at_ms)


def _range_words(expected: ExpectedStart, clock: Callable[[int], str], at_ms: int) -> str:
    first = "now" if expected.earliest_ms <= at_ms else clock(expected.earliest_ms)
    if not expected.latest_ms:
        return f"{first} at the earliest; the latest is unknown because of {_unknown_end(expected.ahead)}"
    if expected.latest_ms <= max(at_ms, expected.earliest_ms):
        return first
    return f"between {first} and {clock(expected.latest_ms)}"


def _unknown_end(job: str) -> str:
    who = job or "a job"
    return f"{who}, which declares no end, or has run longer than it or its like"


def _place_words(expected: ExpectedStart) -> str:
    jobs, queue_jobs = expected.position - 1, expected.queue_position - 1
    words = f"Position {expected.position:,}"
    if jobs:
        words += f", behind {pluralize(jobs, 'job')} that {'waits' if jobs == 1 else 'wait'} for "
        words += pluralize(expected.chips_ahead, "chip")
    words += f"; position {expected.queue_position:,} in queue {expected.queue}"
    if queue_jobs and queue_jobs != jobs:
        words += f", behind {pluralize(queue_jobs, 'job')} that {'waits' if queue_jobs == 1 else 'wait'} for "
        words += pluralize(expected.queue_chips_ahead, "chip")
    return f"{words}."


def _ending_words(one: EndingJob) -> str:
    part = f"{pluralize(one.pods, 'pod')} of " if one.pods else ""
    return f"{part}{one.job} ({pluralize(one.chips, 'chip')}, priority {one.priority})"


def _victims_words(victims: Victims) -> str:
    place = f"in one {victims.place}" if victims.place else ""
    match victims.code:
        case "not-needed":
            return "No job has to end for it."
        case "never":
            return "No job ends for it: its PriorityClass has preemptionPolicy Never, or its queue lets nobody in."
        case "evictions-exhausted":
            times = pluralize(victims.times, "time")
            return f"The jobs that may end for it have ended for others {times} in the last hour."
        case "preempt":
            if not victims.candidates:
                return "No job may end for it."
            number = victims.candidates
            hold = f"{pluralize(number, 'job')} may end for it and {'hold' if number > 1 else 'holds'}"
            room = f"makes room {place}".rstrip()
            return f"{hold} {pluralize(victims.chips, 'chip')}, but no set of them {room}."
        case _:
            named = [_ending_words(one) for one in victims.jobs]
            more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
            where = f"on {victims.place} {victims.where}" if victims.where else "in their place"
            jobs = ", ".join(named[:NAMED_MAX])
            return f"By preemption {jobs}{more} would end for it, and it would start {where}."
