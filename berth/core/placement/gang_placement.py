"""The choice of a round: gang by gang, on the merged offers and the dispatcher's own columns.

Each pod goes to the best node at that moment: the better of the best candidate that no earlier pod of the round has
touched, and the best of the touched nodes, which are scored again here. So the answer is the same as if every node had
been scored before every pod. A gang that does not fit whole leaves nothing behind. Pods with chips of a gang with switch or
SuperPoD affinity go where one plan for all of them says.

Longer than 400 lines because plans, single pods and policies of the queue all work on the same view of the nodes.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.chips.soft_share_scoring import pick_chip
from berth.core.errors import guarded
from berth.core.placement.queue_policy import RESERVED, QueuePolicy
from berth.core.placement.scoring import Candidates, RowState, Scorer, counts_of
from berth.core.placement.superpod_placement import BlockRound
from berth.core.placement.switch_placement import LeafRound, code_of
from berth.core.requests.gangs import ClassKey, Gang
from berth.core.state.internal_errors import INTERNAL, SetAside, set_aside
from berth.core.state.superpod_index import BlockGround, ground_of
from berth.core.switches.occupancy.leaf_states import LeafBook
from berth.core.switches.occupancy.leaf_table import LeafTable
from berth.core.switches.planner import TOR_AFFINITY, Plan
from berth.schemas.ledger import Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import BlockPart, Placement, SwitchPart, placement_of
from berth.schemas.refusal import BlockLack, Code, Refusal

MARKS_BYTES_MAX: Final = 4_000_000
"""Bytes of marks of nodes in one offer: half of the largest message that the server takes."""


_NO_LEAVES: Final = LeafTable()


class NeedMoreError(Exception):
    """Offers ran out before the round was decided.

    Attributes:
        shape: Ask again for this shape ...
        count: ... and for so many candidates.
    """

    def __init__(self, shape: Shape, count: int) -> None:
        super().__init__(f"{count} candidates of {shape.form} x {shape.chips} are needed")
        self.shape = shape
        self.count = count


def asks_of(gangs: Sequence[Gang]) -> dict[Shape, int]:
    """Candidates that a round of ``gangs`` may need of each shape.

    A gang touches at most as many nodes as it has pods, so the pods up to and with the last gang of a shape are enough.
    """
    upto: dict[ClassKey, int] = {}
    pods = 0
    for gang in gangs:
        pods += gang.pods
        upto[gang.request_class] = pods
    asks: dict[Shape, int] = {}
    for request_class, count in upto.items():
        for shape, _ in request_class:
            asks[shape] = 0 if shape.is_planned else max(count, asks.get(shape, 0))  # places are offered in their place
    return asks


def askable(gangs: Sequence[Gang], *, nodes: int, bytes_max: int = MARKS_BYTES_MAX) -> Sequence[Gang]:
    """The first gangs, at least one, of whose shapes an offer can tell.

    Where gangs are planned whole, a shard may own all nodes and says of each whether it takes a pod: one bit a node and shape.

    Args:
        gangs: Gangs in queue order.
        nodes: Nodes of the cell.
        bytes_max: Most bytes of such marks in one offer.
    """
    classes: set[ClassKey] = set()
    shapes: set[Shape] = set()
    for index, gang in enumerate(gangs):
        if gang.request_class in classes:
            continue
        classes.add(gang.request_class)
        shapes.update(shape for shape, _ in gang.request_class if shape.is_planned)
        if index and len(shapes) * ((nodes + 7) // 8) > bytes_max:
            return gangs[:index]
    return gangs


class _View:
    """Candidates of one shape while the round goes on."""

    __slots__ = ("count", "found", "heap", "next", "seen")

    def __init__(self, found: Candidates, count: int) -> None:
        self.found = found
        self.count = count
        self.next = 0
        self.seen = 0
        """Entries of the round's log of touched rows that are in the heap."""
        self.heap: list[tuple[int, int, int, int]] = []


class _Planned(NamedTuple):
    """Rows of the pods with chips whose nodes follow from one plan, in the order of ranks, and what the placement says of it."""

    rows: Sequence[int] = ()
    switch: SwitchPart | None = None
    block: BlockPart | None = None


