"""``binder`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.services.binder.app import serve
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics

PART: Final = Part(BinderConfig, BinderMetrics, serve)
