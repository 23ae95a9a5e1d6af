"""``python -m services.inventory --config FILE``."""

from berth.runtime.life import main
from services.inventory.app import serve
from services.inventory.config import InventoryConfig

main("inventory", InventoryConfig, serve)
