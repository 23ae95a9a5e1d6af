"""``python -m berth.services.scorer --config FILE``."""

from berth.runtime.process import main
from berth.services.scorer.app import serve
from berth.services.scorer.config import ScorerConfig

main("scorer", ScorerConfig, serve)
