"""``summary`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.services.summary.app import serve
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics

PART: Final = Part(SummaryConfig, SummaryMetrics, serve)
