"""``python -m services.dispatcher --config FILE``."""

from berth.runtime.life import main
from services.dispatcher.app import serve
from services.dispatcher.config import DispatcherConfig

main("dispatcher", DispatcherConfig, serve)
