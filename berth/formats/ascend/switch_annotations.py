"""The state of the leaf switch (ToR) above the node of a pod, as the job uses it, read from its annotations.

The state of a leaf is one byte: 0 free, 1 shared, 2 exclusive, plus 4 if the leaf is unhealthy. The annotations have it
as two numbers.

Source: docs/reference/switches.md, "Shared leaf states", "Ranks, scores and annotations" and "Rebuilding leaf states".
"""

from collections.abc import Mapping
from typing import Final

from berth.formats.whole_numbers import whole_number
from berth.products.model import IS_HEALTHY, IS_SHARED

_STATES: Final = (0, 1, 2)
_UNHEALTHY: Final = 4


def state_of(annotations: Mapping[str, str]) -> int:
    """State byte in the annotations of a pod; a missing or invalid number counts as 0."""
    shared = whole_number(annotations.get(IS_SHARED, ""))
    unhealthy = whole_number(annotations.get(IS_HEALTHY, "")) == 1
    return (shared if shared in _STATES else 0) + _UNHEALTHY * unhealthy
