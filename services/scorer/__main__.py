"""``python -m services.scorer --config FILE``."""

from berth.runtime.life import main
from services.scorer.app import serve
from services.scorer.config import ScorerConfig

main("scorer", ScorerConfig, serve)
