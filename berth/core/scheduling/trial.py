"""Trial: would a gang be placed if jobs ended, nodes were well, or more nodes came? Planned by the decider itself.

A trial changes the state that it is given, and puts it back when it is closed; nobody else may use the state meanwhile. What
stays are rows without a node, for nodes that came in a trial only.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from berth.core.cluster.node_classes import ClassKey, class_reason
from berth.core.cluster.node_packing import pack_nodes
from berth.core.placement.round_demand import candidate_counts
from berth.core.requests.gangs import Gang
from berth.core.scheduling.scheduler import MissingShards, Opening, Scheduler
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.core.state.lifecycle import Due
from berth.schemas.facts import NodeHealth, NodesSeen
from berth.schemas.nodes import NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_DOMAIN: Final = "~new"
"""Domain of nodes that come; no source of nodes calls one so."""
_WELL: Final[dict[str, int]] = {"unhealthy": 0, "network": 0, "withheld": 0, "level": NodeHealth.OK}
_WRITTEN: Final = (*_WELL, "node_class", "network_known", "spoken", "allocatable_seen")


class Changes(NamedTuple):
    """What differs from the state as it is.

    Attributes:
        ended: Holdings (uid, attempt) that were given back.
        well: Rows of nodes that are well, ready and open to work.
        come: Nodes that came.
    """

    ended: frozenset[tuple[str, int]] = frozenset()
    well: frozenset[int] = frozenset()
    come: int = 0


class Trial:
    """A state on which changes are tried.

    Args:
        state: Put back by :meth:`close`.
        gangs: Who is to be placed, in this order; all of them.
        laid: What earlier verdicts of the record gave away; the state does not know it.
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
        self._now = Changes()
        self._rows_before: dict[int, dict[str, int]] = {}
        self._known: dict[Changes, bool] = {}
        self._improved = dict(state.table.improved)
        self._thinned, self._regained = dict(state.table.thinned), dict(state.table.regained)
        self._worsened, self._stirred = state.table.worsened, state.table.stirred
        self._eased = state.leaf_book.eased
        self._order = list(state.fold.holdings)
        self._settings = state.fold.settings

    def __enter__(self) -> Self:
        # Room is what is asked for here; who may have it is the policy's business, and it has seen nobody but these.
        self.state.fold.settings = msgspec.structs.replace(self._settings, queue_policy="skip")
        for holding in self._laid:
            self.state.lay(holding)
        self._holdings = dict(self.state.fold.holdings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._become(Changes())
        for holding in self._laid:
            self.state.lift(holding)
        self.state.fold.settings = self._settings
        holdings = self.state.fold.holdings
        for key in self._order:  # as they were: nothing looks at the order, but it is what was lent
            holdings[key] = holdings.pop(key)
        table = self.state.table
        table.improved, table.thinned, table.regained = self._improved, self._thinned, self._regained
        table.worsened, table.stirred = self._worsened, self._stirred
        self.state.leaf_book.eased = self._eased

    @property
    def holdings(self) -> dict[tuple[str, int], Holding]:
        """All that is held, by uid and attempt."""
        return self._holdings

    @property
    def is_exhausted(self) -> bool:
        """Whether it plans no more."""
        return self._plans_left <= 0

    def fits(self, changes: Changes, *, missing_shards: MissingShards | None = None) -> bool:
        """Whether all gangs are placed after some changes.

        Args:
            changes: All that differs.
            missing_shards: Other shards that do not answer; the answer is not remembered then.
        """
        known = self._known.get(changes) if missing_shards is None else None
        if known is not None:
            return known
        if self.is_exhausted:
            return False
        self._plans_left -= 1
        self._become(changes)
        found = self._plan(missing_shards or self.missing_shards)
        if missing_shards is None:
            self._known[changes] = found
        return found

    def _plan(self, missing_shards: MissingShards) -> bool:
        asks = candidate_counts(self._gangs)
        opening = Opening(0, self.state.fold.at_ms, self._gangs, Due(), asks)
        verdicts = Scheduler(self.state).decide(opening, missing_shards).verdicts
        return len(verdicts) == len(self._gangs) and all(verdict.placement is not None for verdict in verdicts)

    def _become(self, changes: Changes) -> None:
        now = self._now
        for key in sorted(now.ended - changes.ended):
            self.state.lay(self._holdings[key])
        for key in sorted(changes.ended - now.ended):
            self.state.lift(self._holdings[key])
        for row in sorted(now.well - changes.well):
            self._write(row, self._rows_before.pop(row))
        for row in sorted(changes.well - now.well):
            self._rows_before[row] = self._cure(row)
        if changes.come != now.come:
            self._bring(changes.come)
        self._now = changes

    def _cure(self, row: int) -> dict[str, int]:
        """Make a node well; returns what its columns said."""
        table = self.state.table
        before = {name: int(getattr(table, name)[row]) for name in _WRITTEN}
        key = msgspec.structs.replace(table.classes[before["node_class"]], cordoned=False, ready=True)
        chips = int(table.capacity[row])
        self._write(
            row,
            {**_WELL, "node_class": table.class_index(key), "network_known": 1, "spoken": 1, "allocatable_seen": chips},
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
        """What nodes that come are like: the node that a pod of the last gang may use and that has the most chips, by name."""
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
