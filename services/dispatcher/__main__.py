"""``python -m berth.services.dispatcher --config FILE``."""

from berth.runtime.process import main
from berth.services.dispatcher.app import serve
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics

main("dispatcher", DispatcherConfig, DispatcherMetrics, serve)
