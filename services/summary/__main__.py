"""``python -m services.summary --config FILE``."""

from berth.runtime.life import main
from services.summary.app import serve
from services.summary.config import SummaryConfig

main("summary", SummaryConfig, serve)
