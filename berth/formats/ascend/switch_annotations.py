"""Annotations of a pod with the state of the leaf switch (ToR) above its node, as the job uses it.

The state of a leaf is one byte: 0 free, 1 shared, 2 exclusive, plus 4 if the leaf is unhealthy. The annotations have it
as two numbers, and name a shared leaf.

Source: docs/reference/switches.md, "Shared leaf states", "Ranks, scores and annotations" and "Rebuilding leaf states".
"""

from collections.abc import Mapping
from typing import Final

from berth.formats.whole_numbers import whole_number

IS_SHARED: Final = "isSharedTor"
"""0 free, 1 shared, 2 exclusive."""
IS_HEALTHY: Final = "isHealthy"
"""0 healthy, 1 unhealthy."""
SHARED_IP: Final = "sharedTorIp"
"""Name of the leaf; only if it is shared."""
_SHARED: Final = 1
_STATES: Final = (0, 1, 2)
_STATE: Final = 3
_UNHEALTHY: Final = 4


def switch_annotations(state: int, leaf: str) -> dict[str, str]:
    """Annotations of a pod.

    Args:
        state: State byte of the leaf in the plan of the job.
        leaf: Name of the leaf.
    """
    shared = state & _STATE
    found = {IS_SHARED: str(shared), IS_HEALTHY: "1" if state & _UNHEALTHY else "0"}
    if shared == _SHARED:
        found[SHARED_IP] = leaf
    return found


def state_of(annotations: Mapping[str, str]) -> int:
    """State byte in the annotations of a pod; a missing or invalid number counts as 0."""
    shared = whole_number(annotations.get(IS_SHARED, ""))
    unhealthy = whole_number(annotations.get(IS_HEALTHY, "")) == 1
    return (shared if shared in _STATES else 0) + _UNHEALTHY * unhealthy
