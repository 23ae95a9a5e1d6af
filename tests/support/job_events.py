"""Events of jobs that a history gives."""

from collections.abc import Iterable

from berth.core.events.job_events import JobEvents
from berth.core.state.cell import State
from berth.schemas.programs.events import JobEvent
from berth.schemas.recording import Entry


def events_of(entries: Iterable[Entry], state: State | None = None) -> list[JobEvent]:
    """Events of entries in their order, the first of each id.

    Args:
        entries: Facts and records.
        state: State before them; None for an empty one.
    """
    state = state or State(keeps=True)
    source = JobEvents(state)
    found: dict[str, JobEvent] = {}
    for entry in entries:
        if entry.subject:
            applied, events = source.apply_fact(entry.subject, entry.sequence, entry.data)
            assert not applied.error
        else:
            _, events = source.apply_link(state.fold.link(entry.sequence, entry.data))
        for event in events:
            found.setdefault(event.id, event)
    return list(found.values())
