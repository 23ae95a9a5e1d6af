"""One round: places gangs in queue order, on the merged offers and the dispatcher's own columns.

A gang goes through these steps; each is in the module of its name:

1. ``planned_pods``: one plan for all pods with chips of a gang with switch or SuperPoD affinity;
2. ``single_pods``: the best node for each other pod, or ``near_pods`` for pods without chips beside pods with chips;
   ``round_nodes`` keeps what the pods take;
3. the queue policy (``queue_policy``) allows the start or refuses it;
4. ``round_refusals``: a gang that does not fit whole is refused, and everything that its pods took is returned.

Pods of placed gangs that need new places come before the gangs: ``replacements``.

Longer than 400 lines because the queue policy has a verdict at each of the steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.constraint_round import ConstraintRound, ConstraintView, no_constraints
from berth.core.errors import guarded
from berth.core.parity import differs
from berth.core.placement.constrained_pods import ConstrainedPods, Home
from berth.core.placement.near_pods import NearPods
from berth.core.placement.planned_pods import PlannedPods, PlannedRows, RoundParts, first_planned, planned_shapes
from berth.core.placement.queue_policy import NOTHING_KEPT, RESERVED, KeptRoom, QueuePolicy
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.round_refusals import RoundRefusals, unsupported_product, with_reservation
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.placement.single_pods import SinglePods
from berth.core.requests.gangs import ClassKey, Gang, tasks_in_order
from berth.core.state.internal_errors import SetAside, set_aside
from berth.core.state.superpod_index import BlockInputs, inputs_without_jobs
from berth.core.topologies.switches.demand import is_by_leaf
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.schemas.ledger import Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import ClaimVolume, Placement, placement_of
from berth.schemas.refusal import INTERNAL, Refusal

_NO_LEAVES: Final = LeafTable()


class NotPlaced(NamedTuple):
    """Why a gang has no placement."""

    task: int
    """Index of the task that found no room."""
    refusal: Refusal


class Verdicts(NamedTuple):
    """Verdicts on the gangs of a turn."""

    verdicts: list[Verdict]
    set_aside: Sequence[SetAside]
    """Errors, each with the gang that was set aside for it."""


class PlacementRound:
    """One round.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged during the round.
        views: Merged candidates of each shape of the round.
        counts: How many candidates were asked for, by shape.
        leaves: Leaf switches and the jobs on them; None when no leaf switches are known.
        blocks: SuperPoDs, trees of levels, and the jobs on them; None derives them from the nodes, without jobs.
        policy: Queue policy; None lets every gang start that finds room.
        constraints: Constraints of pods; None where there are none.
        counted: Nodes by reason for a shape, as offers would have them; None: all nodes are offered.
    """

    def __init__(
        self,
        scorer: Scorer,
        views: Mapping[Shape, Candidates],
        counts: Mapping[Shape, int],
        *,
        leaves: tuple[LeafTable, LeafOccupancy] | None = None,
        blocks: BlockInputs | None = None,
        policy: QueuePolicy | None = None,
        constraints: ConstraintView | None = None,
        counted: Callable[[Shape], Candidates] | None = None,
    ) -> None:
        self._scorer = scorer
        self._views = views
        self._counts = counts
        self._policy = policy
        self._nodes = RoundNodes(scorer)
        self._constraints = ConstraintRound(constraints or no_constraints(scorer.table), self._nodes)
        marked = self._marked = ConstrainedPods(self._nodes, views, self._constraints)
        self._single = SinglePods(self._nodes, views, counts, self._constraints.is_full)
        self._refusals = RoundRefusals(
            self._nodes, views, marked.forbidden, marked.constraint_counts, self._constraints.obstacle, counted
        )
        blocks = blocks or inputs_without_jobs(scorer.table)
        self._of_job = blocks.colocation.of_job
        self._planned = PlannedPods(
            self._nodes,
            views,
            self._refusals,
            leaves=leaves or (_NO_LEAVES, LeafOccupancy(_NO_LEAVES)),
            blocks=blocks,
            by_name=marked.by_name,
        )
        self._refused: dict[ClassKey, Refusal] = {}
        self._failed_task: dict[ClassKey, int] = {}
        self._reserved: dict[ClassKey, Refusal] = {}
        """Nodes by reason, for classes that found nodes which are reserved."""
        self._kept_out: dict[tuple[ClassKey, int], Refusal] = {}
        """Refusals of gangs without chips whose room reservations count, by class and declared run time."""
        self._errors: list[SetAside] = []
        self._avoided: frozenset[int] = frozenset()
        """Rows that the current gang leaves out, and ..."""
        self._beside: SinglePods | None = None
        """... the best nodes besides; None if it leaves out none."""

    def choose(self, gangs: Sequence[Gang], *, missing: Sequence[int] = ()) -> Verdicts:
        """Verdicts on the gangs, in their order.

        Once a class is refused, its further gangs get a verdict only if they have none yet. A gang whose decision ends
        with an error is refused as ``internal`` together with its class.

        Args:
            gangs: Gangs in queue order.
            missing: Shards that did not answer.

        Raises:
            NeedMoreError: The candidates end before the round is decided.
        """
        verdicts: list[Verdict] = []
        is_asked = self._scorer.settings.strict_product_support or self._policy is not None
        for gang in gangs:
            known = self._refused.get(gang.request_class)
            if known is not None and not (gang.fresh or is_asked or gang.invalid):
                continue
            verdicts.extend(self._guarded(gang, known, missing))
        return Verdicts(verdicts, self._errors)

    def parts(self) -> RoundParts:
        """What new places for pods of placed gangs are chosen from; they come before the gangs of the round."""
        return RoundParts(
            self._nodes,
            self._views,
            self._counts,
            self._single,
            self._refusals,
            self._planned,
            self._marked,
            self._nodes.begin_gang,
            self._nodes.roll_back_gang,
            self._returned,
        )

    def _guarded(self, gang: Gang, known: Refusal | None, missing: Sequence[int]) -> list[Verdict]:
        """As :meth:`_verdicts`; an error refuses the gang."""
        self._nodes.begin_gang()
        return guarded(
            lambda: list(self._verdicts(gang, known, missing)),
            lambda error: [self._set_aside(gang, error)],
            passes=(NeedMoreError,),
        )

    def _returned(self, gang: Gang, error: Exception) -> Refusal:
        """Refusal because of an error; everything that the pods of the gang took is returned."""
        self._nodes.roll_back_gang()
        self._errors.append(SetAside(gang.namespaced_name, error))
        return set_aside(error, pods=gang.pods, form=gang.form, because=gang.form_because)

    def _set_aside(self, gang: Gang, error: Exception) -> Verdict:
        """Refuse a gang and its class because of an error, and return everything that its pods took."""
        refusal = self._returned(gang, error)
        self._refused[gang.request_class] = refusal
        self._failed_task[gang.request_class] = 0
        return _verdict(gang, refusal=refusal)

    def _verdicts(self, gang: Gang, known: Refusal | None, missing: Sequence[int]) -> Iterator[Verdict]:
        """Verdict on one gang; none when nothing is new.

        Args:
            gang: The gang.
            known: How its class was refused in this round.
            missing: Shards that did not answer.
        """
        if (rejected := self._rejected(gang)) is not None:
            yield _verdict(gang, refusal=rejected, final=rejected.code != INTERNAL)
        elif self._policy is not None and gang.is_plain:
            yield from self._decide_plain(self._policy, gang, known, missing)
        elif self._policy is not None:
            yield from self._decide_under(self._policy, gang, known, missing)
        elif known is None:
            yield self._decide(gang, missing)
        elif gang.fresh:
            yield _verdict(gang, refusal=self._named(known, gang))

    def _rejected(self, gang: Gang) -> Refusal | None:
        """Why a gang is never placed, independent of its class."""
        if gang.invalid is not None or not is_by_leaf(gang.demand) or not self._scorer.settings.strict_product_support:
            return gang.invalid
        warning = self._planned.support_warning(gang)
        return unsupported_product(gang, warning) if warning else None

    def _decide_under(
        self, policy: QueuePolicy, gang: Gang, known: Refusal | None, missing: Sequence[int]
    ) -> Iterator[Verdict]:
        """Verdict on a gang under a queue policy; none when nothing is new."""
        refusal = policy.should_skip(gang) if known is None or policy.is_strict else None
        if refusal is None and known is not None:
            refusal = policy.refused(gang, known)
            if not policy.refusal_changed(gang, refusal):
                return
            refusal = self._named(refusal, gang)
        if refusal is None:
            verdict = self._decide(gang, missing)
            refusal = verdict.refusal
            if refusal is None or refusal.code != RESERVED:
                yield verdict
                return
        if not policy.refusal_changed(gang, refusal):
            return
        found = self._reserved.get(gang.request_class) if refusal.code == RESERVED else None
        yield _verdict(gang, refusal=refusal if found is None else with_reservation(found, refusal))

    def _decide_plain(
        self, policy: QueuePolicy, gang: Gang, known: Refusal | None, missing: Sequence[int]
    ) -> Iterator[Verdict]:
        """Verdict on a gang without chips: it waits behind no other one, and leaves free what reservations count."""
        if known is not None:
            if gang.fresh:
                yield _verdict(gang, refusal=self._named(known, gang))
            return
        raise_errors(gang, self._views)
        kept = policy.kept_from(gang)
        refusal = self._kept_out.get((gang.request_class, gang.run_ms))
        if refusal is None:
            self._nodes.keep(kept.rows)
            found = self._find(gang, missing)
            if isinstance(found, Placement):
                policy.note_start(gang, found)
                yield _verdict(gang, placement=found)
                return
            refusal = self._without(kept, gang, missing) or found.refusal
            if refusal.code != RESERVED:
                self._note_refusal(gang, found.task, refusal)
                yield _verdict(gang, refusal=refusal)
                return
            self._kept_out[gang.request_class, gang.run_ms] = refusal
        if policy.refusal_changed(gang, refusal):
            yield _verdict(gang, refusal=refusal)

    def _without(self, kept: KeptRoom, gang: Gang, missing: Sequence[int]) -> Refusal | None:
        """Refusal of a gang that finds no room besides what is kept; None if nothing is kept."""
        if kept.refusal is None:
            return None
        self._nodes.keep(NOTHING_KEPT.rows)
        self._nodes.begin_gang()
        found = self._find(gang, missing)
        if not isinstance(found, Placement):
            return found.refusal
        self._nodes.roll_back_gang()
        return with_reservation(self._refusals.no_room(gang, 0, gang.pods, missing), kept.refusal)

    def _decide(self, gang: Gang, missing: Sequence[int]) -> Verdict:
        """Place a gang, or refuse it and its class."""
        raise_errors(gang, self._views)
        placement = self._find(gang, missing)
        if not isinstance(placement, Placement):
            return self._refuse(gang, *placement)
        refusal = self._policy.may_start(gang, placement) if self._policy is not None else None
        if refusal is not None:
            self._nodes.roll_back_gang()
            self._reserved[gang.request_class] = self._refusals.no_room(gang, 0, gang.pods, missing)
            return _verdict(gang, refusal=refusal)
        self._planned.note(gang, placement)
        return _verdict(gang, placement=placement)

    def _find(self, gang: Gang, missing: Sequence[int]) -> Placement | NotPlaced:
        """Placement of a gang, beside the nodes that failed for it before if there is one; else why there is none."""
        row_of = self._scorer.table.row_of
        self._avoided = frozenset(row_of[name] for name in gang.avoided if name in row_of)
        if self._avoided:
            avoided, is_full = self._avoided, self._single.is_full
            self._beside = SinglePods(
                self._nodes, self._views, self._counts, lambda row: row in avoided or is_full(row)
            )
            found = self._find_anywhere(gang, missing)
            self._avoided, self._beside = frozenset(), None
            if isinstance(found, Placement):
                return found
            self._nodes.begin_gang()
        return self._find_anywhere(gang, missing)

    def _find_anywhere(self, gang: Gang, missing: Sequence[int]) -> Placement | NotPlaced:
        """Placement of a gang on the rows that are not avoided; where there is none, why its pods find no room."""
        found: list[NotPlaced] = []
        for home in self._marked.homes(gang):
            planned = self._planned.plan(gang, missing, allowed=self._allowed(gang, home))
            if isinstance(planned, Refusal):
                found.append(NotPlaced(first_planned(gang), planned))
                continue
            placement = self._place(gang, planned, missing, home)
            if isinstance(placement, Placement):
                return placement
            found.append(placement)
        return max(found, key=lambda one: one.refusal.pods_have)  # the first of those with most

    def _allowed(self, gang: Gang, home: Home | None) -> Fits | None:
        """Rows that constraints leave to the planned pods of a gang, shape (rows,); None for all."""
        shapes = planned_shapes(gang)
        if not shapes:
            return None
        allowed = self._marked.allowed(shapes)
        if self._avoided:
            allowed = np.ones(len(self._scorer.table), np.bool_) if allowed is None else allowed
            allowed[list(self._avoided)] = False
        return allowed if home is None or allowed is None else allowed & home.rows

    def _place(
        self, gang: Gang, planned: PlannedRows, missing: Sequence[int], home: Home | None
    ) -> Placement | NotPlaced:
        """Give every pod of a gang its node and chips; where one finds no node, all are given back."""
        rows = iter(planned.rows)
        names: list[str] = [""] * gang.pods
        chips: list[tuple[int, ...]] = [()] * gang.pods
        nodes, table_names, settings = self._nodes, self._scorer.table.names, self._scorer.settings
        with_chips: dict[int, None] = {}
        near = self._near_rest(gang, missing)
        constraints = self._constraints
        placed = 0
        for index, ranks in tasks_in_order(gang):
            shape = gang.request_class[index][0]
            profile = gang.profiles[index] if gang.profiles and not constraints.is_idle else None
            is_planned, is_marked, is_limited = shape.is_planned, shape.is_constrained, constraints.limits(shape)
            if near is None and not shape.chips and with_chips and differs(settings).mixed_pods:
                near = NearPods(nodes, with_chips, self._single.is_full)
            for rank in ranks:
                if is_planned:
                    row = self._planned_row(shape, next(rows)) if is_limited else next(rows)
                elif is_marked:
                    groups = near.groups() if near is not None else ()
                    row = self._marked.best(shape, home, groups, without=self._avoided)
                else:
                    row = self._best(shape, near)
                if row is None:
                    by_gang = self._marked.constraint_counts(shape) if placed else []
                    self._nodes.roll_back_gang()
                    return NotPlaced(index, self._refusals.no_room(gang, index, placed, missing, by_gang=by_gang))
                names[rank] = table_names[row]
                chips[rank] = nodes.place(row, shape)
                if profile is not None:
                    constraints.add(profile, row)
                if shape.chips:
                    with_chips[row] = None
                placed += 1
        share = gang.share
        if share is not None:
            nodes.end_soft_share()
        return placement_of(
            names,
            chips,
            gang.runs,
            resource=gang.resource,
            share=share,
            groups=list(planned.groups),
            claims=self._claims(gang),
        )

    def _claims(self, gang: Gang) -> list[ClaimVolume]:
        """Claims of the gang that was placed last, and the volumes that they get."""
        if not any(profile.constraints.claims for profile in gang.profiles):
            return []
        return self._constraints.claims_of_gang(gang.pods_in_order())

    def _near_rest(self, gang: Gang, missing: Sequence[int]) -> NearPods | None:
        """Nodes near the rest of its gang, for a gang without chips that is part of one; None for any other.

        While shards are missing nothing is near: their nodes are not used.
        """
        if not gang.beside or not gang.is_plain or missing or not differs(self._scorer.settings).mixed_pods:
            return None
        row_of = self._scorer.table.row_of
        rows = (row_of[name] for name in self._of_job(gang.namespace, gang.beside))
        return NearPods(self._nodes, rows, self._single.is_full)

    def _planned_row(self, shape: Shape, row: int) -> int | None:
        """Row of a plan; None when the pods before this one have made constraints forbid it."""
        return row if self._constraints.allows(shape, row) else None

    def _best(self, shape: Shape, near: NearPods | None) -> int | None:
        """Row of the best node for a pod whose nodes are offered, one near its gang first; None when no node fits."""
        row = near.best(shape) if near is not None else None
        return (self._beside or self._single).best(shape) if row is None else row

    def _note_refusal(self, gang: Gang, index: int, refusal: Refusal) -> None:
        self._refused[gang.request_class] = refusal
        self._failed_task[gang.request_class] = index

    def _refuse(self, gang: Gang, index: int, refusal: Refusal) -> Verdict:
        """Refuse a gang and its class."""
        self._note_refusal(gang, index, refusal)
        return _verdict(gang, refusal=refusal if self._policy is None else self._policy.refused(gang, refusal))

    def _named(self, refusal: Refusal, gang: Gang) -> Refusal:
        """The refusal of a class, with the name that the task has in this gang."""
        return msgspec.structs.replace(refusal, task=gang.tasks[self._failed_task[gang.request_class]])


def raise_errors(gang: Gang, views: Mapping[Shape, Candidates]) -> None:
    """Raise the error with which the scoring of one of a gang's shapes ended."""
    for shape, _ in gang.request_class:
        error = views[shape.offered].error
        if error is not None:
            raise error


def _verdict(
    gang: Gang, *, placement: Placement | None = None, refusal: Refusal | None = None, final: bool = False
) -> Verdict:
    return Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, placement, refusal, final)
