"""Nodes that can take the chips of a pod, the raw score of each node, and the chips that the pod gets.

A :class:`ChipRule` is a product form compiled for one pod size. Rows are nodes. A mask has 64 bits; bit ``i`` is the
chip with id ``i``. The rule has tables of all masks up to 8 or 16 chip ids and evaluates such a mask with one table
access per row. Other masks are evaluated by the same rule without a table.

Source: docs/reference/nodes-and-chips.md, "Consistency of counts", "Usable chips", "Filters per node" and
"Rules per product".
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.core.chips.affinity import NEVER, Masks, class_of, classes_of
from berth.core.chips.meshes import keeps_mesh
from berth.core.chips.picking import pick_chips
from berth.core.parity import differs
from berth.products.model import Form, Weights
from berth.schemas.ledger import Settings
from berth.schemas.refusal import NodeReason

Reasons = NDArray[np.uint8]
Scores = NDArray[np.int32]

HEALTH_STEP: Final = 1 << 14
"""Weight of an allocatable chip under ``health_first``. It exceeds any difference of raw scores, all below 8,000."""
_PICKS_MAX: Final = 1 << 14
"""Most chip selections that a rule caches."""
_SMALL_IDS: Final = 8
_FITS: Final = int(NodeReason.FITS)
_UNSTABLE: Final = int(NodeReason.UNSTABLE)
_NO_LIST: Final = int(NodeReason.NO_CHIP_LIST)
_TOO_MANY: Final = int(NodeReason.TOO_MANY_CHIPS)
_SHORTAGE: Final = int(NodeReason.SHORTAGE)
_LABEL: Final = int(NodeReason.NODE_LABEL)


class ChipColumns(NamedTuple):
    """Chips of the nodes to evaluate, one row per node. All arrays have shape (rows,).

    Attributes:
        free: ``uint64`` mask of the free list: healthy, not used, not releasing. Network-unhealthy chips are included.
        network: ``uint64`` mask of the network-unhealthy chips.
        network_known: ``bool``; False if the list of network-unhealthy chips is missing.
        unhealthy: ``int16`` number of chips that are reported unhealthy.
        allocatable: ``int16`` number of chips that Kubernetes can allocate on the empty node.
        idle: ``int16`` number of chips that Kubernetes can allocate now; may be negative.
        capacity: ``int16`` number of chips that Kubernetes counts.
        others: ``int16`` number of chips that pods hold and nobody has named: any in ``free`` may be among them.
        unsettled: ``bool``; some of them may be named soon.
    """

    free: Masks
    network: Masks
    network_known: NDArray[np.bool_]
    unhealthy: NDArray[np.int16]
    allocatable: NDArray[np.int16]
    idle: NDArray[np.int16]
    capacity: NDArray[np.int16]
    others: NDArray[np.int16]
    unsettled: NDArray[np.bool_]


class ChipRow(NamedTuple):
    """One row of :class:`ChipColumns` as Python integers."""

    free: int
    network: int
    network_known: bool
    unhealthy: int
    allocatable: int
    idle: int
    capacity: int
    others: int = 0
    unsettled: bool = False


class ChipRule:
    """A product form compiled for pods of one size. :func:`compile_rule` creates it."""

    __slots__ = (
        "_health",
        "_picks",
        "_reason_at",
        "_reasons",
        "_size",
        "_takes_groups",
        "_topology",
        "_unhealthy",
        "_value_at",
        "_values",
        "_weights",
        "chips",
        "distributed",
        "drops",
        "form",
    )

    def __init__(self, form: Form, weights: Weights, *, chips: int, distributed: bool) -> None:
        self.form = form
        self.chips = chips
        self.distributed = distributed
        self.drops = form.drops_network and distributed
        self._weights = weights
        self._health = weights.health
        self._picks: dict[int, tuple[int, ...]] = {}
        self._unhealthy = weights.unhealthy
        self._takes_groups = form.group_size > 1 and chips >= form.group_size
        self._topology = int(NodeReason.TOPOLOGY_HELPED if form.helped else NodeReason.TOPOLOGY)
        self._size = 1 << (8 if form.chip_ids <= _SMALL_IDS else 16)
        self._reasons, self._values = self._judge(np.arange(self._size, dtype=np.uint64))
        self._reason_at = self._reasons.data
        self._value_at = self._values.data

    @property
    def takes_groups(self) -> bool:
        """Whether the pod needs whole rings, pairs, meshes or cards, which one chip of another pod breaks."""
        return self._takes_groups

    @property
    def weights(self) -> Weights:
        """Weights of the terms of a raw score for this pod size."""
        return self._weights

    def evaluate(self, columns: ChipColumns, labelled: NDArray[np.bool_] | None = None) -> tuple[Reasons, Scores]:
        """Reason and raw score of each row.

        Args:
            columns: The nodes; arrays of shape (rows,).
            labelled: ``bool[rows]``, whether each node has the label that the form requires; None means that all have
                it.

        Returns:
            ``uint8[rows]`` of :class:`NodeReason`, and ``int32[rows]`` scores, 0 for a node that does not fit.
        """
        free = columns.free
        usable = free & ~columns.network if self.drops else free
        if int(usable.max(initial=0)) < self._size:
            index = usable.view(np.int64)
            reasons, scores = self._reasons.take(index), self._values.take(index)
        else:
            reasons, scores = self._judge(usable)
        count = np.bitwise_count(free).astype(np.int16)
        if self.drops:
            self._recheck_list(reasons, columns, count)
        np.copyto(reasons, _SHORTAGE, where=columns.idle < self.chips)
        unstable = count > columns.idle + columns.others
        unstable |= columns.idle > columns.capacity
        if self.takes_groups:
            unstable |= columns.unsettled & (reasons == _FITS)
        np.copyto(reasons, _UNSTABLE, where=unstable)
        if labelled is not None and self.form.node_label is not None:
            np.copyto(reasons, _LABEL, where=~labelled & (reasons == _FITS))
        if self._health:
            scores += np.multiply(columns.allocatable, self._health, dtype=np.int32)
        if self._unhealthy:
            scores -= np.multiply(columns.unhealthy, self._unhealthy, dtype=np.int32)
        scores *= reasons == _FITS
        return reasons, scores

    def evaluate_one(self, row: ChipRow, *, labelled: bool = True) -> tuple[int, int]:
        """Reason and raw score of one node. Equal to the result of :meth:`evaluate` for this row."""
        reason = self._check_row(row)
        if reason:
            return reason, 0
        usable = row.free & ~row.network if self.drops else row.free
        if usable < self._size:
            reason, value = self._reason_at[usable], self._value_at[usable]
        else:
            reason, value = self._judge_one(usable)
        if reason:
            return reason, 0
        if row.unsettled and self.takes_groups:
            return _UNSTABLE, 0
        if not labelled and self.form.node_label is not None:
            return _LABEL, 0
        return _FITS, value + self._health * row.allocatable - self._unhealthy * row.unhealthy

    def _check_row(self, row: ChipRow) -> int:
        """Checks that do not depend on the positions of the chips."""
        count = row.free.bit_count()
        if count > row.idle + row.others or row.idle > row.capacity:
            return _UNSTABLE
        if row.idle < self.chips:
            return _SHORTAGE
        if not self.drops:
            return _FITS
        if count > self.form.chips_max:
            return _TOO_MANY
        return _FITS if count and row.network_known else _NO_LIST

    def usable(self, free: int, network: int) -> int:
        """Mask of the chips that the pod may get.

        Source: docs/reference/nodes-and-chips.md, "Usable chips".
        """
        return free & ~network if self.drops else free

    def pick(self, free: int, network: int) -> tuple[int, ...]:
        """Chip ids for the pod on a node that fits, in the order of selection."""
        usable = self.usable(free, network)
        known = self._picks.get(usable)
        if known is None:
            known = pick_chips(self.form, usable, chips=self.chips, distributed=self.distributed)
            if len(self._picks) < _PICKS_MAX:
                self._picks[usable] = known
        return known

    def _judge(self, usable: Masks) -> tuple[Reasons, Scores]:
        """Reason of each mask and the part of its score that depends on the mask alone."""
        form, weights = self.form, self._weights
        count = np.bitwise_count(usable)
        classes = classes_of(form, usable, chips=self.chips, distributed=self.distributed)
        reasons = np.where(classes == NEVER, self._topology, _FITS).astype(np.uint8)
        reasons[count < self.chips] = _SHORTAGE
        foreign = (usable >> np.uint64(form.chip_ids)) != 0 if form.chip_ids < 64 else False  # noqa: PLR2004 - width of a mask
        reasons[(count > form.chips_max) | foreign] = _TOO_MANY
        if not self.drops:
            reasons[count == 0] = _NO_LIST
        scores = np.full(usable.shape, weights.base + weights.asked * self.chips, np.int32)
        scores -= weights.affinity * classes.astype(np.int32)
        scores -= weights.free * count.astype(np.int32)
        scores[reasons != _FITS] = 0
        return reasons, scores

    def _judge_one(self, usable: int) -> tuple[int, int]:
        """Result of :meth:`_judge` for one mask."""
        form, weights = self.form, self._weights
        count = usable.bit_count()
        if count == 0 and not self.drops:
            return _NO_LIST, 0
        if form.is_beyond(usable):
            return _TOO_MANY, 0
        if count < self.chips:
            return _SHORTAGE, 0
        grade = class_of(form, usable, chips=self.chips, distributed=self.distributed)
        if grade == NEVER:
            return self._topology, 0
        return _FITS, weights.base + weights.asked * self.chips - weights.affinity * grade - weights.free * count

    def _recheck_list(self, reasons: Reasons, columns: ChipColumns, count: NDArray[np.int16]) -> None:
        """Check the free list as it is before network-unhealthy chips are removed from it."""
        np.copyto(reasons, _NO_LIST, where=~columns.network_known)
        np.copyto(reasons, _TOO_MANY, where=count > self.form.chips_max)
        np.copyto(reasons, _NO_LIST, where=count == 0)


@lru_cache(maxsize=512)
def _compiled(form: Form, weights: Weights, chips: int, distributed: bool) -> ChipRule:  # noqa: FBT001  # a cache key
    return ChipRule(form, weights, chips=chips, distributed=distributed)


def compile_rule(form: Form, *, chips: int, distributed: bool, settings: Settings) -> ChipRule:
    """Rule of ``form`` for pods with ``chips`` chips. Equal arguments return the same object.

    Args:
        form: A form that this release places, except soft share.
        chips: Number of chips that the pod requests, at least 1.
        distributed: The job has more than one pod with chips.
        settings: Only ``health_first`` and the differences from the reference are read.

    Raises:
        ValueError: ``chips`` is below 1.
    """
    if chips < 1:
        raise ValueError(f"a rule for {chips} chips: at least 1 is needed")
    weights = form.weights if form.rule != "mesh" or keeps_mesh(chips) else form.loose
    if form.own_health_key and not differs(settings).one_health_key:
        weights = Weights(weights.base, weights.health, 0, weights.affinity, weights.free, weights.asked)
    if settings.health_first and differs(settings).health_first:
        health = weights.health + HEALTH_STEP
        weights = Weights(weights.base, health, weights.unhealthy, weights.affinity, weights.free, weights.asked)
    return _compiled(form, weights, chips, distributed)
