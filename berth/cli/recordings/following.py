"""``berth record --follow``: a recording that grows with its cell."""

import asyncio
import signal
from pathlib import Path

from berth.cli.cell import Common, connected
from berth.cli.output import CommandError, emit, print_result
from berth.cli.recordings.errors import complaints_of
from berth.core.text import pluralize
from berth.runtime.backups.follower import ContinuousRecording
from berth.runtime.clock import SystemClock


async def follow_cell(file: Path, options: Common) -> None:
    """Write the history of a cell to a file until SIGINT or SIGTERM; then end the file.

    Raises:
        CommandError: The file cannot be written or continued.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with connected(options) as bus:
        recording = ContinuousRecording(bus, SystemClock(), file)
        try:
            with complaints_of(file):
                end = await recording.run(stop)
        except OSError as error:
            raise CommandError(f"{file} cannot be written: {error.strerror or error}") from error
    if options.json:
        emit(end)
    else:
        print_result(
            f"{file}: {pluralize(end.facts, 'fact')} up to {end.facts_seq}, {pluralize(end.records, 'record')} up to {end.ledger_seq}"
        )
