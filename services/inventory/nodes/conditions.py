"""Unhealthy nodes from health facts: which of their chips accept no new work. Pure."""

from berth.core.cluster.node_packing import unpack_health
from berth.formats.ascend.report_error import lacks_report
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.nodes import NodeCondition


class Conditions:
    """Conditions of nodes that take less work, or none, by domain.

    Of their reasons only that a report is lacking is kept.
    """

    def __init__(self) -> None:
        self._by_domain: dict[str, dict[str, NodeCondition]] = {}

    def note(self, seen: HealthSeen) -> bool:
        """Take the fact of a domain; returns whether the capacity of its nodes for new work changed.

        Raises:
            ValueError: The fact is damaged.
            IndexError: The fact is damaged.
        """
        now: dict[str, NodeCondition] = {}
        if any(map(any, (seen.unhealthy, seen.recovering, seen.withheld, seen.level))):
            for row in unpack_health(seen):
                if row.unhealthy or row.recovering or row.withheld or row.level >= NodeHealth.NO_NEW_WORK:
                    lack = lacks_report(row.reason) if row.level == NodeHealth.NO_NEW_WORK else ""
                    now[row.name] = NodeCondition(
                        row.name, row.unhealthy, row.recovering, 0, row.level, withheld=row.withheld, reason=lack
                    )
        before = self._by_domain.pop(seen.domain, {})
        if now:
            self._by_domain[seen.domain] = now
        return now != before

    def of(self, domain: str, node: str) -> NodeCondition | None:
        """Condition of a node, from the fact of its own domain; None for a healthy node."""
        return self._by_domain.get(domain, {}).get(node)
