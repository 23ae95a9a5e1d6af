"""Outcomes of attempts that last, stored again before the server forgets them.

The server removes an outcome ``Subjects.gone_s`` after it was stored: nothing says when nobody needs it any more. While
its attempt holds chips it is stored again in time, also after a pause of the binder.
"""

import asyncio
from typing import Final

import msgspec

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.logs import Logger
from berth.runtime.waits import pause
from berth.schemas.envelope import encode
from berth.services.binder.loop import Loop

_LOOKS: Final = 8
"""How often outcomes are looked at within the time for which they are kept."""
_MS: Final = 1000


async def renew_outcomes(bus: Bus, clock: Clock, loop: Loop, log: Logger, stop: asyncio.Event) -> None:
    """Store outcomes of live attempts again when half of their time is over, until ``stop`` is set."""
    while True:
        await renew_due(bus, clock, loop, log)
        if await pause(stop, bus.subjects.gone_s / _LOOKS):
            return


async def renew_due(bus: Bus, clock: Clock, loop: Loop, log: Logger) -> int:
    """Store the outcomes that are due; returns their number. Those that cannot be stored are due again later.

    Attempts at which the binder works are left out: their next outcome is on its way.
    """
    work = loop.work
    before_ms = clock.now_ms() - bus.subjects.gone_s * _MS // 2
    count = 0
    for attempt in list(work.attempts.values()):
        outcome = work.outcome_of(attempt)
        if outcome is None or outcome.at_ms > before_ms or loop.is_busy(attempt.key):
            continue
        newer = msgspec.structs.replace(outcome, at_ms=clock.now_ms())
        subject = bus.subjects.fact_outcome(attempt.namespace, attempt.name)
        try:
            await bus.publish(subject, encode(newer), ttl_s=bus.subjects.gone_s)
        except (TransientError, PoisonError) as error:
            log.warning("outcome not stored again, retrying later", subject=subject, reason=error.reason)
            return count
        if work.outcome_of(attempt) is outcome:  # no newer one was stored meanwhile
            work.apply_outcome(newer)
        count += 1
    return count
