"""Decisions on PodGroups, as the ledger has them: from the newest snapshot, then of each record.

The inventory works on whatever becomes of the ledger: without it nobody would say by which records pods are bound. So
reading begins again after an error, and until then PodGroups stay as they are.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from berth.core.errors import CoreError
from berth.core.state.ledger import dump_of
from berth.runtime.bus.port import Bus
from berth.runtime.errors import ShellError, TransientError
from berth.runtime.feeds import Feed
from berth.runtime.logs import Logger
from berth.runtime.stored_snapshots import newest_snapshot
from berth.schemas.chain import ChainReader, Position, position_of
from berth.schemas.envelope import DecodeError, VersionError, body_of
from berth.schemas.ledger import Admission, Round, Settings
from berth.schemas.subjects import StreamName

_PAUSE_S: Final = 5.0
"""Pause before reading begins again, and between two looks for skips of what was read."""


class Note(Protocol):
    """Takes what was read."""

    def __call__(
        self, decisions: Sequence[Admission], settings: Settings | None = None, *, are_all: bool = False
    ) -> None:
        """Take decisions in their order.

        Args:
            decisions: The decisions.
            settings: Settings of the dispatcher, if they are new.
            are_all: There are no others.
        """


async def follow_decisions(bus: Bus, note: Note, wanted: asyncio.Event, log: Logger) -> None:
    """Read decisions until cancelled, once they are wanted.

    Args:
        bus: The cell.
        note: Called with what was read.
        wanted: Set where queues may be in force; elsewhere nothing is read.
        log: Of the service.
    """
    await wanted.wait()
    while True:
        try:
            await _follow(bus, note, log)
        except (CoreError, DecodeError, ShellError, VersionError) as error:
            log.warning("decisions on PodGroups cannot be read, tried again", reason=str(error))
        await asyncio.sleep(_PAUSE_S)


async def _follow(bus: Bus, note: Note, log: Logger) -> None:
    body = await newest_snapshot(bus, log)
    position, start_seq = Position(), 0
    if body is not None:
        dump = dump_of(body.ledger)
        position, start_seq = position_of(body), body.ledger_seq + 1
        note(dump.admissions, dump.settings, are_all=True)
    else:
        note((), are_all=True)
    arrived = asyncio.Event()
    feed, reader = Feed(arrived), ChainReader(position)
    await feed.start_ledger(bus, await bus.state(StreamName.LEDGER), start_seq=start_seq)
    try:
        while True:
            arrived.clear()
            _read(feed, reader, note)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await arrived.wait()
            if not arrived.is_set():
                with suppress(TransientError):
                    await feed.check_skips(bus)
    finally:
        await feed.stop()


def _read(feed: Feed, reader: ChainReader, note: Note) -> None:
    for stored in feed.take():
        link = reader.read(stored.sequence, stored.data)
        if link.void or link.envelope is None:
            continue
        if link.epoch is not None:
            note((), link.epoch.settings)
        elif decisions := body_of(link.envelope, Round).admissions:
            note(decisions)
