"""``berth streams``: makes the streams of a cell where the services have no right to, and lists them."""

from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.durations import option_ms
from berth.cli.output import FAILED, WRONG_USE, CommandError, emit, print_result, print_table
from berth.cli.tables import Table
from berth.core.text import pluralize
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import bus_from_environment
from berth.schemas.subjects import StreamName

_SECOND_MS: Final = 1000


class StreamRow(msgspec.Struct, frozen=True):
    """A stream, as ``--json`` prints it."""

    name: str
    exists: bool
    messages: int = 0
    last_seq: int = 0
    replicas: int = 0


def apply(
    *,
    replicas: Annotated[int, Parameter(show_default=False)] = 0,
    events_kept: Annotated[str, Parameter(show_default=False)] = "",
    common: Common | None = None,
) -> int:
    """Make the streams of a cell, and correct their settings: at its installation, and with a new release.

    What is stored stays. Services wait for the streams where their setting bus.makes_streams is false.

    Args:
        replicas: Replicas of each stream, 1 or 3; 3 needs a cluster of at least three servers. Default:
            $BERTH_BUS__REPLICAS, or 1.
        events_kept: How long events are kept, such as 7d. Default: as it is, and 7d for a new stream.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if replicas not in {0, 1, 3}:
            raise CommandError(f"--replicas is {replicas}, expected 1 or 3", code=WRONG_USE)
        count = replicas or bus_from_environment(options.address).replicas
        ages = {StreamName.EVENTS: option_ms("--events-kept", events_kept) // _SECOND_MS} if events_kept else None
        async with connected(options, needs_cell=False) as bus:
            await bus.ensure_streams(replicas=count, max_age_s=ages)
            return _show(await _rows(bus), options)

    return run(work)


def list_streams(*, common: Common | None = None) -> int:
    """List the streams of a cell, and which are missing.

    Args:
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        async with connected(options, needs_cell=False) as bus:
            return _show(await _rows(bus), options)

    return run(work)


async def _rows(bus: NatsBus) -> list[StreamRow]:
    rows = []
    for name in StreamName:
        row = StreamRow(name=name.value, exists=False)
        if (found := await bus.keeping(name)) is not None:
            state = found.state
            row = StreamRow(
                row.name, exists=True, messages=state.messages, last_seq=state.last_seq, replicas=found.replicas
            )
        rows.append(row)
    return rows


def _show(rows: list[StreamRow], options: Common) -> int:
    """Print the streams; returns the exit code."""
    missing = [row.name for row in rows if not row.exists]
    if options.json:
        emit(rows)
    else:
        table = Table("STREAM", "MESSAGES", "LAST", "REPLICAS")
        for row in rows:
            about = (str(row.messages), str(row.last_seq), str(row.replicas)) if row.exists else ("missing", "", "")
            table.add_row(row.name, *about)
        print_table(table)
        print_result(f"{pluralize(len(rows) - len(missing), 'stream')} of cell {options.cell}, {len(missing)} missing")
    return FAILED if missing else 0
