"""What the simulated cluster counts."""

from typing import Final

from berth.runtime.metrics import gauge
from berth.schemas.simulation import SimCounts

_NODES: Final = gauge("nodesim_nodes", "Nodes of the simulated cluster.")
_PODS: Final = gauge("nodesim_live_pods", "Pods that have not ended.")
_CHIPS: Final = gauge("nodesim_held_chips", "Chips that pods hold.")
_DOUBLES: Final = gauge(
    "nodesim_double_allocations", "Chips that were to be given to a second pod since the start; more than 0 is a fault."
)
_OVERCOMMITS: Final = gauge(
    "nodesim_overcommitted_pods", "Pods for which a node had no cpu or memory left since the start; likewise."
)
_SWAPPED: Final = gauge(
    "nodesim_swapped_pods", "Pods that got other chips than those of their annotation since the start; likewise."
)
_ADMISSION_ERRORS: Final = gauge(
    "nodesim_unadmitted_pods", "Pods for which the device plug-in found no annotation since the start; likewise."
)


def show(counts: SimCounts) -> None:
    """Take over what the simulation has counted."""
    _NODES.set(counts.nodes)
    _PODS.set(counts.pods_live)
    _CHIPS.set(counts.chips_held)
    _DOUBLES.set(counts.double_allocations)
    _OVERCOMMITS.set(counts.overcommits)
    _SWAPPED.set(counts.swapped)
    _ADMISSION_ERRORS.set(counts.admission_errors)
