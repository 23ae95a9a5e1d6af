"""Filter and score: which nodes can take a pod of a shape, and how good each is.

The checks run in the order of :class:`NodeReason`; the first one that fails is the reason of the node. Equal scores are
ordered by node name. All rows are evaluated at once, as arrays, or one row in the state that a round has left.

Longer than 400 lines because all rows and single rows must agree check by check.
"""

import copy
import functools
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from berth.core.chips.chip_rules import ChipColumns, ChipRow, ChipRule, compile_rule
from berth.core.chips.soft_share_scoring import share_reasons, share_row
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.least_allocated import least_allocated, least_allocated_one
from berth.core.cluster.node_classes import ClassKey, class_reason, name_fits
from berth.core.cluster.node_names import rows_by_name
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.shape_memory import ShapeMemory
from berth.core.cluster.view import RowState, row_state
from berth.core.errors import brief, guarded
from berth.core.topologies.registry import TOPOLOGIES, topology_of
from berth.products.catalogue import FORMS
from berth.schemas.constraints import Toleration
from berth.schemas.facts import NodeHealth
from berth.schemas.ledger import Settings
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

Reasons = npt.NDArray[np.uint8]
Scores = npt.NDArray[np.int32]
_FITS: Final = int(NodeReason.FITS)
_REASONS: Final = len(NodeReason)
FAILED: Final = 255  # reason of a node class whose evaluation failed with an error
_LEAST: Final = np.int32(np.iinfo(np.int32).min)
_ALL_TAINTS: Final = (Toleration(operator="Exists"),)


class Candidates(NamedTuple):
    """Best rows of a shape in total order (score descending, name ascending), and the other nodes by reason."""

    rows: list[int]
    scores: list[int]
    exhausted: bool
    total: int
    fit: int
    counts: dict[int, int]
    """Nodes that do not fit, by reason."""
    fits: Fits | None = None
    """One mark a row: its node takes a pod; None for shapes that need no marks."""
    error: Exception | None = None
    """Error that ended the scoring of the shape; the other fields are empty then."""
    is_counted: bool = True
    """Whether ``total``, ``fit`` and ``counts`` are known; else they are meaningless."""


def unscored(error: Exception) -> Candidates:
    """Answer for a shape whose scoring ended with an error."""
    return Candidates([], [], exhausted=True, total=0, fit=0, counts={}, error=error)


class _Compiled(NamedTuple):
    shape: Shape
    rule: ChipRule | None
    node_label: tuple[str, str] | None
    by_name: bool


