"""``gateway`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.services.gateway.app import serve
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.metrics import GatewayMetrics

PART: Final = Part(GatewayConfig, GatewayMetrics, serve)
