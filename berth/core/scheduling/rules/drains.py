"""Drains: a gang takes no node that is drained before it is expected to end."""

from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.scheduling.rules.port import Rule
from berth.core.state.cell import State


class Drains(Rule):
    """Gangs that are expected to end earlier may take more nodes."""

    def terms(self, state: State, at_ms: int) -> DrainedGangs:
        """Nodes that are drained, or will be, are left out."""
        return DrainedGangs(state, at_ms)