class Scorer:
    """Scoring of one table under one set of settings."""

    def __init__(self, table: NodeTable, shares: SoftShareTable, settings: Settings) -> None:
        self.table = table
        self.shares = shares
        self.settings = settings
        self._compiled: dict[Shape, _Compiled] = {}
        self._class_reasons: dict[Shape, Reasons] = {}
        self._class_errors: dict[Shape, dict[int, Exception]] = {}
        """Errors of node classes, by shape. They are raised only when a node of such a class is evaluated."""
        self._may: dict[Shape, Fits] = {}
        self._reason_lists: dict[Shape, list[int]] = {}  # as ``_class_reasons``; faster for single rows
        kept = self._compiled, self._class_reasons, self._class_errors, self._reason_lists
        self._memory, self._memory_of_may = ShapeMemory(*kept), ShapeMemory(self._may)
        self._places = {topology.name: topology.places() for topology in TOPOLOGIES}

    def on(self, table: NodeTable, shares: SoftShareTable) -> "Scorer":
        """Scoring of a copy of the table with the same nodes, classes and topology, and other free resources."""
        other = copy.copy(self)
        other.table, other.shares = table, shares
        return other

    def part(self, rows: npt.NDArray[np.int64]) -> "Scorer":
        """Scoring of some rows of the table alone, as it is now; a row is then its place among them."""
        table, numbers, drained_ms = copy.copy(self.table), rows.tolist(), self.table.drained_ms
        table.keep_rows(rows)
        table.drained_ms = {index: drained_ms[row] for index, row in enumerate(numbers) if row in drained_ms}
        return self.on(table, self.shares.part(table, numbers))

    def rule(self, shape: Shape) -> ChipRule | None:
        """Chip rule of a shape; None for pods without chips and for soft share."""
        return self._compile(shape).rule

    def evaluate(self, shape: Shape, without: Fits | None = None) -> tuple[Reasons, Scores]:
        """Evaluate every row.

        Args:
            shape: Shape of the pod.
            without: Rows to leave out, shape (rows,); their reasons and scores are undefined. None leaves out no row.

        Returns:
            Reasons and raw scores, both of shape (rows,). The score is 0 where the reason is not ``FITS``. A row
            without a node fact gets ``OTHER_RESOURCE``.
        """
        table = self.table
        rows = table.view()
        compiled = self._compile(shape)
        reasons = self._by_class_of_row(shape, without)
        lost = None if shape.demand is None else self._places[shape.demand.topology].lost(table, shape.demand)
        if lost is not None:
            _fail(reasons, lost, NodeReason.NO_SUPERPOD)
        self._by_name(compiled, reasons)
        if shape.drained_ms:
            drained = table.drained_rows(shape.drained_ms)
            reasons[drained[reasons[drained] == _FITS]] = NodeReason.DRAINED
        level = table.level[rows]
        self._by_level(shape, level, reasons)
        if self.settings.needs_health:
            _fail(reasons, ~table.spoken[rows] & (table.capacity[rows] > 0), NodeReason.HEALTH_UNKNOWN)
        if shape.cpu_milli:
            _fail(reasons, table.cpu_free[rows] < shape.cpu_milli, NodeReason.CPU)
        if shape.memory_mib:
            _fail(reasons, table.memory_free[rows] < shape.memory_mib, NodeReason.MEMORY)
        if compiled.rule is not None:
            chip_reasons, scores = compiled.rule.evaluate(self._columns(), self._labelled(compiled))
        elif shape.share is not None:
            chip_reasons, scores = share_reasons(self.table, self.shares, shape, self.settings)
        else:
            chip_reasons, scores = reasons, least_allocated(table, shape)
        if reasons.any():
            np.copyto(chip_reasons, reasons, where=reasons != _FITS)
            scores *= chip_reasons == _FITS
        if compiled.rule is not None or shape.share is not None:
            scores -= (level == NodeHealth.SUB_HEALTHY) & (scores > 0)  # as _deduction
        return chip_reasons, scores

    def _by_level(self, shape: Shape, level: npt.NDArray[np.uint8], reasons: Reasons) -> None:
        if level.any():
            _fail(reasons, level >= NodeHealth.NO_NEW_WORK, NodeReason.NODE_FAULT)
            if shape.sub_health != "ignore":
                _fail(reasons, level == NodeHealth.SUB_HEALTHY, NodeReason.SUB_HEALTH)

    def best(self, shape: Shape) -> tuple[int, int] | None:
        """Row and score of the best node; None when no node fits."""
        reasons, scores = self.evaluate(shape)
        graded = np.where(reasons == _FITS, scores, _LEAST)
        if not len(graded):
            return None
        first = int(graded.argmax())
        top = int(graded[first])
        if reasons[first] != _FITS:
            return None
        equal = np.flatnonzero(graded == top)
        return int(equal[self.table.ranks()[equal].argmin()]), top

    def candidates(self, shape: Shape, count: int, *, without: Fits | None = None) -> Candidates:
        """The best ``count`` rows in total order; for a shape that needs marks also those of all rows that fit.

        An error is returned in the result, so that it ends the scoring of this shape only.

        Args:
            shape: Shape of the pod.
            count: Upper bound of the rows.
            without: Rows of shards that did not answer, shape (rows,); None for no such row.
        """
        return guarded(lambda: self._candidates(shape, count, without), unscored)

    def _candidates(self, shape: Shape, count: int, without: Fits | None) -> Candidates:
        reasons, scores = self.evaluate(shape, without)
        if without is not None:
            reasons = np.where(without, np.uint8(NodeReason.SHARD_MISSING), reasons)
        counts = np.bincount(reasons[self.table.present[self.table.view()]], minlength=_REASONS).tolist()
        rows = np.flatnonzero(reasons == _FITS)  # none of them without a node fact
        fit = len(rows)
        key = (-scores[rows].astype(np.int64) << 32) | self.table.ranks()[rows].astype(np.int64)
        if fit > count:
            part = np.argpartition(key, count)[:count] if count else np.empty(0, np.int64)
            rows, key = rows[part], key[part]
        order = np.argsort(key, kind="stable")
        chosen = rows[order]
        return Candidates(
            rows=chosen.tolist(),
            scores=scores[chosen].tolist(),
            exhausted=fit <= count,
            total=sum(counts),
            fit=fit,
            counts={reason: nodes for reason, nodes in enumerate(counts) if nodes and reason != _FITS},
            fits=reasons == _FITS if shape.needs_marks else None,
        )

    def may_fit(self, shape: Shape, pods: int) -> bool:
        """Whether enough chips are free for the pods of a shape: a fast check, true whenever ``pods`` fit."""
        if shape.share is not None or not shape.chips:
            return True
        table = self.table
        fits = self.evaluate(shape)[0] == NodeReason.FITS
        room = np.bitwise_count(table.free[table.view()][fits]).astype(np.int64) // shape.chips
        return int(room.sum()) >= pods

    def chips_for(self, shape: Shape) -> tuple[int, int]:
        """Count the nodes that a shape may use by resource, selector and affinity, and all their chips, free or not."""
        table = self.table
        if not table.classes:
            return 0, 0
        rows = table.view()
        may = self._may_use(shape)
        chosen = may.take(table.node_class[rows], mode="wrap") & table.present[rows]
        return int(chosen.sum()), int(table.capacity[rows][chosen].sum())

    def _may_use(self, shape: Shape) -> Fits:
        """Node classes that a shape may use by resource, selector and affinity, shape (classes,)."""
        classes = self.table.classes
        known = self._may.get(shape)
        if known is None or len(known) != len(classes):
            self._memory_of_may.count(shape, len(classes))
            bare = msgspec.structs.replace(shape, tolerations=_ALL_TAINTS)
            # An error counts as no here: evaluate() raises it.
            may = (guarded(functools.partial(_may_use, bare, key), lambda _: False) for key in classes)
            known = self._may[shape] = np.fromiter(may, np.bool_, len(classes))
        return known

    def row_state(self, row: int) -> RowState:
        """State of a row in the table."""
        return row_state(self.table, self.shares.nodes, row)

    def evaluate_one(self, shape: Shape, row: int, state: RowState, base: RowState | None = None) -> tuple[int, int]:
        """Evaluate one row in a given state.

        Args:
            shape: Shape of the pod.
            row: The node.
            state: Its current state.
            base: Its state before the current gang took anything; soft share computes the capacity from it.

        Returns:
            Reason and raw score.
        """
        table = self.table
        compiled = self._compile(shape)
        reason = self._class_reason_of(compiled, row) or self._plain_reason(shape, row, state)
        if reason:
            return reason, 0
        if compiled.rule is None:
            reason, score = self._share_one(shape, row, state, base)
            return reason, score - self._deduction(row, score) if shape.share is not None else score
        chips = self.chip_row(row, state)
        label = compiled.node_label
        labelled = label is None or table.labels(row).get(label[0]) == label[1]
        reason, score = compiled.rule.evaluate_one(chips, labelled=labelled)
        return reason, score - self._deduction(row, score)

    def chip_row(self, row: int, state: RowState) -> ChipRow:
        """Chips of a node in some state, as rules for chips see them."""
        table = self.table
        return ChipRow(
            state.free,
            table.network.item(row),
            table.network_known.item(row),
            table.unhealthy_count.item(row),
            table.allocatable.item(row),
            state.idle,
            table.capacity.item(row),
            table.chips_others.item(row),
            table.unsettled.item(row),
        )

    def _deduction(self, row: int, score: int) -> int:
        """What the score of a sub-healthy node for a pod with chips loses; it does not become negative.

        Source: docs/reference/nodes-and-chips.md, "Scores".
        """
        return int(score > 0 and self.table.level.item(row) == NodeHealth.SUB_HEALTHY)

    def _plain_reason(self, shape: Shape, row: int, state: RowState) -> int:
        """Reason other than the class and the chips of a node."""
        level = self.table.level.item(row)
        if level >= NodeHealth.NO_NEW_WORK:
            return int(NodeReason.NODE_FAULT)
        if level == NodeHealth.SUB_HEALTHY and shape.sub_health != "ignore":
            return int(NodeReason.SUB_HEALTH)
        if self.settings.needs_health and not self.table.spoken.item(row) and self.table.capacity.item(row):
            return int(NodeReason.HEALTH_UNKNOWN)
        # A pod that asks for none fits on a node that is over-committed.
        if shape.cpu_milli and shape.cpu_milli > state.cpu_free:
            return int(NodeReason.CPU)
        if shape.memory_mib and shape.memory_mib > state.memory_free:
            return int(NodeReason.MEMORY)
        return _FITS

    def _share_one(self, shape: Shape, row: int, state: RowState, base: RowState | None) -> tuple[int, int]:
        if shape.share is None:
            return _FITS, least_allocated_one(self.table, shape, row, state)
        before = base.share if base is not None else None
        return share_row(self.shares, shape, row, free=state.free, now=state.share, base=before, settings=self.settings)

    def _compile(self, shape: Shape) -> _Compiled:
        compiled = self._compiled.get(shape)
        if compiled is None:
            self._memory.count(shape, 0)
            form = FORMS[shape.form] if shape.form else None
            rule = None
            if form is not None and shape.share is None and shape.chips:
                rule = compile_rule(form, chips=shape.chips, distributed=shape.uses_network, settings=self.settings)
            label = form.node_label if form is not None else None
            compiled = self._compiled[shape] = _Compiled(shape, rule, label, shape.names_nodes)
        return compiled

    def by_class(self, shape: Shape) -> Reasons:
        """Reason of each node class, shape (classes,), at least one entry."""
        known = self._class_reasons.get(shape)
        classes = self.table.classes
        if known is None or len(known) != len(classes):
            self._memory.count(shape, len(classes))
            found = [self._judged(shape, index, key) for index, key in enumerate(classes)]
            known = np.array(found or [NodeReason.FITS], np.uint8)
            if classes:  # the placeholder entry must not be cached for the first class
                self._class_reasons[shape] = known
        return known

    def _judged(self, shape: Shape, index: int, key: ClassKey) -> int:
        """Reason of a node class; ``FAILED`` when its evaluation fails with an error."""

        def failed(error: Exception) -> int:
            self._class_errors.setdefault(shape, {})[index] = error
            return FAILED

        return guarded(lambda: int(self._reason_of(shape, key)), failed)

    def _by_class_of_row(self, shape: Shape, without: Fits | None) -> Reasons:
        """Reason of the class of each row.

        Raises:
            Exception: The error of a class whose nodes are evaluated; of several errors the first by text.
        """
        table = self.table
        rows = table.view()
        reasons: Reasons = self.by_class(shape).take(table.node_class[rows], mode="wrap")
        np.copyto(reasons, int(NodeReason.OTHER_RESOURCE), where=~table.present[rows])
        if without is not None:
            np.copyto(reasons, int(NodeReason.SHARD_MISSING), where=without)
        errors = self._class_errors.get(shape)
        bad = np.flatnonzero(reasons == FAILED) if errors else ()
        if errors and len(bad):
            error = min((errors[int(index)] for index in np.unique(table.node_class[bad])), key=brief)
            raise error
        return reasons

    def _reason_of(self, shape: Shape, key: ClassKey) -> NodeReason:
        """Reason of a node class."""
        reason = class_reason(shape, key)
        if reason or shape.demand is None:
            return reason
        return topology_of(shape.demand).class_reason(shape.demand, dict(key.labels), self.settings)

    def _by_name(self, compiled: _Compiled, reasons: Reasons) -> None:
        if compiled.by_name:
            _fail(reasons, ~rows_by_name(self.table, compiled.shape), NodeReason.SELECTOR)

    def _class_reason_of(self, compiled: _Compiled, row: int) -> int:
        table = self.table
        if not table.present.item(row):
            return int(NodeReason.OTHER_RESOURCE)
        known = self._reason_lists.get(compiled.shape)
        if known is None or len(known) != len(table.classes):
            known = self._reason_lists[compiled.shape] = list(map(int, self.by_class(compiled.shape)))
        reason = known[table.node_class.item(row)]
        if reason == FAILED:
            raise self._class_errors[compiled.shape][table.node_class.item(row)]
        demand = compiled.shape.demand
        if not (reason or demand is None or self._places[demand.topology].has(table, demand, row)):
            return int(NodeReason.NO_SUPERPOD)
        if not reason and compiled.by_name and not name_fits(compiled.shape, table.names[row], table.labels(row)):
            return int(NodeReason.SELECTOR)
        if not reason and 0 < table.drained_ms.get(row, 0) <= compiled.shape.drained_ms:
            return int(NodeReason.DRAINED)
        return reason

    def _columns(self) -> ChipColumns:
        table = self.table
        rows = table.view()
        return ChipColumns(
            free=table.free[rows],
            network=table.network[rows],
            network_known=table.network_known[rows],
            unhealthy=table.unhealthy_count[rows],
            allocatable=table.allocatable[rows],
            idle=table.idle[rows],
            capacity=table.capacity[rows],
            others=table.chips_others[rows],
            unsettled=table.unsettled[rows],
        )

    def _labelled(self, compiled: _Compiled) -> npt.NDArray[np.bool_] | None:
        if compiled.node_label is None:
            return None
        name, value = compiled.node_label
        by_class = np.array([dict(key.labels).get(name) == value for key in self.table.classes] or [False], np.bool_)
        return by_class.take(self.table.node_class[self.table.view()], mode="wrap")


def _may_use(shape: Shape, key: ClassKey) -> bool:
    return class_reason(shape, key) not in {NodeReason.OTHER_RESOURCE, NodeReason.SELECTOR}


def _fail(reasons: Reasons, where: npt.NDArray[np.bool_], reason: NodeReason) -> None:
    np.copyto(reasons, int(reason), where=where & (reasons == _FITS))
