"""``python -m berth.services.binder --config FILE``."""

from berth.runtime.process import main
from berth.services.binder.app import serve
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics

main("binder", BinderConfig, BinderMetrics, serve)
