"""Jobs as a table for people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from berth.cli.jobs.queue_order import JobKey
from berth.cli.jobs.rows import ranks_of
from berth.cli.output import age, listed
from berth.cli.tables import Span, Styled, Table
from berth.core.explain.text import ranges
from berth.schemas.status import JobStatus

STYLES: Final = {
    "waiting": "yellow",
    "placed": "cyan",
    "bound": "cyan",
    "running": "green",
    "ending": "magenta",
    "succeeded": "dim",
    "cancelled": "dim",
    "failed": "red",
    "rejected": "red",
}
_SHARED_MIN: Final = 3
"""So many jobs that wait for the same reason share a row."""


def job_table(
    shown: Iterable[JobStatus],
    places: Mapping[JobKey, int],
    now_ms: int,
    *,
    is_wide: bool = False,
    shares: bool = False,
) -> Table:
    """The table.

    Args:
        shown: The jobs, in order.
        places: Positions of those that wait.
        now_ms: The time.
        is_wide: Add when the phase began, attempt, queue and uid, and name all nodes with their chips.
        shares: Jobs next to one another that wait alike, for the same reason, share a row.
    """
    wide = ("IN PHASE", "ATTEMPT", "QUEUE", "UID") if is_wide else ()
    table = Table("JOB", "PHASE", "POSITION", "PRIORITY", "PODS", "CHIPS", "AGE", *wide, "WHERE, OR WHY NOT")
    for group in _groups(shown, shares=shares):
        first = group[0]
        spots = [place for one in group if (place := places.get((one.namespace, one.name)))]
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        cells: list[Styled] = [
            f"{first.namespace}/{first.name}{more}",
            Span(first.phase, STYLES[first.phase]),
            ranges(spots) or "-",
            str(first.priority),
            str(first.pods),
            str(first.chips),
            _ages([one.submitted_ms for one in group], now_ms),
        ]
        if is_wide:
            cells += [
                age(first.since_ms, now_ms),
                str(first.attempt or "-"),
                first.queue or "-",
                first.uid,
            ]
        table.add_row(*cells, where_or_why(first, names_chips=is_wide))
    return table


def sharing(shown: Iterable[JobStatus]) -> tuple[int, int]:
    """How many rows of the table stand for several jobs, and how many jobs those are."""
    groups = [len(group) for group in _groups(shown, shares=True) if len(group) > 1]
    return len(groups), sum(groups)


def where_or_why(status: JobStatus, *, names_chips: bool = False) -> str:
    """Nodes of a job, or the reason why it waits or has ended; and a warning.

    Args:
        status: Its status.
        names_chips: Name every node, with its chips.
    """
    if status.placement is None:
        where = status.sentence
    elif names_chips:
        chips: dict[str, list[int]] = {}
        for rank in ranks_of(status.placement):
            chips.setdefault(rank.node, []).extend(rank.chips)
        where = ", ".join(f"{node}:{ranges(found)}" if found else node for node, found in chips.items())
    else:
        where = listed(status.placement.names())
    if status.warning:
        where = f"{where or 'no reason'}; warning: {status.warning}"
    return where


def _groups(shown: Iterable[JobStatus], *, shares: bool) -> Iterator[Sequence[JobStatus]]:
    """Jobs of each row."""
    for _, group in groupby(shown, key=_alike):
        found = list(group)
        if shares and found[0].phase == "waiting" and len(found) >= _SHARED_MIN:
            yield found
        else:
            yield from ([one] for one in found)


def _alike(status: JobStatus) -> tuple[object, ...]:
    """What jobs that share a row have in common: all that the row shows besides name, position and age."""
    return (
        *(status.phase, status.namespace, status.priority, status.is_plain, status.pods, status.chips),
        *(status.sentence, status.warning, status.placement is None),
    )


def _ages(times_ms: Sequence[int], now_ms: int) -> str:
    """Ages of one or several jobs; a dash for those whose time is not known."""
    known = [at_ms for at_ms in times_ms if at_ms]
    if not known:
        return "-"
    youngest, oldest = age(max(known), now_ms), age(min(known), now_ms)
    return oldest if youngest == oldest else f"{youngest} to {oldest}"
