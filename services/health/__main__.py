"""``python -m berth.services.health --config FILE``."""

from berth.runtime.process import main
from berth.services.health.app import serve
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics

main("health", HealthConfig, HealthMetrics, serve)
