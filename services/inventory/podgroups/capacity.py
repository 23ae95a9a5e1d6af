"""Free capacity of the nodes, by which PodGroups are admitted where no queues are in force."""

from dataclasses import dataclass, field
from typing import Final

from berth.core.text import pluralize
from berth.formats.ascend.report_error import STALE
from berth.services.inventory.nodes.free_chips import Unreported
from berth.services.inventory.podgroups.status import CPU, MEMORY

_NODES_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Capacity:
    """Free capacity of schedulable nodes.

    Attributes:
        chips: Free chips by resource name.
        cpu_milli: Free CPU in thousandths.
        memory_mib: Free memory in MiB.
        unreported: Nodes that take no new work for want of a report, by resource name.
    """

    chips: dict[str, int]
    cpu_milli: int
    memory_mib: int
    unreported: dict[str, list[Unreported]] = field(default_factory=dict)

    def amount(self, resource: str) -> int:
        """Free amount of a resource."""
        if resource == CPU:
            return self.cpu_milli
        return self.memory_mib if resource == MEMORY else self.chips.get(resource, 0)


def lacking_words(found: Unreported) -> str:
    """Nodes without a recent report, as a clause."""
    count = len(found.nodes)
    more = f" and {count - _NODES_SHOWN_MAX} more" if count > _NODES_SHOWN_MAX else ""
    names = f"{', '.join(found.nodes[:_NODES_SHOWN_MAX])}{more}"
    lack = "whose newest report is too old" if found.lack == STALE else "without a report that can be read"
    are = "is" if found.chips == 1 else "are"
    return f"; {found.chips} {are} on {pluralize(count, 'node')} {lack}, which {'takes' if count == 1 else 'take'} no new work: {names}"
