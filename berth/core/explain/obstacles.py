"""What keeps the nodes of a job's own product from its pods, by name: labels, taints, and chips that are not usable.

A refusal in the ledger has numbers alone: names of labels in it would make an anonymised recording decide otherwise.
The names are found here, on the state as it is when somebody is told.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from berth.core.chips.chip_rules import ChipRow
from berth.core.cluster.node_classes import (
    ClassKey,
    class_reason,
    selects_labels,
    untolerated,
)
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.shape_memory import ShapeMemory
from berth.core.explain.refusal_text import NO_PARTS, Parts, room_words, sentence, with_start
from berth.core.explain.selection_text import Condition, by_name, conditions, none_has
from berth.core.gangs import Gang
from berth.core.placement.scoring import Scorer
from berth.schemas.constraints import Taint
from berth.schemas.offers import Shape
from berth.schemas.refusal import Code, NodeReason, ReasonCount, Refusal

_OF_NODES: Final[frozenset[Code]] = frozenset(
    {"no-room", "larger-than-cluster", "no-blocks", "no-leaf", "no-rows", "no-leaves", "reserved"}
)
"""Refusals that count nodes."""
_TASK: Final = re.compile(r"tasks\[(\d+)\]\.replicas")
_BEFORE_SELECTOR: Final = frozenset({NodeReason.NOT_READY, NodeReason.CORDONED})
_OF_LABELS: Final = frozenset({*_BEFORE_SELECTOR, NodeReason.SELECTOR, NodeReason.TAINT})
_OF_CHIPS: Final = (NodeReason.SHORTAGE, NodeReason.TOPOLOGY, NodeReason.TOPOLOGY_HELPED, NodeReason.NO_CHIP_LIST)
_SENTENCES_MAX: Final = 1024
_ENCODER: Final = msgspec.msgpack.Encoder()
_PARTS_MAX: Final = 4
"""Labels or taints that are named; nodes beyond have the general words."""

Ints = npt.NDArray[np.int64]
Part = tuple[int, str]
"""Nodes, and why they take no pod: the end of a sentence that begins with their number."""


class Named(NamedTuple):
    """A refusal that counts nodes of the job's own product.

    Attributes:
        refusal: The refusal.
        parts: Words by reason, for some of its nodes; the others have the general words.
        none: What no node has although the job asks for it, as a sentence; empty if some node has all of it.
    """

    refusal: Refusal
    parts: Parts = NO_PARTS
    none: str = ""


class _Kind(NamedTuple):
    """What the labels and taints of a class of nodes are to a shape."""

    is_own: bool = False
    """Of the resource."""
    is_selected: bool = False
    is_other_product: bool = False
    """Not selected, because it is of another product."""
    words: str = ""
    """What it lacks, or its taint; empty without."""
    moved: int = 0
    """Reason that comes before the selector in the checks; such a node counts as not selected."""


_OTHER: Final = _Kind()


class _Kinds(NamedTuple):
    """Kinds of all classes of nodes, for one shape."""

    kinds: list[_Kind]
    of_class: npt.NDArray[np.int32]
    """Index of its kind, by class."""
    wanted: Sequence[Condition]


class Namer:
    """Names what refusals count. It remembers what labels and taints are to a shape, marked rows, and sentences.

    Args:
        scorer: Scoring on the state.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._kinds: dict[Shape, _Kinds] = {}
        self._none: dict[Shape, tuple[bytes, str]] = {}
        self._usual: dict[bytes, str] = {}
        """Sentences that name nothing, by the encoded refusal: classes that differ in little are refused alike."""
        self._memory = ShapeMemory(self._kinds, self._none)
        self._revision = -1
        self._rows = np.empty(0, np.int64)
        """Result of :meth:`_marked` at that revision of the table."""

    def sentence(self, refusal: Refusal, gang: Gang) -> str:
        """A refusal in one sentence that names what is in the way; where nothing is to be named, the usual one.

        Args:
            refusal: The refusal, as of the state of the scorer.
            gang: The gang that is refused.
        """
        if refusal.code not in _OF_NODES or not refusal.nodes_total or gang.invalid is not None:
            return self._usual_words(refusal)
        reasons = {count.reason for count in refusal.counts}
        has_marks = not reasons.isdisjoint(_OF_CHIPS) and len(self._marked()) > 0
        if reasons.isdisjoint(_OF_LABELS) and not has_marks and refusal.code != "larger-than-cluster":
            return self._usual_words(refusal)
        larger = _TASK.fullmatch(refusal.field) if refusal.code == "larger-than-cluster" else None
        index = int(larger[1]) if larger else gang.tasks.index(refusal.task) if refusal.task in gang.tasks else 0
        if index >= len(gang.request_class):
            return self._usual_words(refusal)
        found = self.named(refusal, gang.request_class[index][0])
        if not found.none:
            return sentence(found.refusal, found.parts)
        words = f"{room_words(refusal)}: {found.none}" if refusal.code == "no-room" else found.none
        return with_start(words, refusal)

    def named(self, refusal: Refusal, shape: Shape) -> Named:
        """Name what a refusal counts.

        Nodes of other products are left out, unless there are no others. A node that the job does not select counts as
        such, whether or not it is ready.

        Args:
            refusal: The refusal, as of the state of the scorer.
            shape: The pods that find no room.
        """
        table = self._scorer.table
        rows = table.view()
        kinds, of_class, wanted = self._kinds_of(shape)
        present = table.node_class[rows][table.present[rows]]
        numbers = np.bincount(of_class[present], minlength=len(kinds)).tolist()
        seen = [(kind, nodes) for kind, nodes in zip(kinds, numbers, strict=True) if nodes and kind.is_own]
        if wanted and seen and not any(kind.is_selected for kind, _ in seen):
            return Named(refusal, none=self._none_has(shape, wanted, present))
        moved: Counter[int] = Counter()
        unlike: Counter[str] = Counter()
        taints: Counter[str] = Counter()
        others = 0
        for kind, nodes in seen:
            moved[kind.moved] += nodes
            others += nodes * kind.is_other_product
            if kind.words and not kind.is_other_product:
                (taints if kind.is_selected else unlike)[kind.words] += nodes
        del moved[0]
        counts = {count.reason: count.nodes for count in refusal.counts}
        result = _of_own_product(refusal, counts, moved, others)
        parts: dict[int, Sequence[Part]] = {
            NodeReason.SELECTOR: _most_common(unlike),
            NodeReason.TAINT: _most_common(taints),
        }
        named = by_name(shape, table)
        if named:
            left = max(counts.get(NodeReason.SELECTOR, 0) - sum(unlike.values()), 0)
            parts[NodeReason.SELECTOR] = [*parts[NodeReason.SELECTOR], (left, f"do not have {named}")]
        if any(counts.get(reason) for reason in _OF_CHIPS) and len(self._marked()):
            parts |= _unusable(shape, self._scorer, self._marked())
        return Named(result, parts)

    def _usual_words(self, refusal: Refusal) -> str:
        """A refusal in one sentence, from memory if it has been said."""
        key = _ENCODER.encode(refusal)
        words = self._usual.get(key)
        if words is None:
            if len(self._usual) >= _SENTENCES_MAX:
                self._usual.clear()
            words = self._usual[key] = sentence(refusal)
        return words

    def _marked(self) -> Ints:
        """Rows with chips that are not usable although no pod has them."""
        table = self._scorer.table
        if self._revision != table.revision:
            rows = table.changed_since(self._revision)
            self._revision = table.revision
            network = table.network[rows] & table.chips[rows]
            marked = table.present[rows] & ((_bad(table, rows) != 0) | (network != 0))
            if len(self._rows) or marked.any():
                self._rows = np.union1d(np.setdiff1d(self._rows, rows, assume_unique=True), rows[marked])
        return self._rows

    def _kinds_of(self, shape: Shape) -> _Kinds:
        classes = self._scorer.table.classes
        known = self._kinds.get(shape)
        if known is None or len(known.of_class) != len(classes):
            self._memory.count(shape, len(classes))
            wanted = conditions(shape)
            index: dict[_Kind, int] = {}
            of_class = [index.setdefault(_kind(shape, key, wanted), len(index)) for key in classes]
            known = self._kinds[shape] = _Kinds(list(index), np.array(of_class, np.int32), wanted)
        return known

    def _none_has(self, shape: Shape, wanted: Sequence[Condition], present: npt.NDArray[np.int32]) -> str:
        """What no node has; the same nodes have it from memory."""
        classes = self._scorer.table.classes
        numbers = np.bincount(present, minlength=len(classes))
        mark = numbers.tobytes()
        known = self._none.get(shape)
        if known is None or known[0] != mark:
            own = [
                (dict(key.labels), nodes)
                for key, nodes in zip(classes, numbers.tolist(), strict=True)
                if nodes and shape.resource in {"", key.resource}
            ]
            known = self._none[shape] = (mark, none_has(shape, wanted, own))
        return known[1]


