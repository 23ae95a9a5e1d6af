"""What the simulated cluster counts."""

from berth.runtime.metrics import MetricsRegistry
from berth.schemas.simulation import SimCounts


class NodesimMetrics:
    """What the simulated cluster counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._nodes = registry.gauge("nodesim_nodes", "Nodes of the simulated cluster.")
        self._pods = registry.gauge("nodesim_live_pods", "Pods that have not ended.")
        self._chips = registry.gauge("nodesim_held_chips", "Chips that pods hold.")
        self._doubles = registry.gauge(
            "nodesim_double_allocations",
            "Chips that were to be given to a second pod since the start; more than 0 is a fault.",
        )
        self._overcommits = registry.gauge(
            "nodesim_overcommitted_pods",
            "Pods for which a node had no cpu or memory left since the start; more than 0 is a fault.",
        )
        self._swapped = registry.gauge(
            "nodesim_swapped_pods",
            "Pods that got other chips than those of their annotation since the start; more than 0 is a fault.",
        )
        self._admission_errors = registry.gauge(
            "nodesim_unadmitted_pods",
            "Pods for which the device plug-in found no annotation since the start; more than 0 is a fault.",
        )

    def show(self, counts: SimCounts) -> None:
        """Copy the counts of the simulation."""
        self._nodes.set(counts.nodes)
        self._pods.set(counts.pods_live)
        self._chips.set(counts.chips_held)
        self._doubles.set(counts.double_allocations)
        self._overcommits.set(counts.overcommits)
        self._swapped.set(counts.swapped)
        self._admission_errors.set(counts.admission_errors)
