"""One round: places gangs in queue order, on the merged offers and the dispatcher's own columns.

A gang goes through these steps; each is in the module of its name:

1. ``planned_pods``: one plan for all pods with chips of a gang with switch or SuperPoD affinity;
2. ``single_pods``: the best node for each other pod, or ``near_pods`` for pods without chips beside pods with chips;
   ``round_nodes`` keeps what the pods take;
3. the rules (``rules``) allow the start or refuse it;
4. ``round_refusals``: a gang that does not fit whole is refused, and everything that its pods took is returned.

Pods of placed gangs that need new places come before the gangs: ``replacements``.

Longer than 400 lines because rules have a say at each of the steps.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.constraint_round import ConstraintRound, ConstraintView, no_constraints
from berth.core.errors import guarded
from berth.core.gangs import ClassKey, Gang, first_planned, planned_shapes, tasks_in_order
from berth.core.parity import differs
from berth.core.placement.constrained_pods import ConstrainedPods, Home
from berth.core.placement.near_pods import NearPods
from berth.core.placement.planned_pods import PlannedPods, RoundParts
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.round_refusals import RoundRefusals, with_reservation
from berth.core.placement.rules import NO_RULES, NOTHING_KEPT, RESERVED, Entry, KeptRoom, Lane, NotPlaced, Rules
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.placement.single_pods import SinglePods
from berth.core.state.internal_errors import SetAside, set_aside
from berth.core.topologies.planning import NO_JOBS, Colocation, Index, Planned
from berth.core.topologies.registry import indexes_of
from berth.schemas.ledger import Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import ClaimVolume, Placement, placement_of
from berth.schemas.refusal import INTERNAL, Refusal


class _OfClass(msgspec.Struct):
    """What a round has found out about a class."""

    rules: Lane
    """Rules that are asked about its gangs."""
    refused: NotPlaced | None = None
    """Why it found no room."""
    room: Refusal | None = None
    """Nodes by reason, where a rule kept a gang of it from places that it found."""
    kept_out: dict[int, NotPlaced] = {}
    """Why gangs of it get no room that is kept for others, by declared run time (ms)."""


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
        indexes: What topologies keep of the nodes, by name of the index; None derives it from the nodes, without jobs.
        colocation: Nodes of jobs that were placed before the round.
        rules: Rules of the round; without any, each gang starts that finds room.
        constraints: Constraints of pods; None where there are none.
        counted: Nodes by reason for a shape, as offers would have them; None: all nodes are offered.
    """

    def __init__(
        self,
        scorer: Scorer,
        views: Mapping[Shape, Candidates],
        counts: Mapping[Shape, int],
        *,
        indexes: Mapping[str, Index] | None = None,
        colocation: Colocation = NO_JOBS,
        rules: Rules = NO_RULES,
        constraints: ConstraintView | None = None,
        counted: Callable[[Shape], Candidates] | None = None,
    ) -> None:
        self._scorer = scorer
        self._views = views
        self._counts = counts
        self._rules = rules
        self._nodes = RoundNodes(scorer)
        self._constraints = ConstraintRound(constraints or no_constraints(scorer.table), self._nodes)
        marked = self._marked = ConstrainedPods(self._nodes, views, self._constraints)
        self._single = SinglePods(self._nodes, views, counts, self._constraints.is_full)
        self._refusals = RoundRefusals(
            self._nodes, views, marked.forbidden, marked.constraint_counts, self._constraints.obstacle, counted
        )
        self._of_job = colocation.of_job
        self._planned = PlannedPods(
            self._nodes,
            views,
            self._refusals,
            indexes=indexes_of(scorer.table) if indexes is None else indexes,
            colocation=colocation,
            by_name=marked.by_name,
        )
        self._classes: dict[ClassKey, _OfClass] = {}
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
        for gang in gangs:
            entry = self._decided(gang, missing)
            if entry is not None and entry.is_news:
                verdicts.append(_verdict(entry))
        self._nodes.begin_gang()  # what could take back the last gang would keep the round alive
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
            self._returned,
        )

    def _decided(self, gang: Gang, missing: Sequence[int]) -> Entry | None:
        """A gang with what it comes to; None if its class is refused, and that is nothing new for it."""
        of_class = self._classes.get(gang.request_class)
        if of_class is None:
            rules = self._rules.plain if gang.is_plain else self._rules.chips
            of_class = self._classes[gang.request_class] = _OfClass(rules)
        known, rules = of_class.refused, of_class.rules
        is_asked = gang.fresh or rules.asks_again or gang.invalid or self._scorer.settings.strict_product_support
        if known is not None and not is_asked:
            return None
        entry = Entry(gang, known)

        def failed(error: Exception) -> None:
            entry.placement, entry.refusal, entry.is_news = None, self._returned(gang, error), True
            of_class.refused = NotPlaced(0, entry.refusal)

        self._nodes.begin_gang()
        guarded(lambda: self._decide(entry, of_class, missing), failed, passes=(NeedMoreError,))
        return entry

    def _returned(self, gang: Gang, error: Exception) -> Refusal:
        """Refusal because of an error; everything that the pods of the gang took is returned."""
        self._nodes.roll_back_gang()
        self._errors.append(SetAside(gang.namespaced_name, error))
        return set_aside(error, pods=gang.pods, form=gang.form, because=gang.form_because)

    def _decide(self, entry: Entry, of_class: _OfClass, missing: Sequence[int]) -> None:
        """Decide a gang, step by step; a refusal ends it."""
        gang, rules = entry.gang, of_class.rules
        # 1. Refuse what needs no look at places.
        self._refuse_unseen(entry, of_class)
        if entry.refusal is not None:
            return
        # 2. Plan, besides the room that rules keep for others.
        raise_errors(gang, self._views)
        if rules.keeps:
            found = self._find_beside(rules.kept(entry), gang, of_class, missing)
        else:
            found = self._find(gang, missing)
        if isinstance(found, NotPlaced):
            if found.refusal.rule:
                self._refuse_by_rule(entry, rules, found.refusal)
            else:
                of_class.refused = found
                entry.refusal = rules.refused(entry, found.refusal)
            return
        # 3. Ask the rules whether the gang may have the places.
        refusal = rules.allow(entry, found) if rules.allows else None
        if refusal is not None:
            self._nodes.roll_back_gang()
            of_class.room = self._refusals.no_room(gang, 0, gang.pods, missing)
            self._refuse_by_rule(entry, rules, refusal, of_class.room)
            return
        # 4. Start.
        entry.placement = found
        self._planned.add(gang, found)
        self._rules.started(gang, found)

    def _refuse_unseen(self, entry: Entry, of_class: _OfClass) -> None:
        """Refuse a gang that no place could help, that a rule does not admit, or whose class found no room."""
        gang, known, rules = entry.gang, entry.known, of_class.rules
        rejected = self._rejected(gang)
        if rejected is not None:
            entry.refusal, entry.is_final = rejected, rejected.code != INTERNAL
            return
        refusal = rules.admit(entry) if rules.admits else None
        if refusal is not None:
            self._refuse_by_rule(entry, rules, refusal, of_class.room if refusal.code == RESERVED else None)
        elif known is not None:
            refusal = rules.refused(entry, known.refusal) if rules.asks_again else known.refusal
            entry.refusal = msgspec.structs.replace(refusal, task=gang.tasks[known.task])
            entry.is_news = rules.is_news(entry, refusal) if rules.asks_again else gang.fresh

    def _rejected(self, gang: Gang) -> Refusal | None:
        """Why a gang is never placed, independent of its class."""
        is_strict = self._scorer.settings.strict_product_support
        demand = gang.demand if is_strict else None
        if gang.invalid is not None or demand is None:
            return gang.invalid
        return self._planned.of(demand).unsupported(gang)

    @staticmethod
    def _refuse_by_rule(entry: Entry, rules: Lane, refusal: Refusal, room: Refusal | None = None) -> None:
        """Refuse a gang because of a rule, with the nodes by reason if it has found room."""
        entry.is_news = rules.is_news(entry, refusal)
        entry.refusal = refusal if room is None else with_reservation(room, refusal)

    def _find_beside(
        self, kept: KeptRoom, gang: Gang, of_class: _OfClass, missing: Sequence[int]
    ) -> Placement | NotPlaced:
        """Placement of a gang besides the room that is kept; else why there is none, and whether that is because of it.

        A gang that finds no room without what is kept either is refused for that.
        """
        known = of_class.kept_out.get(gang.run_ms)
        if known is not None:
            return known
        self._nodes.keep(kept.rows)
        found = self._find(gang, missing)
        if kept.refusal is None or not isinstance(found, NotPlaced):
            return found
        self._nodes.keep(NOTHING_KEPT.rows)
        self._nodes.begin_gang()
        without = self._find(gang, missing)
        if isinstance(without, NotPlaced):
            return NotPlaced(found.task, without.refusal)
        self._nodes.roll_back_gang()
        refusal = with_reservation(self._refusals.no_room(gang, 0, gang.pods, missing), kept.refusal)
        out = of_class.kept_out[gang.run_ms] = NotPlaced(0, refusal)
        return out

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

    def _place(self, gang: Gang, planned: Planned, missing: Sequence[int], home: Home | None) -> Placement | NotPlaced:
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


def raise_errors(gang: Gang, views: Mapping[Shape, Candidates]) -> None:
    """Raise the error with which the scoring of one of a gang's shapes ended."""
    for shape, _ in gang.request_class:
        error = views[shape.offered].error
        if error is not None:
            raise error


def _verdict(entry: Entry) -> Verdict:
    gang, placement = entry.gang, entry.placement
    queue = gang.queue if placement is not None else ""
    return Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, placement, entry.refusal, entry.is_final, queue)
