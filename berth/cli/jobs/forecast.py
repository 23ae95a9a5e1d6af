"""A forecast of a cell that a command makes itself."""

from berth.core.expected.forecast import Forecast
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now


async def forecast_now(bus: Bus) -> Forecast:
    """Expected starts as of the end of what is stored, which is read for it."""
    clock = SystemClock()
    return Forecast(await state_now(bus, clock), clock.now_ms())
