"""``python -m berth.services.inventory --config FILE``."""

from berth.runtime.process import main
from berth.services.inventory.app import serve
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics

main("inventory", InventoryConfig, InventoryMetrics, serve)
