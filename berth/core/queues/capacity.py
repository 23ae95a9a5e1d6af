"""What a cluster has to divide."""

from collections.abc import Iterable

from berth.core.queues.amounts import add, ordered
from berth.schemas.nodes import NodeDescription
from berth.schemas.queues.queue import CHIP, CPU, MEMORY, Amounts


def capacity_of(nodes: Iterable[NodeDescription]) -> Amounts:
    """Chips, cpu and memory of the nodes that are ready, as their source describes them."""
    found: Amounts = {}
    for node in nodes:
        if node.ready:
            chips = {node.resource: node.whole_chips * CHIP} if node.resource else {}
            add(found, {CPU: node.cpu_milli, MEMORY: node.memory_mib} | chips)
    return ordered(found)