class Chooser:
    """One round.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged while the round goes on.
        views: Merged candidates of each shape of the round.
        asked: How many candidates were asked for each shape.
        leaves: Leaf switches and the jobs on them; without them nothing is known of switches.
        blocks: SuperPoDs, trees, and who is where; without, they follow from the nodes, and nobody is anywhere.
        gate: Policy of the queue; without one everybody gets what it finds.
    """

    def __init__(
        self,
        scorer: Scorer,
        views: Mapping[Shape, Candidates],
        asked: Mapping[Shape, int],
        *,
        leaves: tuple[LeafTable, LeafBook] | None = None,
        blocks: BlockGround | None = None,
        gate: QueuePolicy | None = None,
    ) -> None:
        self._scorer = scorer
        self._ranks = scorer.table.ranks()
        self._views = {shape: _View(found, asked[shape]) for shape, found in views.items()}
        self._rows: dict[int, RowState] = {}
        self._version: dict[int, int] = {}
        self._log: list[int] = []
        self._undo: dict[int, RowState] = {}
        """Rows that the gang in hand has touched, as they were before it."""
        self.setbacks: list[SetAside] = []
        """Gangs that were set aside because of an error."""
        self._refused: dict[ClassKey, Refusal] = {}
        self._failed_task: dict[ClassKey, int] = {}
        self._gate = gate
        self._found: dict[ClassKey, Refusal] = {}
        """What is to be said of the room of classes that may not have it."""
        self._leaves = LeafRound(scorer, *(leaves or (_NO_LEAVES, LeafBook(_NO_LEAVES))))
        self._blocks = BlockRound(scorer, blocks or ground_of(scorer.table))

    def choose(self, gangs: Sequence[Gang], *, missing: Sequence[int] = ()) -> list[Verdict]:
        """Verdicts on the gangs, in their order; once a class is refused, only on those of it that had none before.

        A gang whose decision ends with an error is refused as ``internal``, and its class with it; :attr:`setbacks` has the errors.

        Raises:
            NeedMoreError: The offers do not reach far enough.
        """
        verdicts: list[Verdict] = []
        has_say = self._scorer.settings.strict_product_support or self._gate is not None
        for gang in gangs:
            known = self._refused.get(gang.request_class)
            if known is not None and not (gang.fresh or has_say or gang.invalid):
                continue
            verdicts.extend(self._guarded(gang, known, missing))
        return verdicts

    def _guarded(self, gang: Gang, known: Refusal | None, missing: Sequence[int]) -> list[Verdict]:
        """As :meth:`_verdicts`; an error refuses the gang."""
        self._undo = {}
        return guarded(
            lambda: list(self._verdicts(gang, known, missing)),
            lambda error: [self._set_aside(gang, error)],
            passes=(NeedMoreError,),
        )

    def _verdicts(self, gang: Gang, known: Refusal | None, missing: Sequence[int]) -> Iterator[Verdict]:
        """Verdict on one gang; none when there is nothing new.

        Args:
            gang: The gang.
            known: How its class was refused in this round.
            missing: Shards that did not answer.
        """
        if (away := self._turned_away(gang)) is not None:
            yield _verdict(gang, refusal=away, final=away.code != INTERNAL)
        elif self._gate is not None:
            yield from self._decide_behind(self._gate, gang, known, missing)
        elif known is None:
            yield self._decide(gang, missing)
        elif gang.fresh:
            yield _verdict(gang, refusal=self._named(known, gang))

    def _set_aside(self, gang: Gang, error: Exception) -> Verdict:
        """Refuse a gang and its class because of an error, and leave nothing of it behind."""
        self._roll_back(self._undo)
        self.setbacks.append(SetAside(gang.namespaced_name, error))
        refusal = set_aside(error, pods=gang.pods, form=gang.form, because=gang.form_because)
        self._refused[gang.request_class] = refusal
        self._failed_task[gang.request_class] = 0
        return _verdict(gang, refusal=refusal)

    def _decide_behind(
        self, gate: QueuePolicy, gang: Gang, known: Refusal | None, missing: Sequence[int]
    ) -> Iterator[Verdict]:
        """Verdict on a gang where a policy of the queue has a say; none when there is nothing new."""
        refusal = gate.should_skip(gang) if known is None or gate.is_strict else None
        if refusal is None and known is not None:
            refusal = gate.refused(gang, known)
            if not gate.refusal_changed(gang, refusal):
                return
            refusal = self._named(refusal, gang)
        if refusal is None:
            verdict = self._decide(gang, missing)
            refusal = verdict.refusal
            if refusal is None or refusal.code != RESERVED:
                yield verdict
                return
        if not gate.refusal_changed(gang, refusal):
            return
        found = self._found.get(gang.request_class) if refusal.code == RESERVED else None
        yield _verdict(gang, refusal=refusal if found is None else _kept(found, refusal))

    def _turned_away(self, gang: Gang) -> Refusal | None:
        """Why a gang is never placed, whatever becomes of its class."""
        if gang.invalid is not None or not gang.tor_affinity or not self._scorer.settings.strict_product_support:
            return gang.invalid
        warning = self._leaves.warning(gang) if len(self._leaves.leaves) else ""
        return _outside(gang, warning) if warning else None

    def _decide(self, gang: Gang, missing: Sequence[int]) -> Verdict:
        for shape, _ in gang.request_class:
            error = self._views[shape].found.error
            if error is not None:
                raise error
        planned = self._plan(gang, missing)
        if isinstance(planned, Refusal):
            return self._refuse(gang, _first_planned(gang), planned)
        rows = iter(planned.rows)
        names: list[str] = [""] * gang.pods
        chips: list[tuple[int, ...]] = [()] * gang.pods
        undo = self._undo
        for placed, (index, rank) in enumerate(_seats(gang)):
            shape = gang.request_class[index][0]
            row = next(rows) if shape.is_planned else self._best(shape, undo)
            if row is None:
                self._roll_back(undo)
                return self._refuse(gang, index, self._refusal(gang, index, placed, missing))
            names[rank] = self._scorer.table.names[row]
            chips[rank] = self._put(row, shape, undo)
        share = next((shape.share for shape, _ in gang.request_class if shape.share is not None), None)
        if share is not None:  # now the gang's own pods count as others' do
            for row in undo:
                self._set(row, self._rows[row])
        placement = placement_of(
            names, chips, gang.runs, resource=gang.resource, share=share, switch=planned.switch, block=planned.block
        )
        kept = self._gate.may_start(gang, placement) if self._gate is not None else None
        if kept is not None:
            self._roll_back(undo)
            self._found[gang.request_class] = self._refusal(gang, 0, gang.pods, missing)
            return _verdict(gang, refusal=kept)
        self._leaves.note(gang, placement)
        self._blocks.note(gang, placement)
        return _verdict(gang, placement=placement)

    def _refuse(self, gang: Gang, index: int, refusal: Refusal) -> Verdict:
        """Refuse a gang and its class."""
        self._refused[gang.request_class] = refusal
        self._failed_task[gang.request_class] = index
        return _verdict(gang, refusal=refusal if self._gate is None else self._gate.refused(gang, refusal))

    def _plan(self, gang: Gang, missing: Sequence[int]) -> _Planned | Refusal:
        """Where the pods with chips of a gang with switch or SuperPoD affinity go, all at once; nothing for other gangs."""
        if gang.tor_affinity:
            return self._plan_by_leaf(gang, missing)
        return self._plan_blocks(gang, missing) if gang.blocks is not None else _Planned()

    def _plan_by_leaf(self, gang: Gang, missing: Sequence[int]) -> _Planned | Refusal:
        index = _first_planned(gang)
        if not len(self._leaves.leaves):
            return msgspec.structs.replace(self._refusal(gang, index, 0, missing), code="no-topology")
        grids = [
            self._leaves.usable(shape, self._views[shape].found.usable, self._log, self._rows.__getitem__)
            for shape in _planned_shapes(gang)
        ]
        found = self._leaves.plan(gang, np.logical_and.reduce(grids))
        if isinstance(found, Plan):
            return _Planned(self._leaves.rows(found), switch=self._leaves.part(gang, found))
        refusal = self._refusal(gang, index, 0, missing)
        code = code_of(found.lack) if refusal.code == "no-room" else refusal.code
        return msgspec.structs.replace(refusal, code=code, switch=found.lack)

    def _plan_blocks(self, gang: Gang, missing: Sequence[int]) -> _Planned | Refusal:
        fits = [
            self._blocks.usable(shape, self._views[shape].found.fits, self._log, self._rows.__getitem__)
            for shape in _planned_shapes(gang)
        ]
        found = self._blocks.plan(gang, np.logical_and.reduce(fits), self._rows)
        if isinstance(found, BlockLack):
            refusal = self._refusal(gang, _first_planned(gang), 0, missing)
            code: Code = "no-blocks" if refusal.code == "no-room" else refusal.code
            return msgspec.structs.replace(refusal, code=code, blocks=found)
        return _Planned(found.rows, block=found.part)

    def _named(self, refusal: Refusal, gang: Gang) -> Refusal:
        """The refusal of a class, with the name that the task has in this gang."""
        return msgspec.structs.replace(refusal, task=gang.tasks[self._failed_task[gang.request_class]])

    def _best(self, shape: Shape, undo: Mapping[int, RowState]) -> int | None:
        """Best node for one more pod, by score and then by name; None when no node fits.

        Raises:
            NeedMoreError: Better nodes may be among those that were not offered.
        """
        view = self._views[shape]
        if view.seen < len(self._log):
            rule = self._scorer.rule(shape)
            for row in dict.fromkeys(self._log[view.seen :]):
                if rule is not None and self._rows[row].idle < rule.chips:
                    continue  # it cannot fit, for whatever reason
                reason, score = self._scorer.evaluate_one(shape, row, self._rows[row], undo.get(row))
                if not reason:
                    heapq.heappush(view.heap, (-score, int(self._ranks[row]), row, self._version[row]))
            view.seen = len(self._log)
        heap, rows = view.heap, view.found.rows
        while heap and heap[0][3] != self._version[heap[0][2]]:
            heapq.heappop(heap)
        while view.next < len(rows) and rows[view.next] in self._rows:
            view.next += 1
        if view.next == len(rows):
            if not view.found.exhausted:
                raise NeedMoreError(shape, 2 * view.count + 1)
            return heap[0][2] if heap else None
        row = rows[view.next]
        if heap and heap[0][:2] < (-view.found.scores[view.next], int(self._ranks[row])):
            return heap[0][2]
        return row

    def _put(self, row: int, shape: Shape, undo: dict[int, RowState]) -> tuple[int, ...]:
        """Give a pod of the shape its chips on a node, in the round's own view of it."""
        scorer = self._scorer
        old = self._rows.get(row)
        if old is None:
            old = scorer.row_state(row)
        undo.setdefault(row, old)
        rule = scorer.rule(shape)
        share = old.share
        free, idle = old.free, old.idle
        chips: tuple[int, ...] = ()
        if rule is not None:
            chips = rule.pick(free, int(scorer.table.network[row]))
        elif shape.share is not None and share is not None:
            name = scorer.table.names[row]
            chips = (pick_chip(scorer.shares, shape.share, row, share, name=name, free=free, settings=scorer.settings),)
            share = share.copy()
            share.add(chips[0], shape.share)
        for chip in chips:
            idle -= free >> chip & 1
            free &= ~(1 << chip)
        self._set(
            row,
            RowState(free, idle, old.cpu_free - shape.cpu_milli, old.memory_free - shape.memory_mib, share),
        )
        return chips

    def _set(self, row: int, state: RowState) -> None:
        self._rows[row] = state
        self._version[row] = self._version.get(row, 0) + 1
        self._log.append(row)

    def _roll_back(self, undo: Mapping[int, RowState]) -> None:
        for row, state in undo.items():
            self._set(row, state)

    def _refusal(self, gang: Gang, index: int, placed: int, missing: Sequence[int]) -> Refusal:
        """Why the gang is refused: nodes by reason as they were before it took anything."""
        shape, pods = gang.request_class[index]
        found = self._views[shape].found
        counts = dict(found.counts)
        fit = found.fit
        for row, state in self._rows.items():
            before, _ = self._scorer.evaluate_one(shape, row, self._scorer.row_state(row))
            now, _ = self._scorer.evaluate_one(shape, row, state)
            fit += (not now) - (not before)
            if before:
                counts[before] = counts.get(before, 0) - 1
            if now:
                counts[now] = counts.get(now, 0) + 1
        refusal = Refusal(
            code="no-room",
            task=gang.tasks[index],
            pods_need=gang.pods,
            pods_have=placed,
            chips=shape.chips,
            form=gang.form,
            form_because=gang.form_because,
            nodes_total=found.total,
            nodes_fit=fit,
            counts=counts_of(counts),
            missing_shards=list(missing),
        )
        if missing:
            return refusal
        # Without the corrections of 0.5 the task that found no room is looked at alone.
        order = [index, *range(len(gang.request_class))] if self._scorer.settings.corrected else [index]
        larger = next(
            (task for task in order if _is_larger(self._scorer, gang.request_class, gang.request_class[task][0])), None
        )
        if larger is None:
            return refusal
        shape, pods = gang.request_class[larger]
        need, (nodes, chips) = _chips_needed(gang.request_class, shape), self._scorer.chips_for(shape)
        return msgspec.structs.replace(
            refusal,
            code="larger-than-cluster",
            field=f"tasks[{larger}].replicas",
            value=str(pods),
            expected=f"the job asks for {need} chips of {gang.resource}, and there are {chips} in all, on {nodes} nodes"
            " that it may use",
        )


