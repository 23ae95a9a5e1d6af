"""Faults of nodes in groups: what is broken at one place, since when, and which jobs are there."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from berth.core.chips.picking import ids_of
from berth.core.cluster.node_table import NodeTable
from berth.core.faults.model import NodeFault, NodeFaultKind
from berth.core.overview.conditions import Conditions
from berth.core.overview.fault_list import LEVELS, begun_ms, faults_at
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.programs.lists import JOBS_MAX, NAMES_MAX, RANKS_MAX, FaultGroup, FaultScope, JobRanks
from berth.schemas.programs.replies import FaultOfNode

MayRead = Callable[[str], bool]
"""Whether a reader may read a namespace."""
_GROUP_MIN: Final = 2
"""Least nodes of a leaf switch that are a group."""
_NONE: Final[Mapping[NodeFaultKind, "KnownFault"]] = {}


class KnownFault(NamedTuple):
    """A fault, since when a node has it, and when it last became another. Times are 0 where they are not known."""

    fault: NodeFault
    since_ms: int
    changed_ms: int


class Place(NamedTuple):
    """Where faults of a kind are. The order of places is that of groups."""

    kind: str
    scope: FaultScope
    name: str

    @property
    def id(self) -> str:
        """Cursor of the group."""
        return f"{self.kind}/{self.scope}/{self.name}"


class FaultLog:
    """Faults of the nodes that are there.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._conditions = Conditions()
        self._revision = -1
        self._touched: dict[int, None] = {}
        """Rows that are to be looked at."""
        self._known: dict[int, dict[NodeFaultKind, KnownFault]] = {}
        """By row of the node table."""
        self._sizes: _Sizes | None = None
        self._places: dict[Place, list[int]] | None = None
        """Of groups; None: they are to be found again."""

    def __len__(self) -> int:
        """Nodes that have a fault."""
        return len(self._known)

    def note_fact(self, data: bytes) -> None:
        """Note a fact of any kind that the state has applied."""
        for name in self._conditions.note(data):
            row = self._state.table.row_of.get(name)
            if row is not None:
                self._touched[row] = None

    def refresh(self, at_ms: int, *, most: int | None = None) -> bool:
        """Bring the faults in line with the state; returns whether nodes are left to be looked at.

        Args:
            at_ms: When what changed did so; 0: nobody knows, as after a snapshot was read.
            most: Look at so many nodes at most; None: at all.
        """
        table = self._state.table
        if table.revision != self._revision:
            self._touched.update(dict.fromkeys(table.changed_since(self._revision).tolist()))
            self._revision = table.revision
        for row in list(itertools.islice(self._touched, most)):
            del self._touched[row]
            self._update_row(row, at_ms)
        return bool(self._touched)

    def of_node(self, name: str) -> list[FaultOfNode]:
        """Faults of a node, of the whole node first."""
        found = self._known.get(self._state.table.row_of.get(name, -1), _NONE)
        return [
            FaultOfNode(
                kind=kind.value,
                level=LEVELS[kind],
                chips=list(ids_of(one.fault.chips)),
                since_ms=one.since_ms,
                changed_ms=one.changed_ms,
                reason=one.fault.reason,
            )
            for kind, one in found.items()
        ]

    def places(self) -> Mapping[Place, list[int]]:
        """Places of all groups in their order, and the rows of the nodes of each, ascending."""
        revision = self._state.table.layout_revision
        if self._sizes is None or self._sizes.revision != revision:
            self._sizes, self._places = _Sizes(self._state.table), None
        if self._places is None:
            rows_of: dict[NodeFaultKind, list[int]] = {}
            for row in sorted(self._known):
                for kind in self._known[row]:
                    rows_of.setdefault(kind, []).append(row)
            found = {
                Place(kind.value, scope, name): those
                for kind, rows in rows_of.items()
                for (scope, name), those in self._sizes.grouped(rows)
            }
            self._places = {place: found[place] for place in sorted(found)}
        return self._places

    def group(self, place: Place, may_read: MayRead) -> FaultGroup:
        """The faults at a place.

        Args:
            place: One of :meth:`places`.
            may_read: Whether the reader may read a namespace: jobs of others are counted, and not named.
        """
        table = self._state.table
        kind, rows = NodeFaultKind(place.kind), self.places()[place]
        found = [self._known[row][kind] for row in rows]
        reasons = {one.fault.reason for one in found}
        names = sorted(table.names[row] for row in rows)
        jobs, more = jobs_on(self._state, names, may_read)
        return FaultGroup(
            kind=place.kind,
            level=LEVELS[kind],
            scope=place.scope,
            name=place.name,
            nodes=len(rows),
            of=self._sizes.of(place.scope, rows[0]) if self._sizes is not None else 0,
            names=names[:NAMES_MAX],
            chips=sum(one.fault.chips.bit_count() for one in found),
            chip_ids=list(ids_of(found[0].fault.chips)) if len(found) == 1 else [],
            since_ms=min(one.since_ms for one in found),
            changed_ms=max(one.changed_ms for one in found),
            reason=found[0].fault.reason if len(reasons) == 1 else "",
            jobs=jobs,
            more_jobs=more,
        )

    def _update_row(self, row: int, at_ms: int) -> None:
        before = self._known.pop(row, _NONE)
        now: dict[NodeFaultKind, KnownFault] = {}
        is_there = bool(self._state.table.present[row])
        for fault in faults_at(self._state, self._conditions, row) if is_there else ():
            known = before.get(fault.kind)
            if known is None:
                since_ms = at_ms or begun_ms(self._state, fault)
                now[fault.kind] = KnownFault(fault, since_ms, since_ms)
            elif (known.fault.chips, known.fault.reason) == (fault.chips, fault.reason):
                now[fault.kind] = known._replace(fault=fault)
            else:
                now[fault.kind] = KnownFault(fault, known.since_ms, at_ms or known.changed_ms)
        if now:
            self._known[row] = now
        if now.keys() != before.keys():
            self._places = None


