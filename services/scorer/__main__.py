"""``python -m berth.services.scorer --config FILE``."""

from berth.runtime.process import main
from berth.services.scorer.app import serve
from berth.services.scorer.config import ScorerConfig
from berth.services.scorer.metrics import ScorerMetrics

main("scorer", ScorerConfig, ScorerMetrics, serve)
