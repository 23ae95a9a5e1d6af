"""Nodes of which some source's newest report cannot be read, from the facts about health. Pure."""

from berth.core.cluster.node_packing import unpack_health
from berth.formats.ascend.report_error import SUSPECT
from berth.schemas.facts import HealthSeen


class Suspects:
    """Nodes with an unreadable report, and the text from when that began."""

    def __init__(self) -> None:
        self._by_domain: dict[str, dict[str, str]] = {}

    def note(self, seen: HealthSeen) -> bool:
        """Take the health of a domain's nodes; returns whether other nodes have an unreadable report now.

        Raises:
            ValueError: The fact is damaged.
            IndexError: Likewise.
        """
        before = self._by_domain.pop(seen.domain, {})
        now: dict[str, str] = {}
        if any(SUSPECT in reason for reason in seen.reasons):
            for row in unpack_health(seen):
                if SUSPECT in row.reason:
                    now[row.name] = before.get(row.name) or f"node {row.name}: {row.reason}"
            self._by_domain[seen.domain] = now
        return now.keys() != before.keys()

    def sentences(self) -> dict[str, str]:
        """Text by node."""
        return {name: reason for found in self._by_domain.values() for name, reason in found.items()}