class _Sizes:
    """How many nodes there are at each place.

    Args:
        table: The nodes.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.revision = table.layout_revision
        self._below: Counter[int] = Counter()
        self._in: Counter[int] = Counter()
        self._leaves: dict[int, dict[int, None]] = {}
        """Leaves of each SuperPoD."""
        rows = np.flatnonzero(table.present[: len(table)])
        for leaf, superpod in zip(table.leaf[rows].tolist(), table.superpod[rows].tolist(), strict=True):
            self._below[leaf] += 1
            self._in[superpod] += 1
            self._leaves.setdefault(superpod, {})[leaf] = None

    def of(self, scope: FaultScope, row: int) -> int:
        """Nodes of the place of a row."""
        if scope == "node":
            return 1
        return self._below[self._table.leaf.item(row)] if scope == "leaf" else self._in[self._table.superpod.item(row)]

    def grouped(self, rows: list[int]) -> Iterable[tuple[tuple[FaultScope, str], list[int]]]:
        """Rows with a fault by the place that stands for them."""
        at: dict[tuple[FaultScope, int], list[int]] = {}
        for row in rows:
            leaf, superpod = self._table.leaf.item(row), self._table.superpod.item(row)
            at.setdefault(("leaf", leaf), []).append(row)
            at.setdefault(("superpod", superpod), []).append(row)
        found: dict[tuple[FaultScope, str], list[int]] = {}
        for row in rows:
            found.setdefault(self._place(row, at), []).append(row)
        return found.items()

    def _place(self, row: int, at: Mapping[tuple[FaultScope, int], list[int]]) -> tuple[FaultScope, str]:
        table = self._table
        leaf, superpod = table.leaf.item(row), table.superpod.item(row)
        in_superpod, below_leaf = len(at["superpod", superpod]), len(at["leaf", leaf])
        is_all = superpod >= 0 and in_superpod == self._in[superpod]
        if is_all and len(self._leaves[superpod]) > 1:
            return "superpod", table.superpods[superpod]
        if leaf >= 0 and below_leaf >= _GROUP_MIN:
            return "leaf", table.leaves[leaf]
        if leaf < 0 <= superpod and in_superpod >= _GROUP_MIN:
            return "superpod", table.superpods[superpod]
        return "node", table.names[row]


def jobs_on(state: State, nodes: Iterable[str], may_read: MayRead) -> tuple[list[JobRanks], int]:
    """Jobs on nodes with their ranks there, and how many others; see :func:`holdings_on`."""
    named = dict.fromkeys(nodes)
    held, more = holdings_on(state, named, may_read)
    found = []
    for one in held:
        ranks = [rank for rank, pod in enumerate(state.owned(one.key)) if pod.node in named]
        found.append(
            JobRanks(namespace=one.namespace, name=one.name, uid=one.uid, ranks=ranks[:RANKS_MAX], pods=len(ranks))
        )
    return found, more


def holdings_on(state: State, nodes: Iterable[str], may_read: MayRead) -> tuple[list[Holding], int]:
    """What Berth has placed on nodes, by namespace and name: the first that a reader may read, and how many others.

    Args:
        state: The cell.
        nodes: Names of the nodes.
        may_read: Whether the reader may read a namespace.
    """
    keys = dict.fromkeys(key for node in nodes for key in state.faults.attempts_on(node))
    holdings = [state.fold.holdings[key] for key in keys]
    holdings.sort(key=lambda one: (one.namespace, one.name, one.uid, one.attempt))
    shown = [one for one in holdings if may_read(one.namespace)][:JOBS_MAX]
    return shown, len(holdings) - len(shown)
