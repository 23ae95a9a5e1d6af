"""``inventory`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.services.inventory.app import serve
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics

PART: Final = Part(InventoryConfig, InventoryMetrics, serve)
