"""How long the bystander waits while a tenant does harm, against tenants that behave well in the same run."""

import asyncio
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

from berth.runtime.clock import SystemClock
from tests.hostile.loads import C, Load, Send, drive
from tests.support.waiting import pause

RATIO_MAX: Final = 3.0
"""Most that the median may be, in medians beside tenants that behave well."""
LARGEST_S: Final = 1.0
"""Most that any job may take, or that ratio of the largest beside tenants that behave well: those share the machine."""
_SOON_S: Final = 0.2
"""From the first request of a load to the first job of the bystander."""
_APART_S: Final = 0.05
"""From the place of one of its jobs to the next job."""


class Beside(NamedTuple):
    """What the bystander sees beside a load.

    Attributes:
        sent: Requests of the load.
        took_s: Seconds of each job.
    """

    sent: int
    took_s: Sequence[float]


class Compared(NamedTuple):
    """The bystander beside tenants that behave well, and beside one that does not."""

    load: str
    decent: Beside
    hostile: Beside

    @property
    def faults(self) -> list[str]:
        """What is above its bound."""
        found: list[str] = []
        usual_s, now_s = median(self.decent.took_s), median(self.hostile.took_s)
        if now_s > RATIO_MAX * usual_s:
            found.append(f"median {now_s:.3f} s is more than {RATIO_MAX:g} times {usual_s:.3f} s")
        bound_s = max(LARGEST_S, RATIO_MAX * max(self.decent.took_s))
        if max(self.hostile.took_s) > bound_s:
            found.append(f"largest {max(self.hostile.took_s):.3f} s is more than {bound_s:.3f} s")
        return found

    @property
    def line(self) -> str:
        """The figures in one line."""
        words = [
            f"{what}: {beside.sent} requests, median {median(beside.took_s) * 1000:.0f} ms, largest"
            f" {max(beside.took_s) * 1000:.0f} ms"
            for what, beside in (("decent", self.decent), ("hostile", self.hostile))
        ]
        return f"{self.load}; {'; '.join(words)}"


async def beside(cell: C, send: Send[C], *, per_s: float, seconds: float, first: int) -> Beside:
    """Place jobs of the bystander one after the other while requests are sent.

    Args:
        cell: The cell.
        send: Sends one request.
        per_s: Requests in a second.
        seconds: How long the bystander submits jobs.
        first: Number of the first request.
    """
    stop, clock = asyncio.Event(), SystemClock()
    took_s: list[float] = []

    async def numbered(cell: C, number: int) -> None:
        await send(cell, first + number)

    async with asyncio.TaskGroup() as group:
        load = group.create_task(drive(cell, numbered, per_s=per_s, stop=stop))
        try:
            await pause(_SOON_S)
            end_s = clock.monotonic_s() + seconds
            while not took_s or clock.monotonic_s() < end_s:
                took_s.append(await cell.place_one())
                await pause(_APART_S)
        finally:
            stop.set()
    return Beside(load.result(), took_s)


async def compare(cell: C, load: Load[C], *, seconds: float, first: int = 0) -> Compared:
    """The bystander beside both halves of a load; those that behave well come first, with an empty cell."""
    decent = await beside(cell, load.decent, per_s=load.per_s, seconds=seconds, first=first)
    hostile = await beside(cell, load.hostile, per_s=load.per_s, seconds=seconds, first=first)
    cell.check_whole()
    return Compared(load.name, decent, hostile)


def merged(parts: Iterable[Compared]) -> Compared:
    """All figures of one load together."""
    found = list(parts)
    sides = [
        Beside(sum(one.sent for one in side), [took_s for one in side for took_s in one.took_s])
        for side in ([one.decent for one in found], [one.hostile for one in found])
    ]
    return Compared(found[0].load, *sides)
