"""What the processes of a cell answer."""

from collections.abc import Callable

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.process_stats import ProcessStats
from tests.support.waiting import until_true


async def answers(
    bus: NatsBus, is_enough: Callable[[list[ProcessStats]], bool], *, deadline_s: float, what: str
) -> list[ProcessStats]:
    """Ask until enough answer: on a busy machine one may answer too late to count."""
    found: list[ProcessStats] = []

    async def are_there() -> bool:
        nonlocal found
        found = await bus.processes()
        return is_enough(found)

    await until_true(are_there, deadline_s=deadline_s, what=what)
    return found
