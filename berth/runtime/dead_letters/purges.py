"""Purge of dead letters: their content is removed.

A letter is overwritten and not deleted: a dispatcher that starts reads the last requests again, and would write a
letter that is gone once more. What is left of it goes with its age.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.letters import Letter
from berth.schemas.envelope import encode
from berth.schemas.status import Purge
from berth.schemas.subjects import StreamName

_BATCH: Final = 1_000


async def purge(bus: Bus, clock: Clock, letters: Sequence[Letter], *, by: str) -> None:
    """Remove the content of dead letters; those that are purged already stay as they are.

    Args:
        bus: The cell.
        clock: For the time in the letters.
        letters: Which ones.
        by: Name of this process.

    Raises:
        TransientError: The bus did not answer; some of them may be purged.
    """
    mark = Purge(clock.now_ms(), by)
    open_ones = [one.body for one in letters if one.body.purge is None]
    for start in range(0, len(open_ones), _BATCH):
        sent = []
        for body in open_ones[start : start + _BATCH]:
            left = msgspec.structs.replace(body, data=b"", headers={}, purge=mark)
            subject = bus.subjects.dead(StreamName(body.stream), body.sequence)
            sent.append(await bus.submit_wait(subject, encode(left)))
        for future in sent:
            await future
