"""``python -m berth.services.gateway --config FILE``."""

from berth.runtime.process import main
from berth.services.gateway.app import serve
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.metrics import GatewayMetrics

main("gateway", GatewayConfig, GatewayMetrics, serve)
