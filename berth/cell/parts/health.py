"""``health`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.services.health.app import serve
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics

PART: Final = Part(HealthConfig, HealthMetrics, serve)
