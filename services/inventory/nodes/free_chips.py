"""Number of chips of a node that new work may take, and of those that it may not for want of a report. Pure."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.nodes import NodeCondition, NodeDescription

SHARES: Final = 100
"""Kubernetes devices per chip on a soft-share node.

Source: docs/reference/nodes-and-chips.md, "Validation of jobs".
"""


class Unreported(NamedTuple):
    """Nodes that take no new work for want of a report.

    Attributes:
        lack: What is lacking, as in :func:`~berth.formats.ascend.report_error.lacks_report`.
        nodes: Their names, sorted.
        chips: Chips of one resource that would be free there.
    """

    lack: str
    nodes: tuple[str, ...]
    chips: int


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
        usable = (healthy & ~condition.withheld).bit_count() * SHARES
        return max(min(node.allocatable, usable) - load, 0)
    taken = held(node.name)
    by_number = min(node.allocatable, healthy.bit_count()) - load + (taken & node.chips & ~healthy).bit_count()
    return max(min(by_number, (healthy & ~taken & ~condition.withheld).bit_count()), 0)


def unreported_by_resource(lacking: Mapping[tuple[str, str], Mapping[str, int]]) -> dict[str, list[Unreported]]:
    """Nodes for want of a report by resource; those without free chips are left out.

    Args:
        lacking: Chips that would be free, by resource name and lack, and by node.
    """
    result: dict[str, list[Unreported]] = {}
    for (resource, lack), counts in sorted(lacking.items()):
        nodes = tuple(sorted(name for name, chips in counts.items() if chips))
        if nodes:
            result.setdefault(resource, []).append(Unreported(lack, nodes, sum(counts.values())))
    return result
