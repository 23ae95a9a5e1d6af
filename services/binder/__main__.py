"""``python -m services.binder --config FILE``."""

from berth.runtime.life import main
from services.binder.app import serve
from services.binder.config import BinderConfig

main("binder", BinderConfig, serve)
