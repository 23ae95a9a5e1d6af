"""``python -m berth.services.nodesim --config FILE``."""

from berth.runtime.process import main
from berth.services.nodesim.app import serve
from berth.services.nodesim.config import NodesimConfig
from berth.services.nodesim.metrics import NodesimMetrics

main("nodesim", NodesimConfig, NodesimMetrics, serve)
