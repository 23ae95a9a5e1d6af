"""``python -m berth.lab.nodesim --config FILE``."""

from berth.lab.nodesim.app import serve
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.runtime.process import main

main("nodesim", NodesimConfig, NodesimMetrics, serve)
