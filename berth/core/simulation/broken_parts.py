"""Parts of a simulated cluster that are broken at the moment."""

from collections.abc import Sequence

from berth.core.simulation.failures import BreakableNode, Failure
from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.nodes import NodeCondition


class BrokenParts:
    """Which chips, nodes and leaf switches are broken.

    Args:
        nodes: The cluster.
    """

    def __init__(self, nodes: Sequence[BreakableNode]) -> None:
        self._leaf_of = {node.name: node.leaf for node in nodes}
        self._below: dict[str, list[str]] = {}
        for node in sorted(nodes):
            self._below.setdefault(node.leaf, []).append(node.name)
        self._chips: dict[str, int] = {}
        """Mask of the broken chip of each node that has one."""
        self._down: dict[tuple[str, str], None] = {}
        """Broken nodes and leaf switches, by kind and name."""

    def __bool__(self) -> bool:
        return bool(self._chips or self._down)

    def add(self, failure: Failure) -> None:
        """A part breaks that was sound."""
        if failure.part == "chip":
            self._chips[failure.name] = failure.chips
        else:
            self._down[failure.part, failure.name] = None

    def remove(self, failure: Failure) -> None:
        """A part is repaired."""
        if failure.part == "chip":
            del self._chips[failure.name]
        else:
            del self._down[failure.part, failure.name]

    def nodes_of(self, failure: Failure) -> list[str]:
        """Names of the nodes on which a failure has an effect, sorted."""
        return self._below[failure.name] if failure.part == "leaf" else [failure.name]

    def hits(self, node: str, chips: int) -> bool:
        """Whether one of some chips (mask) of a node is broken, or all of the node is."""
        return self._is_down(node) or bool(chips & self._chips.get(node, 0))

    def condition(self, node: str) -> NodeCondition:
        """Health of a node as its reports show it; two sources say what is broken, so that nothing waits for one."""
        chips = self._chips.get(node, 0)
        is_down = self._is_down(node)
        sources = (HealthSource.NODED if is_down else 0) | (HealthSource.DEVICE_PLUGIN if chips else 0)
        return NodeCondition(
            node,
            unhealthy=chips,
            level=NodeHealth.EVICT if is_down else NodeHealth.OK,
            sources=sources | HealthSource.CLUSTERD if sources else 0,
        )

    def _is_down(self, node: str) -> bool:
        return ("node", node) in self._down or ("leaf", self._leaf_of.get(node, "")) in self._down
