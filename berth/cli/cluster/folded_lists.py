"""Lists of the cell, folded from its facts and records by the command itself."""

from functools import cached_property

from berth.cli.cluster.drain_list import drains_of
from berth.cli.cluster.drain_rows import DrainLine, line_of
from berth.cli.cluster.folded_nodes import health_facts, judged_in, rows_of
from berth.cli.cluster.node_rows import NodeRow
from berth.cli.cluster.node_summary import Use
from berth.core.overview.chip_use import cell_use
from berth.core.overview.fault_log import FaultLog
from berth.core.overview.node_list import NodeList
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.programs.lists import FaultGroup
from berth.schemas.programs.replies import NodeState
from berth.schemas.programs.requests import NodesRequest


class FoldedLists:
    """Lists of a state.

    Args:
        state: The cell.
        health: Latest health fact of each domain.
    """

    def __init__(self, state: State, health: list[bytes]) -> None:
        self._state = state
        self._health = health

    @classmethod
    async def read(cls, bus: Bus) -> "FoldedLists":
        """Fold the facts and records of a cell.

        Raises:
            TransientError: The bus did not answer.
        """
        return cls(await state_now(bus, SystemClock()), await health_facts(bus))

    @cached_property
    def _faults(self) -> FaultLog:
        """Faults of the nodes; not every list needs them."""
        faults = FaultLog(self._state)
        for data in self._health:
            faults.note_fact(data)
        faults.refresh(0)
        return faults

    async def use(self) -> Use:
        """How full the cell is."""
        return Use(*cell_use(self._state.table, SystemClock().now_ms()))

    async def size(self) -> int:
        """Number of nodes."""
        table = self._state.table
        return int(table.present[: len(table)].sum())

    async def nodes(self) -> list[NodeRow]:
        """All nodes, with everything."""
        return rows_of(self._state, judged_in(self._health))

    async def with_reasons(self, nodes: list[NodeRow]) -> list[NodeRow]:
        """These nodes."""
        return nodes

    async def node(self, name: str) -> NodeState | None:
        """A node with details."""
        asked = NodesRequest(names=[name], details=True)
        entries = NodeList(self._state, self._faults).entries(asked, lambda _: True)
        return next((node for _, node in entries), None)

    async def faults(self) -> list[FaultGroup]:
        """Faults in groups."""
        return [self._faults.group(place, lambda _: True) for place in self._faults.places()]

    async def drains(self) -> list[DrainLine]:
        """What is drained, or will be."""
        return [line_of(one) for one in drains_of(self._state)]
