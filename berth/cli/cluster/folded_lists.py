"""Lists of the cell, folded from its facts and records by the command itself."""

from berth.cli.cluster.drain_list import drains_of
from berth.cli.cluster.drain_rows import DrainLine, line_of
from berth.cli.cluster.folded_nodes import Judged, judged_nodes, rows_of
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
from berth.schemas.subjects import StreamName


class FoldedLists:
    """Lists of a state.

    Args:
        state: The cell.
        judged: Health of its nodes.
        faults: Their faults.
    """

    def __init__(self, state: State, judged: dict[tuple[str, str], Judged], faults: FaultLog) -> None:
        self.state = state
        self.judged = judged
        self._faults = faults

    @classmethod
    async def read(cls, bus: Bus) -> "FoldedLists":
        """Fold the facts and records of a cell.

        Raises:
            TransientError: The bus did not answer.
        """
        state = await state_now(bus, SystemClock())
        faults = FaultLog(state)
        for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),)):
            faults.note_fact(stored.data)
        faults.refresh(0)
        return cls(state, await judged_nodes(bus), faults)

    async def use(self) -> Use:
        """How full the cell is."""
        return Use(*cell_use(self.state.table, SystemClock().now_ms()))

    async def size(self) -> int:
        """Number of nodes."""
        table = self.state.table
        return int(table.present[: len(table)].sum())

    async def nodes(self) -> list[NodeRow]:
        """All nodes, with everything."""
        return rows_of(self.state, self.judged)

    async def with_reasons(self, nodes: list[NodeRow]) -> list[NodeRow]:
        """These nodes."""
        return nodes

    async def node(self, name: str) -> NodeState | None:
        """A node with details."""
        asked = NodesRequest(names=[name], details=True)
        entries = NodeList(self.state, self._faults).entries(asked, lambda _: True)
        return next((node for _, node in entries), None)

    async def faults(self) -> list[FaultGroup]:
        """Faults in groups."""
        return [self._faults.group(place, lambda _: True) for place in self._faults.places()]

    async def drains(self) -> list[DrainLine]:
        """What is drained, or will be."""
        return [line_of(one) for one in drains_of(self.state)]
