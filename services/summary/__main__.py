"""``python -m berth.services.summary --config FILE``."""

from berth.runtime.process import main
from berth.services.summary.app import serve
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics

main("summary", SummaryConfig, SummaryMetrics, serve)
