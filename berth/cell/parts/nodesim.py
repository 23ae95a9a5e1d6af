"""``nodesim`` as a part of a cell."""

from typing import Final

from berth.cell.part import Part
from berth.services.nodesim.app import serve
from berth.services.nodesim.config import NodesimConfig
from berth.services.nodesim.metrics import NodesimMetrics

PART: Final = Part(NodesimConfig, NodesimMetrics, serve)