def _seats(gang: Gang) -> Iterator[tuple[int, int]]:
    """Pods as (task, rank), in the order in which they get their nodes.

    Those whose nodes follow from one plan come first: the others must leave them their cpu and memory.
    """
    has_plan = any(shape.is_planned for shape, _ in gang.request_class)
    for is_planned in (True, False) if has_plan else (False,):
        start = 0
        for index, (shape, pods) in enumerate(gang.request_class):
            if shape.is_planned == is_planned:
                yield from ((index, rank) for rank in range(start, start + pods))
            start += pods


def _first_planned(gang: Gang) -> int:
    """First task whose pods go where a plan says."""
    return next(index for index, (shape, _) in enumerate(gang.request_class) if shape.is_planned)


def _planned_shapes(gang: Gang) -> list[Shape]:
    """Distinct shapes of the pods that go where a plan says."""
    return list(dict.fromkeys(shape for shape, _ in gang.request_class if shape.is_planned))


def _outside(gang: Gang, warning: str) -> Refusal:
    """Why a gang is turned away that its policy does not support."""
    return Refusal(
        code="product-support",
        field=f"labels.{TOR_AFFINITY}",
        value=gang.tor_affinity,
        expected=f"a job that the policy supports (setting strict_product_support): {warning}",
        form=gang.form,
        form_because=gang.form_because,
    )


