"""Trial placement: would a gang be placed if jobs ended, nodes were healthy, or nodes were added?

A trial changes the state that it is given, and restores it when it is closed; the state must not be used otherwise
meanwhile. What remains are rows without a node, for nodes that were added in a trial only.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from berth.core.cluster.node_classes import ClassKey, class_reason
from berth.core.cluster.node_packing import pack_nodes
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.turn import MissingShards, Opening
from berth.core.scheduling.verdicts import Decisions
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.core.state.ledger import Holding
from berth.core.state.lifecycle import Due
from berth.schemas.facts import NodeHealth, NodesSeen
from berth.schemas.nodes import NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_DOMAIN: Final = "~new"
"""Domain of nodes that are added; no source of nodes uses this name."""
_HEALTHY: Final[dict[str, int]] = {"unhealthy": 0, "network": 0, "withheld": 0, "level": NodeHealth.OK}
_WRITTEN: Final = (*_HEALTHY, "node_class", "network_known", "spoken", "allocatable_seen")


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
    """A state on which assumptions are tried.

    Args:
        state: Restored when the context ends.
        gangs: Gangs to place, in this order; all of them.
        laid: Holdings of earlier verdicts of the record, which the state does not contain.
        missing_shards: Shards that do not answer.
        plans_max: Plans after which every answer is no.
    """

    def __init__(
        self,
        state: State,
        gangs: Sequence[Gang],
        *,
        laid: Iterable[Holding] = (),
        missing_shards: MissingShards | None = None,
        plans_max: int = 400,
    ) -> None:
        self.state = state
        self.missing_shards = missing_shards or MissingShards()
        self._gangs = gangs
        self._plans_left = plans_max
        self._laid = [holding for holding in laid if holding.key not in state.fold.holdings]
        self._holdings: dict[tuple[str, int], Holding] = {}
        self._now = Assumptions()
        self._rows_before: dict[int, dict[str, int]] = {}
        self._known: dict[Assumptions, bool] = {}
        self._held: dict[tuple[str, int], Held] = {}
        self._order = list(state.fold.holdings)
        self._order_held = list(state.fold.held)
        self._settings = state.fold.settings

    def __enter__(self) -> Self:
        # The question is whether there is room. Which gang may have it is decided by the policy, which has only these
        # gangs.
        self.state.fold.settings = msgspec.structs.replace(self._settings, queue_policy="skip")
        for holding in self._laid:
            self.state.lay(holding)
        self._holdings = dict(self.state.fold.holdings)
        self._held = {held.key: held for held in self.state.fold.held.values()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._become(Assumptions())
        for holding in self._laid:
            self.state.lift(holding)
        self.state.fold.settings = self._settings
        holdings = self.state.fold.holdings
        for key in self._order:  # as they were: no decision depends on the order, but the state is to be restored
            holdings[key] = holdings.pop(key)
        held = self.state.fold.held
        for uid in self._order_held:
            held[uid] = held.pop(uid)

    @property
    def held(self) -> dict[tuple[str, int], Held]:
        """All places that are held for jobs which start anew, by uid and the attempt that ended."""
        return self._held

    @property
    def holdings(self) -> dict[tuple[str, int], Holding]:
        """All that is held, by uid and attempt."""
        return self._holdings

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
        self._become(assumptions)
        found = self._plan(missing_shards or self.missing_shards)
        if missing_shards is None:
            self._known[assumptions] = found
        return found

    def _plan(self, missing_shards: MissingShards) -> bool:
        drained = DrainedGangs(self.state, self.state.fold.at_ms)
        gangs = [drained.applied(gang) for gang in self._gangs]
        opening = Opening(0, self.state.fold.at_ms, gangs, Due(), candidate_counts(gangs))
        state = self.state
        scorer = Scorer(state.table, state.shares, state.fold.settings)
        verdicts = Decisions(state, Queue(), scorer).on_own_candidates(opening, missing_shards).verdicts
        return len(verdicts) == len(self._gangs) and all(verdict.placement is not None for verdict in verdicts)

    def _become(self, assumptions: Assumptions) -> None:
        now = self._now
        for key in sorted(now.ended - assumptions.ended):
            self.state.lay(self._one(key))
        for key in sorted(assumptions.ended - now.ended):
            self.state.lift(self._one(key))
        for row in sorted(now.healthy - assumptions.healthy):
            self._write(row, self._rows_before.pop(row))
        for row in sorted(assumptions.healthy - now.healthy):
            self._rows_before[row] = self._heal(row)
        if assumptions.added != now.added:
            self._bring(assumptions.added)
        self._now = assumptions

    def _one(self, key: tuple[str, int]) -> Holding | Held:
        return self._holdings[key] if key in self._holdings else self._held[key]

    def _heal(self, row: int) -> dict[str, int]:
        """Make a node healthy; returns its former columns."""
        table = self.state.table
        before = {name: int(getattr(table, name)[row]) for name in _WRITTEN}
        key = msgspec.structs.replace(table.classes[before["node_class"]], cordoned=False, ready=True)
        chips = int(table.capacity[row])
        self._write(
            row,
            {
                **_HEALTHY,
                "node_class": table.class_index(key),
                "network_known": 1,
                "spoken": 1,
                "allocatable_seen": chips,
            },
        )
        return before

    def _write(self, row: int, columns: dict[str, int]) -> None:
        for name, value in columns.items():
            getattr(self.state.table, name)[row] = value
        self.state.table.settle(row)

    def _bring(self, count: int) -> None:
        """Let the number of new nodes be ``count``."""
        table = self.state.table
        like = self.model()
        nodes = [] if like is None else [_like(table.classes[like.node_class], like, number) for number in range(count)]
        fact: NodesSeen = pack_nodes(_DOMAIN, nodes)
        table.apply_nodes(fact)
        rows = table.rows_of_domain(_DOMAIN)
        self.state.shares.learn(rows)
        table.spoken[rows] = True

    def model(self) -> "Model | None":
        """Model of added nodes: of the nodes that a pod of the last gang may use that with most chips, by name."""
        table = self.state.table
        rows = table.view()
        shape = max((shape for shape, _ in self._gangs[-1].request_class), key=lambda shape: shape.chips)
        may = np.array([*(may_take(shape, key) for key in table.classes), False], np.bool_)[table.node_class[rows]]
        may &= table.present[rows]
        found = [row for row in np.flatnonzero(may).tolist() if table.domain_name(row) != _DOMAIN]
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
