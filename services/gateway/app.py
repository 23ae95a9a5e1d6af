"""Start of the gateway: checks what does not need the libraries of the extra ``gateway``, then loads them.

``serving.py`` has the wiring.
"""

import asyncio
import contextlib

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.release import install_extra
from berth.schemas.subjects import StreamName
from berth.services.gateway.config import GatewayConfig, check
from berth.services.gateway.metrics import GatewayMetrics


async def serve(
    bus: Bus, clock: Clock, config: GatewayConfig, instruments: Instruments[GatewayMetrics], stop: asyncio.Event
) -> None:
    """Answer HTTP requests until ``stop`` is set.

    Raises:
        ConfigError: Settings do not fit together, or the certificate cannot be used.
        FatalError: The address is in use, or the libraries are not installed.
        OlderVersionError: The cell is of a release before 0.5.
    """
    check(config)
    try:
        from berth.services.gateway.serving import serve_http  # noqa: PLC0415  # an extra, for those who run a gateway
    except ImportError as error:
        raise FatalError(f"the gateway needs starlette and uvicorn: {install_extra('gateway')}") from error
    with contextlib.suppress(TransientError):  # the services that make the streams are not there yet
        await bus.check_format(StreamName.LEDGER)
    await serve_http(bus, clock, config, instruments, stop)
