"""Reports of agents on nodes, which publish them to the bus."""

from typing import ClassVar

from berth.schemas.message import Message
from berth.schemas.units import UnixMs


class HealthReport(Message, frozen=True):
    """Health of one node, reported by an agent on it. Each report replaces the one before."""

    KIND: ClassVar[str] = "report.health"

    node: str
    unhealthy: list[int] = []
    """Chips (physical ids) that take no work."""
    recovering: list[int] = []
    network_unhealthy: list[int] = []
    """Chips that may serve a job of one pod only."""
    level: str = "ok"
    """Level of the node: ok, sub-health, no-new-work or evict."""
    reason: str = ""
    updated_ms: UnixMs = 0
    """Time of the observation; 0: time at which the report arrives."""
    source: str = ""
    """Name of the agent, for display."""
