"""What happened to jobs before a picture, and how many chips they had, from their stored events."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from berth.schemas.page.hour import HourEvent
from berth.schemas.programs.events import JobEvent

_TOLD: Final = frozenset({"placed", "succeeded", "failed", "cancelled", "rejected"})
_HELD: Final = frozenset({"bound", "running", "ending", "recovering", "backup"})


class Step(NamedTuple):
    """By how much chips in use and waiting jobs changed at a moment."""

    at_ms: int
    used: int
    waiting: int


class PastHour(NamedTuple):
    """What events say.

    Attributes:
        begin_ms: Since when they say it.
        steps: Changes of the amounts, ascending.
        events: What happened, ascending.
    """

    begin_ms: int
    steps: list[Step]
    events: list[HourEvent]


def past_hour(events: Iterable[JobEvent], chips_of: Mapping[str, int], begin_ms: int, end_ms: int) -> PastHour:
    """What happened before a picture.

    A job whose first event in the time says that it ended had its chips before. Its chips are those that it
    still has in the picture, or those of its placement; if neither is known, the time begins after it.

    Args:
        events: Those that are stored, in their order.
        chips_of: Chips of jobs by uid.
        begin_ms: Older ones are left out.
        end_ms: Time of the picture: later ones are left out.
    """
    chips = dict(chips_of)
    stages: dict[str, str] = {}
    steps: list[Step] = []
    told: list[HourEvent] = []
    for event in sorted((one for one in events if begin_ms <= one.at_ms <= end_ms), key=_at):
        if event.phase == "placed" and event.ranks and not event.step:
            chips.setdefault(event.uid, sum(len(rank.chips) for rank in event.ranks))
        before = stages.get(event.uid) or _stage_before(event)
        now = stages[event.uid] = _stage_after(event, before)
        is_new_wait = now == "waiting" and before != "waiting"
        if event.phase in _TOLD or is_new_wait:
            told.append(_told(event, "waiting" if is_new_wait else event.phase))
        used, waiting = (now == "held") - (before == "held"), (now == "waiting") - (before == "waiting")
        if used and event.uid not in chips:
            begin_ms = event.at_ms
            steps.clear()
        elif used or waiting:
            steps.append(Step(event.at_ms, used * chips.get(event.uid, 0), waiting))
    return PastHour(begin_ms, steps, told)


def _stage_before(event: JobEvent) -> str:
    """What a job was before the first event that is known of it: ``none``, ``waiting`` or ``held``."""
    if event.phase in {"accepted", "rejected"}:
        return "none"
    if event.phase == "waiting":  # a further reason has a number in its id, a further attempt had chips
        return "held" if event.attempt > 1 and event.id.endswith("/waiting") else "waiting"
    if event.phase == "placed":
        return "held" if event.step else "waiting"
    if event.phase == "cancelled" and event.source == "facts":
        return "waiting"
    return "waiting" if event.phase == "failed" and event.sentence else "held"


def _stage_after(event: JobEvent, before: str) -> str:
    if event.phase in {"accepted", "waiting"}:
        return "waiting"
    if event.phase == "placed" or event.phase in _HELD:
        return "held"
    return "none" if event.final else before


def _told(event: JobEvent, what: str) -> HourEvent:
    words = event.sentence if what in {"failed", "rejected", "waiting"} else ""
    return HourEvent(at_ms=event.at_ms, what=what, namespace=event.namespace, name=event.name, sentence=words)


def _at(event: JobEvent) -> int:
    return event.at_ms
