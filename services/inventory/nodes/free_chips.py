"""How many chips of a node new work may take. Pure."""

from collections.abc import Callable
from typing import Final

from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.nodes import NodeCondition, NodeDescription

_SHARES: Final = 100
"""Devices of Kubernetes that a chip is on a soft-share node.

Source: docs/reference/nodes-and-chips.md, "Validation of jobs".
"""


def free_chips(node: NodeDescription, condition: NodeCondition | None, load: int, held: Callable[[str], int]) -> int:
    """Chips of a node that new work may take, in units of Kubernetes.

    Pods that sit on chips that are not well take nothing from the others. Not all pods say which chips they hold, and
    what a device plug-in withholds are also chips that are held: so the lower of two counts is taken, by number and by
    name.
    """
    most = max(node.allocatable - load, 0)
    if condition is None:
        return most
    well = node.chips & ~(condition.unhealthy | condition.recovering)
    if not most and well == node.chips:
        return 0
    if node.labels.get(LABEL_SOFT_SHARE) == "true":
        usable = (well & ~condition.withheld).bit_count() * _SHARES
        return max(min(node.allocatable, usable) - load, 0)
    taken = held(node.name)
    by_number = min(node.allocatable, well.bit_count()) - load + (taken & node.chips & ~well).bit_count()
    return max(min(by_number, (well & ~taken & ~condition.withheld).bit_count()), 0)
