"""Trial placement: would a gang be placed if jobs ended, nodes were healthy, or nodes were added?

Each trial is decided on a copy of the cell, which is thrown away.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.node_classes import ClassKey, class_reason
from berth.core.cluster.node_packing import pack_nodes
from berth.core.gangs import Gang
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.turn import MissingShards, Opening
from berth.core.scheduling.verdicts import Decisions
from berth.core.state.cell import State
from berth.core.state.cell_fork import CellFork
from berth.core.state.due import Due
from berth.core.state.ledger import Holding
from berth.schemas.nodes import NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_DOMAIN: Final = "~new"
"""Domain of nodes that are added; no source of nodes uses this name."""


class Assumptions(NamedTuple):
    """What differs from the state as it is.

    Attributes:
        ended: Holdings, and places held for an attempt that ended (uid, attempt), that were given back.
        healthy: Rows of nodes that are healthy, ready and schedulable.
        added: Nodes that were added.
    """

    ended: frozenset[tuple[str, int]] = frozenset()
    healthy: frozenset[int] = frozenset()
    added: int = 0


class Trial:
    """A cell on which assumptions are tried.

    Args:
        state: The cell; not changed.
        gangs: Gangs to place, in this order; all of them.
        laid: Holdings of earlier verdicts of the record, which the state does not contain.
        missing_shards: Shards that do not answer.
        plans_max: Plans after which every answer is no.

    Attributes:
        state: The cell with the holdings of earlier verdicts.
    """

    def __init__(
        self,
        state: State,
        gangs: Sequence[Gang],
        *,
        laid: Iterable[Holding],
        missing_shards: MissingShards | None,
        plans_max: int,
    ) -> None:
        self.state = CellFork(state)
        for holding in laid:
            if holding.key not in state.fold.holdings:
                self.state.lay(holding)
        self.missing_shards = missing_shards or MissingShards()
        self._gangs = gangs
        self._plans_left = plans_max
        self._known: dict[Assumptions, bool] = {}
        self.held = {held.key: held for held in self.state.fold.held.values()}
        """All places that are held for jobs which start anew, by uid and the attempt that ended."""

    @property
    def holdings(self) -> dict[tuple[str, int], Holding]:
        """All that is held, by uid and attempt."""
        return self.state.fold.holdings

    @property
    def is_exhausted(self) -> bool:
        """Whether it plans no more."""
        return self._plans_left <= 0

    def fits(self, assumptions: Assumptions, *, missing_shards: MissingShards | None = None) -> bool:
        """Whether all gangs are placed under some assumptions.

        Args:
            assumptions: All that differs.
            missing_shards: Other shards that do not answer; the answer is not remembered then.
        """
        known = self._known.get(assumptions) if missing_shards is None else None
        if known is not None:
            return known
        if self.is_exhausted:
            return False
        self._plans_left -= 1
        found = self._plan(self._under(assumptions), missing_shards or self.missing_shards)
        if missing_shards is None:
            self._known[assumptions] = found
        return found

    def _plan(self, state: State, missing_shards: MissingShards) -> bool:
        drained = DrainedGangs(state, state.fold.at_ms)
        gangs = [drained.applied(gang) for gang in self._gangs]
        opening = Opening(0, state.fold.at_ms, gangs, Due(), candidate_counts(gangs))
        scorer = Scorer(state.table, state.shares, state.fold.settings)
        # Without rules: the question is whether there is room, not who may have it.
        verdicts = Decisions(state, Queue(), scorer).on_own_candidates(opening, missing_shards).verdicts
        return len(verdicts) == len(self._gangs) and all(verdict.placement is not None for verdict in verdicts)

    def _under(self, assumptions: Assumptions) -> State:
        """The cell under some assumptions."""
        if assumptions == Assumptions():
            return self.state
        cell = CellFork(self.state, facts=bool(assumptions.healthy or assumptions.added))
        cell.heal(sorted(assumptions.healthy))
        if assumptions.added and (like := self.model()) is not None:
            key = cell.table.classes[like.node_class]
            cell.add(pack_nodes(_DOMAIN, [_like(key, like, number) for number in range(assumptions.added)]))
        for one in sorted(assumptions.ended):
            cell.lift(self.holdings[one] if one in self.holdings else self.held[one])
        return cell

    def model(self) -> "Model | None":
        """Model of added nodes: of the nodes that a pod of the last gang may use that with most chips, by name."""
        table = self.state.table
        rows = table.view()
        shape = max((shape for shape, _ in self._gangs[-1].request_class), key=lambda shape: shape.chips)
        may = np.array([*(may_take(shape, key) for key in table.classes), False], np.bool_)[table.node_class[rows]]
        found = np.flatnonzero(may & table.present[rows]).tolist()
        if not found:
            return None
        best = min(found, key=lambda row: (-int(table.capacity[row]), -int(table.cpu[row]), table.names[row]))
        return Model(int(table.node_class[best]), int(table.chips[best]), int(table.cpu[best]), int(table.memory[best]))


class Model(NamedTuple):
    """What new nodes are like."""

    node_class: int
    chips: int
    cpu_milli: int
    memory_mib: int


def may_take(shape: Shape, key: ClassKey) -> bool:
    """Whether nodes of a class can take a pod of a shape once they are ready and open to work."""
    return class_reason(shape, msgspec.structs.replace(key, cordoned=False, ready=True)) == NodeReason.FITS


def _like(key: ClassKey, model: Model, number: int) -> NodeDescription:
    return NodeDescription(
        name=f"{_DOMAIN}-{number:05d}",
        product=key.product,
        resource=key.resource,
        chips=model.chips,
        allocatable=model.chips.bit_count(),
        cpu_milli=model.cpu_milli,
        memory_mib=model.memory_mib,
        labels=dict(key.labels),
        taints=list(key.taints),
    )
