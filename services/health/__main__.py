"""``python -m services.health --config FILE``."""

from berth.runtime.life import main
from services.health.app import serve
from services.health.config import HealthConfig

main("health", HealthConfig, serve)
