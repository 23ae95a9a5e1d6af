"""``python -m services.nodesim --config FILE``."""

from berth.runtime.life import main
from services.nodesim.app import serve
from services.nodesim.config import NodesimConfig

main("nodesim", NodesimConfig, serve)
