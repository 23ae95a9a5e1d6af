"""Jobs as a table for people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from berth.cli.jobs.queue_order import JobKey
from berth.cli.jobs.rows import OVER, ranks_of
from berth.cli.jobs.starts import Start, short_start
from berth.cli.output import age, listed
from berth.cli.tables import Span, Styled, Table
from berth.core.overview.short_reason import reason_key, short_reason
from berth.core.text import pluralize, ranges, span
from berth.schemas.programs.lists import PlaceUse
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
_WHERE: Final = "WHERE, OR WHY NOT"
_ONLY_WIDE: Final = ("PRIORITY", "IN PHASE", "ATTEMPT", "QUEUE", "UID")
_STARTS: Final = ("IN QUEUE", "STARTS")


def job_table(
    shown: Iterable[JobStatus],
    places: Mapping[JobKey, int],
    now_ms: int,
    *,
    is_wide: bool,
    shares: bool = False,
    starts: Mapping[JobKey, Start] | None = None,
) -> Table:
    """The table.

    Args:
        shown: The jobs, in order.
        places: Positions of those that wait.
        now_ms: The time.
        is_wide: Add priority, when the phase began, attempt, queue and uid, and name all nodes with their chips.
        shares: Jobs that wait for the same share a row, at the place of the first.
        starts: Expected starts, which a wide table shows, too; None: it does not.
    """
    if is_wide:
        more_columns = _ONLY_WIDE if starts is None else (*_ONLY_WIDE, *_STARTS)
        table = Table("JOB", "PHASE", "PODS", "CHIPS", "AGE", "POS", *more_columns, _WHERE)
    else:
        table = Table("JOB", "PHASE", "PODS", "CHIPS", "AGE", "POS", _WHERE, short={"JOB": 14, _WHERE: 34})
    for group in _groups(shown, shares=shares):
        first = group[0]
        spots = [place for one in group if (place := places.get((one.namespace, one.name)))]
        more = f" +{len(group) - 1}" if len(group) > 1 else ""
        cells: list[Styled] = [
            f"{first.namespace}/{first.name}{more}",
            Span(first.phase, STYLES[first.phase]),
            span([one.pods for one in group]),
            span([one.chips for one in group]),
            _age([one.submitted_ms for one in group], now_ms),
            span(spots) if spots else "-",
        ]
        if is_wide:
            cells += [
                str(first.priority),
                age(first.since_ms, now_ms),
                str(first.attempt or "-"),
                first.queue or "-",
                first.uid,
                *(_start_cells(first, starts, now_ms) if starts is not None else ()),
                where_or_why(first, names_chips=True),
            ]
        else:
            cells.append(_where_or_why(group))
        table.add_row(*cells)
    return table


def _start_cells(status: JobStatus, starts: Mapping[JobKey, Start], now_ms: int) -> tuple[str, str]:
    """Position in its queue, and expected start."""
    start = starts.get((status.namespace, status.name)) if status.phase == "waiting" else None
    return str(start.queue_position or "-") if start is not None else "-", short_start(start, now_ms)


def totals_line(known: Iterable[JobStatus], use: PlaceUse | None = None) -> str:
    """How many jobs wait and run, and for or on how many chips.

    Args:
        known: The jobs.
        use: Chips of the whole cell, if these are all jobs: ``52 wait for 23,000 chips, 268 run, 21,856 of 22,144 chips
            in use``. None: ``52 wait for 23,000 chips, 268 run on 21,856 chips``.
    """
    waiting = running = wanted = used = 0
    for status in known:
        if status.phase == "waiting":
            waiting, wanted = waiting + 1, wanted + status.chips
        elif status.placement is not None and status.phase not in OVER:
            running, used = running + 1, used + status.chips
    verbs = ("waits" if waiting == 1 else "wait", "runs" if running == 1 else "run")
    in_use = f" on {pluralize(used, 'chip')}"
    if use is not None:
        in_use = f", {use.used:,} of {pluralize(use.chips, 'chip')} in use"
    return f"{waiting:,} {verbs[0]} for {pluralize(wanted, 'chip')}, {running:,} {verbs[1]}{in_use}"


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


def _where_or_why(group: Sequence[JobStatus]) -> str:
    """As :func:`where_or_why`, in the words of a list."""
    first = group[0]
    if first.placement is not None:
        return where_or_why(first)
    warning = f"warning: {first.warning}; " if first.warning else ""
    return f"{warning}{short_reason(group)}"


def _groups(shown: Iterable[JobStatus], *, shares: bool) -> Iterator[Sequence[JobStatus]]:
    """Jobs of each row."""
    groups: dict[object, list[JobStatus]] = {}
    for status in shown:
        alike = shares and status.phase == "waiting" and status.placement is None
        groups.setdefault(_alike(status) if alike else status.uid, []).append(status)
    for group in groups.values():
        if len(group) >= _SHARED_MIN:
            yield group
        else:
            yield from ([one] for one in group)


def _alike(status: JobStatus) -> tuple[object, ...]:
    """What jobs that share a row have in common."""
    return (status.namespace, status.is_plain, status.warning, *reason_key(status))


def _age(times_ms: Sequence[int], now_ms: int) -> str:
    """Age of the oldest job, such as ``47m``; a dash if it is not known."""
    known = [at_ms for at_ms in times_ms if at_ms]
    return age(min(known), now_ms).replace(" min", "m").replace(" ", "") if known else "-"