def _kind(shape: Shape, key: ClassKey, wanted: Sequence[Condition]) -> _Kind:
    if shape.resource and key.resource != shape.resource:
        return _OTHER
    labels = dict(key.labels)
    if selects_labels(shape, labels):
        taints = untolerated(shape, key) if class_reason(shape, key) == NodeReason.TAINT else ()
        return _Kind(is_own=True, is_selected=True, words=_taint_words(taints[0]) if taints else "")
    reason = class_reason(shape, key)
    first = next((one for one in wanted if not one.holds(labels)), None)
    return _Kind(
        is_own=True,
        is_other_product=first is not None and first.is_of_product,
        words=first.lacking if first is not None else "",
        moved=int(reason) if reason in _BEFORE_SELECTOR else 0,
    )


def _of_own_product(refusal: Refusal, counts: dict[int, int], moved: Mapping[int, int], others: int) -> Refusal:
    """A refusal without nodes of other products, those that the job does not select with the others of that reason."""
    for reason, nodes in moved.items():
        taken = min(nodes, counts.get(reason, 0))
        counts[reason] = counts.get(reason, 0) - taken
        counts[NodeReason.SELECTOR] = counts.get(NodeReason.SELECTOR, 0) + taken
    others = min(others, counts.get(NodeReason.SELECTOR, 0))
    counts[NodeReason.SELECTOR] = counts.get(NodeReason.SELECTOR, 0) - others
    return msgspec.structs.replace(
        refusal,
        nodes_total=refusal.nodes_total - others,
        counts=[ReasonCount(reason, nodes) for reason, nodes in counts.items() if nodes > 0],
    )


