"""Number of chips of a node that new work may take. Pure."""

from collections.abc import Callable
from typing import Final

from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.nodes import NodeCondition, NodeDescription

_SHARES: Final = 100
"""Kubernetes devices per chip on a soft-share node.

Source: docs/reference/nodes-and-chips.md, "Validation of jobs".
"""


def free_chips(node: NodeDescription, condition: NodeCondition | None, load: int, held: Callable[[str], int]) -> int:
    """Chips of a node that new work may take, in Kubernetes devices.

    Pods on unhealthy chips take nothing from healthy ones. Not every pod states which chips it holds, and chips that a
    device plug-in withholds may also be held. Therefore the result is the lower of two counts: by number and by name.
    """
    most = max(node.allocatable - load, 0)
    if condition is None:
        return most
    healthy = node.chips & ~(condition.unhealthy | condition.recovering)
    if not most and healthy == node.chips:
        return 0
    if node.labels.get(LABEL_SOFT_SHARE) == "true":
        usable = (healthy & ~condition.withheld).bit_count() * _SHARES
        return max(min(node.allocatable, usable) - load, 0)
    taken = held(node.name)
    by_number = min(node.allocatable, healthy.bit_count()) - load + (taken & node.chips & ~healthy).bit_count()
    return max(min(by_number, (healthy & ~taken & ~condition.withheld).bit_count()), 0)
