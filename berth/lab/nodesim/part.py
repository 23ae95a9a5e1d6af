"""``nodesim`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.lab.nodesim.app import serve
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.metrics import NodesimMetrics

PART: Final = Part(NodesimConfig, NodesimMetrics, serve)
