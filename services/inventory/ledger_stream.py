"""The stream in which the ledger is: the inventory follows nothing of it, and looks whether it is still the same."""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.runtime.bus.port import Bus
from berth.runtime.errors import TransientError
from berth.schemas.subjects import StreamName

_LOOK_S: Final = 5.0
"""Pause between two looks."""


async def watch_ledger(bus: Bus, note: Callable[[str], None]) -> None:
    """Note the id of the ledger's stream again and again, until it is cancelled; while it is away, the last one counts.

    Args:
        bus: The cell.
        note: Called with the id.
    """
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            note((await bus.state(StreamName.LEDGER)).created)
        except TransientError:
            continue
