"""``python -m berth.services.nodesim --config FILE``."""

from berth.runtime.process import main
from berth.services.nodesim.app import serve
from berth.services.nodesim.config import NodesimConfig

main("nodesim", NodesimConfig, serve)