def _kept(found: Refusal, kept: Refusal) -> Refusal:
    """Refusal of a gang that found room and may not have it.

    Args:
        found: What is to be said of the room.
        kept: For whom it is kept, and from when on.
    """
    return msgspec.structs.replace(
        found, code=kept.code, field="", value="", expected="", ahead=kept.ahead, start_ms=kept.start_ms
    )


def is_larger_than_cluster(scorer: Scorer, request_class: ClassKey) -> bool:
    """Whether the pods of a class need more chips than there are on all nodes that they may use, free or not."""
    return any(_is_larger(scorer, request_class, shape) for shape, _ in request_class)


def _is_larger(scorer: Scorer, request_class: ClassKey, shape: Shape) -> bool:
    """Whether a class needs more chips than there are on the nodes that one of its shapes may use."""
    need = _chips_needed(request_class, shape)
    return need > 0 and need > scorer.chips_for(shape)[1]


def _chips_needed(request_class: ClassKey, shape: Shape) -> int:
    """Chips that a class needs of the nodes that one of its shapes may use."""
    return sum(part.chips * count for part, count in request_class if _uses_same_nodes(part, shape))


def _uses_same_nodes(part: Shape, shape: Shape) -> bool:
    """Whether two shapes with whole chips may use the same nodes, as far as resource, selector and affinity say."""
    if part.share is not None or not part.chips:
        return False
    return (part.resource, part.selector, part.affinity) == (shape.resource, shape.selector, shape.affinity)


def _verdict(
    gang: Gang, *, placement: Placement | None = None, refusal: Refusal | None = None, final: bool = False
) -> Verdict:
    return Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, placement, refusal, final)
