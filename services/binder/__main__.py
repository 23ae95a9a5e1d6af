"""``python -m berth.services.binder --config FILE``."""

from berth.runtime.process import main
from berth.services.binder.app import serve
from berth.services.binder.config import BinderConfig

main("binder", BinderConfig, serve)
