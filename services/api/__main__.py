"""``python -m berth.services.api --config FILE``."""

from berth.runtime.process import main
from berth.services.api.app import serve
from berth.services.api.config import ApiConfig
from berth.services.api.metrics import ApiMetrics

main("api", ApiConfig, ApiMetrics, serve)