def _taint_words(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"have the taint {taint.key}{value}:{taint.effect}, which the job does not tolerate"


def _most_common(words: Counter[str]) -> list[Part]:
    """The words of most nodes."""
    ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return [(nodes, said) for said, nodes in ranked[:_PARTS_MAX]]


def _bad(table: NodeTable, rows: slice | Ints) -> npt.NDArray[np.uint64]:
    """Chips of each row that are unhealthy or withheld, and that no pod has."""
    bad = (table.unhealthy[rows] | table.withheld[rows]) & table.chips[rows]
    return bad & ~(table.used[rows] | table.releasing[rows])


def _unusable(shape: Shape, scorer: Scorer, marked: Ints) -> dict[int, Sequence[Part]]:
    """Nodes, by reason, that would take a pod if chips of theirs without a network, or unhealthy ones, were usable."""
    table, rule = scorer.table, scorer.rule(shape)
    if rule is None:
        return {}
    bad = _bad(table, table.view())
    reasons = scorer.evaluate(shape)[0]
    found: dict[int, Counter[str]] = {}
    for row in marked[np.isin(reasons[marked], _OF_CHIPS)].tolist():
        words = f"have fewer than {shape.chips} free chips beside"
        free, reason = table.free.item(row), int(reasons[row])
        chips = ChipRow(
            free,
            0,
            True,  # noqa: FBT003  # fields of a row, in their order
            table.unhealthy_count.item(row),
            table.allocatable.item(row),
            table.idle.item(row),
            table.capacity.item(row),
        )
        whole = chips._replace(free=free | int(bad[row]), idle=chips.idle + int(bad[row]).bit_count())
        if table.network.item(row) & free and not rule.evaluate_one(chips, labelled=True)[0]:
            found.setdefault(reason, Counter())[f"{words} network-unhealthy ones"] += 1
        elif bad[row] and not rule.evaluate_one(whole, labelled=True)[0]:
            found.setdefault(reason, Counter())[f"{words} unhealthy ones"] += 1
    return {reason: _most_common(words) for reason, words in found.items()}
