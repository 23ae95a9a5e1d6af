"""A copy of a cell for what-if: attempts end or begin in it, nodes are healed or added, and it is thrown away.

What changes it are the methods by which a cell follows a record, so a plan on the copy is a plan on a cell in which it
had happened. It folds no facts and no records, and the cell must fold none while the copy is used.
"""

from collections.abc import Iterable
from typing import Never

from berth.core.cluster.node_fork import NodeFork
from berth.core.errors import InvariantError
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.core.state.job_nodes import JobNodes
from berth.core.state.ledger import Holding
from berth.schemas.facts import NodesSeen


class CellFork(State):
    """A copy of a cell.

    Args:
        state: The cell.
        facts: Nodes can be healed and added, which copies all that facts say of them.
        nodes: A copy of its nodes that is changed elsewhere; None makes one.

    Attributes:
        nodes: Its nodes, as ``table``.
    """

    def __init__(self, state: State, *, facts: bool = False, nodes: NodeFork | None = None) -> None:
        self.__dict__.update(vars(state))
        self.fold = state.fold.fork()
        self.nodes = NodeFork(state.table, facts=facts) if nodes is None else nodes
        self._occupancy = self._occupancy.fork(self.fold, self.nodes)
        self.table, self.shares = self.nodes, self._occupancy.shares
        self.colocation = JobNodes(self.fold, self._occupancy.owned, self.jobs).colocation()
        self.constraints = self.constraints.fork(self.fold, self._occupancy)
        self.queues = self.queues.fork(self.fold, self.table)

    def lift(self, holding: Holding | Held) -> None:
        """Remove a holding, or held places, as if they had been given back."""
        if isinstance(holding, Held):
            del self.fold.held[holding.uid]
            self._occupancy.unhold(holding)
            self.queues.recount((holding.uid, -1))
            return
        del self.fold.holdings[holding.key]
        self._occupancy.give_back(holding)
        self.constraints.recount(holding.key)
        self.queues.recount(holding.key)

    def lay(self, holding: Holding) -> None:
        """Add a holding, as if a record had given it."""
        self.fold.holdings[holding.key] = holding
        self._occupancy.take(holding)
        self.constraints.recount(holding.key)
        self.queues.recount(holding.key)

    def become(self, change: Holding | tuple[str, int]) -> None:
        """Let an attempt hold what is given, or nothing (key), for all but the columns and the leaf switches.

        Many attempts change these faster at once.
        """
        key, holding = (change.key, change) if isinstance(change, Holding) else (change, None)
        before = self.fold.holdings.pop(key, None)
        if before is not None:
            self._occupancy.forget(before)
        if holding is not None:
            self.fold.holdings[key] = holding
            self._occupancy.remember(holding)
        if before is not None or holding is not None:
            self.constraints.recount(key)
            self.queues.recount(key)

    def heal(self, rows: Iterable[int]) -> None:
        """Let nodes be healthy, ready and schedulable; only for a copy with facts."""
        self.nodes.heal(rows)

    def add(self, fact: NodesSeen) -> None:
        """Add the nodes of a domain that is unknown, healthy ones; only for a copy with facts."""
        self.shares.learn(self.nodes.add(fact))

    def apply_fact(self, *_: object, **__: object) -> Never:
        """Not for a copy.

        Raises:
            InvariantError: Always.
        """
        raise InvariantError("a copy for what-if folds neither facts nor records", subject="cell")

    apply_link = apply_fact
