"""``berth jobs --watch``: the list as it changes, drawn again on a terminal, a line per change elsewhere."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from berth.cli.jobs.goals import job_line
from berth.cli.jobs.job_table import job_table, totals_line
from berth.cli.jobs.job_view import Output, View, is_drawn, notes_of
from berth.cli.jobs.queue_order import JobKey, positions
from berth.cli.jobs.rows import row_of
from berth.cli.link import link_lines
from berth.cli.output import (
    CommandError,
    emit,
    line_width,
    moment,
    print_result,
    print_table,
    results,
)
from berth.cli.tables import text_of, wrapped
from berth.core.text import pluralize
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import DecodeError
from berth.schemas.status import JobStatus, stored_status
from berth.schemas.subjects import StreamName

if TYPE_CHECKING:
    from rich.text import Text

_AGES_S: Final = 1.0
"""The screen is drawn again after so long, for the ages."""
_DRAW_S: Final = 0.2
"""And at most this often."""


async def watch_jobs(bus: Bus, view: View, form: Output) -> None:
    """Show jobs as they change, until it is cancelled.

    Args:
        bus: The cell.
        view: Which jobs, in which order.
        form: text, wide or json.

    Raises:
        CommandError: The stream of statuses was made anew.
    """
    statuses = _Statuses()
    follower = bus.follow(StreamName.STATUS, on_message=statuses.take, on_gap=statuses.end)
    try:
        await follower.caught_up.wait()
        if is_drawn(form):
            await _draw(statuses, bus, view, is_wide=form == "wide")
        else:
            await _tell(statuses, view, form)
    finally:
        await follower.stop()


class _Statuses:
    """The newest status of each job, and those that came since they were last taken."""

    def __init__(self) -> None:
        self.known: dict[JobKey, JobStatus] = {}
        self._changed: dict[JobKey, None] = {}
        self._arrived = asyncio.Event()
        self._gap: Gap | None = None

    def take(self, stored: Stored) -> None:
        """Note a stored status."""
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError:
            return
        key = (status.namespace, status.name)
        self.known[key] = status
        self._changed[key] = None
        self._arrived.set()

    def end(self, gap: Gap) -> None:
        """Note that there will be no more."""
        self._gap = gap
        self._arrived.set()

    async def changed(self, timeout_s: float | None) -> list[JobStatus]:
        """Statuses that came since the last call; none after the timeout.

        Raises:
            CommandError: The stream was made anew.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return []
        if self._gap is not None:
            raise CommandError(f"{self._gap.stream}: {self._gap.reason.value}")
        self._arrived.clear()
        keys, self._changed = self._changed, {}
        return [self.known[key] for key in keys]


async def _draw(statuses: _Statuses, bus: Bus, view: View, *, is_wide: bool) -> None:
    """Draw the table on the whole screen, and again when a job changes."""
    from rich.console import Group  # noqa: PLC0415  # takes time that a list does not need
    from rich.live import Live  # noqa: PLC0415  # as above

    console = results()
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            lines = screen_lines(
                statuses.known, view, line_width(console), console.height, is_wide=is_wide, notes=link_lines(bus)
            )
            live.update(Group(*lines), refresh=True)
            await asyncio.sleep(_DRAW_S)
            await statuses.changed(_AGES_S)


def screen_lines(
    known: dict[JobKey, JobStatus],
    view: View,
    width: int | None,
    height: int,
    *,
    is_wide: bool = False,
    notes: Sequence[str] = (),
) -> list["Text"]:
    """The lines of a screen: the table, and what is left out of it.

    Args:
        known: All jobs.
        view: Which jobs, in which order.
        width: Cells of a line.
        height: Lines of the screen.
        is_wide: More columns, and a row for each job.
        notes: Further lines, at the end.
    """
    every = list(known.values())
    shown, hidden = view.of(every)
    shares = not is_wide
    now_ms = SystemClock().now_ms()
    lines = job_table(shown, positions(every), now_ms, is_wide=is_wide, shares=shares).lines(width) if shown else []
    below = [
        line
        for note in [
            *([totals_line(shown)] if shown else []),
            *notes_of(shown, hidden, len(every), shares=shares),
            *notes,
        ]
        for line in wrapped(text_of(note), width)
    ]
    room = max(height - len(below), 2)
    if len(lines) > room:
        left = len(lines) - room + 1
        lines[room - 1 :] = [text_of(f"... {pluralize(left, 'line')} more; narrow the list with --filter")]
    return lines + below


async def _tell(statuses: _Statuses, view: View, form: Output) -> None:
    """Print the list, then each change of a job of it on a line."""
    told: dict[JobKey, str] = {}
    await statuses.changed(0)
    shown, _ = view.of(list(statuses.known.values()))
    places = positions(statuses.known.values())
    for status in shown:
        told[status.namespace, status.name] = job_line(status)
        if form == "json":
            emit(row_of(status, places.get((status.namespace, status.name), 0)))
    if form != "json" and shown:
        print_table(job_table(shown, places, SystemClock().now_ms(), is_wide=form == "wide"))
    while True:
        changed = await statuses.changed(None)
        places = positions(statuses.known.values())
        matching = {(status.namespace, status.name) for status in view.of(changed)[0]}
        for status in changed:
            key = (status.namespace, status.name)
            words = job_line(status)
            if (key not in matching and key not in told) or told.get(key) == words:
                continue
            told[key] = words
            if key not in matching:
                del told[key]  # it has left the list with this line
            if form == "json":
                emit(row_of(status, places.get(key, 0)))
            else:
                print_result(f"{moment(status.at_ms)}  {words}")
