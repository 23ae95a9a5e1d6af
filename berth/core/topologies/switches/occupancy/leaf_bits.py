"""Bits of the state of a leaf, and kinds of jobs there, for code that reads states and computes none."""

from typing import Final

SHARED: Final = 1
EXCLUSIVE: Final = 2
UNHEALTHY: Final = 4
CROSS: Final = 8
NOT_NORMAL: Final = 16
LARGE_CROSS: Final = 32
STATE: Final = 3
"""Bits 0 and 1 of :meth:`berth.core.topologies.switches.occupancy.leaf_states.LeafOccupancy.bits` are the state."""
NORMAL: Final = "normal-schema"
LARGE: Final = "large-model-schema"
