"""Verdicts on the gangs of a turn, on offers of shards or on candidates of the state itself."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.domains import shard_of
from berth.core.errors import ReportedError
from berth.core.faults.examination import Unplaced
from berth.core.placement.best_rows import BestRows
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.offers import merge
from berth.core.placement.rules import NO_RULES, Rules
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.scheduling.growth import may_grow
from berth.core.scheduling.heavy_gangs import with_pauses
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.recoveries import released, take_steps
from berth.core.scheduling.returning import place_returning
from berth.core.scheduling.rules.port import NO_EPOCH_RULES, EpochRules, RoundStart
from berth.core.scheduling.rules.preemption import Preemption
from berth.core.scheduling.rules.search_ground import Displacing
from berth.core.scheduling.turn import Asking, Choice, MissingShards, Opening
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.internal_errors import SetAside
from berth.core.state.kept_places import PREEMPTION
from berth.schemas.ledger import Reservation, Round, Verdict
from berth.schemas.offers import Shape
from berth.schemas.recovery import HeldPlaces, Recovery
from berth.schemas.refusal import INTERNAL, Refusal


class Decided(NamedTuple):
    """Result of a turn."""

    verdicts: list[Verdict]
    recoveries: list[Recovery]
    set_aside: Sequence[SetAside]
    """Errors, each with the gang that was set aside for it."""
    unplaced: Sequence[Unplaced] = ()
    reserved: Sequence[Reservation] = ()
    unheld: Sequence[HeldPlaces] = ()
    """Reserved places that end for one of ``reserved``, or for who is tried next."""

    def choice(self, opening: Opening, missing_shards: MissingShards) -> Choice:
        """The same as a step of its turn."""
        lists = self.set_aside, self.recoveries, self.unplaced, self.reserved, self.unheld
        return Choice(opening, self.verdicts, missing_shards, *lists)


class Decisions:
    """Decides gangs under the rules of the epoch. A decision changes neither the state nor the queue.

    Args:
        state: The cell.
        queue: The queue.
        scorer: Scoring under the settings of the epoch.
        rules: Rules of the epoch; without any, each gang gets what it finds.
    """

    def __init__(self, state: State, queue: Queue, scorer: Scorer, rules: EpochRules = NO_EPOCH_RULES) -> None:
        self._state = state
        self._queue = queue
        self._scorer = scorer
        self._rules = rules

    def on_offers(
        self,
        opening: Opening,
        views: Mapping[Shape, Candidates],
        asks: Mapping[Shape, int],
        missing_shards: MissingShards,
    ) -> Decided:
        """Verdicts on the gangs of a turn, and steps of recoveries.

        Args:
            opening: The turn.
            views: Merged candidates of each shape.
            asks: How many were asked for.
            missing_shards: Shards that did not answer.

        Raises:
            NeedMoreError: The candidates do not reach far enough.
        """
        if not (opening.gangs or opening.faulty or opening.returning or opening.growing):
            return Decided(with_pauses(self._state, self._queue, opening, ()), [], ())
        state = self._state
        reservation_errors: list[SetAside] = []
        rules = self._begun(opening, missing_shards, reservation_errors.append)
        chooser = PlacementRound(
            self._scorer,
            views,
            asks,
            indexes=state.indexes,
            colocation=state.colocation,
            rules=rules,
            constraints=state.constraints.view,
            counted=lambda shape: self.own_candidates(missing_shards)(shape, 0),
        )
        parts, faulty, missing = chooser.parts(), opening.faulty, missing_shards.missing
        steps = take_steps(parts, (one for one in faulty if not one.slots), rules=rules, missing=missing)
        returned = place_returning(parts, opening.returning, rules=rules, missing=missing)
        restarting = (one for one in faulty if one.slots)  # their pods run: what has ended comes first
        take_steps(parts, restarting, before=steps, rules=rules, missing=missing)
        placed = {verdict.uid for verdict in returned.verdicts}
        gangs = [gang for gang in opening.gangs if gang.uid not in placed] if placed else opening.gangs
        chosen: list[Verdict] = []
        for one in opening.growing:
            ahead = list(itertools.takewhile(lambda gang, one=one: gang.order < one.gang.order, gangs))  # type: ignore[misc]  # the default binds it
            gangs = gangs[len(ahead) :]
            chosen += chooser.choose(ahead, missing=missing).verdicts
            growing = may_grow(state.fold, self._queue, [one], chosen)
            take_steps(parts, growing, before=steps, rules=rules, missing=missing)
        found = chooser.choose(gangs, missing=missing)
        set_aside = [
            *steps.set_aside,
            *returned.set_aside,
            *(
                SetAside(gang.namespaced_name, ReportedError(gang.invalid.value))
                for gang in opening.gangs
                if gang.invalid is not None and gang.invalid.code == INTERNAL
            ),
            *found.set_aside,
            *reservation_errors,
        ]
        verdicts = with_pauses(state, self._queue, opening, [*returned.verdicts, *chosen, *found.verdicts])
        decided = Decided(verdicts, steps.recoveries, set_aside, steps.unplaced)
        rule = self._rules.by_name.get(PREEMPTION)
        if not isinstance(rule, Preemption) or not opening.gangs:
            return decided
        made = rule.displaced(
            Displacing(
                state,
                self._scorer,
                opening,
                self.silent(missing_shards),
                verdicts,
                steps.recoveries,
                self._queue.gang,
            )
        )
        recoveries = [*steps.recoveries, *made.recoveries]
        errors = [*set_aside, *made.set_aside]
        return Decided(made.verdicts, recoveries, errors, steps.unplaced, made.reserved, made.unheld)

    def on_own_candidates(self, opening: Opening, missing_shards: MissingShards) -> Decided:
        """Verdicts on the gangs of a turn, on candidates of the state instead of offers.

        Args:
            opening: The turn.
            missing_shards: Shards that are taken not to answer.

        Raises:
            OffersExhaustedError: The candidates never reach far enough.
        """
        asking = Asking(opening)
        candidates = self.own_candidates(missing_shards)

        def decide() -> Decided:
            asks = asking.asks
            views = {shape: candidates(shape, count) for shape, count in asks.items()}
            return self.on_offers(opening, views, asks, missing_shards)

        while (found := asking.tried(decide)) is None:
            pass
        return found

    def starts(self, at_ms: int) -> dict[str, int]:
        """When room is reserved for gangs that wait (ms), by uid; empty without a rule that reserves."""
        return self._begun(Opening(0, at_ms, (), Due(), {}), MissingShards(), lambda _: None).starts()

    def silent(self, missing_shards: MissingShards) -> Fits | None:
        """Marks of the rows that silent shards own, shape (rows,); None when none is silent."""
        missing, shards = missing_shards.missing, missing_shards.shards
        if not missing or not shards:
            return None
        table = self._state.table
        lost = set(missing)
        marks = np.zeros(len(table), np.bool_)
        for domain in table.domains:
            if shard_of(domain, shards) in lost:
                marks[table.rows_of_domain(domain)] = True
        return marks

    def _begun(self, opening: Opening, missing_shards: MissingShards, on_error: Callable[[SetAside], None]) -> Rules:
        """The rules in a round.

        Args:
            opening: The turn.
            missing_shards: Shards that did not answer.
            on_error: Called with each gang that a rule leaves out because of an error.
        """
        if not self._rules.have_say:
            return NO_RULES
        state = self._state
        terms, silent = self._rules.terms(state, opening.at_ms), self.silent(missing_shards)
        turns = functools.partial(self._rules.turns, state)
        start = RoundStart(state, self._queue, self._scorer, terms, opening, silent, on_error, (), turns)
        return self._rules.begun(start, self._last_refusal)

    def _last_refusal(self, uid: str) -> Refusal | None:
        known = self._state.fold.gangs.get(uid)
        return None if known is None else known.refusal

    def own_candidates(self, missing_shards: MissingShards) -> Callable[[Shape, int], Candidates]:
        """Candidates of a shape, so many at most, as offers would give them.

        Args:
            missing_shards: Shards that did not answer.
        """
        state, silent = self._state, self.silent(missing_shards)

        def candidates(shape: Shape, count: int) -> Candidates:
            if missing_shards.shards and len(missing_shards.missing) == missing_shards.shards:
                table = state.table
                return merge(table, [], missing_nodes=int(table.present[table.view()].sum()))
            return self._scorer.candidates(shape, count, without=silent)

        return candidates

    def best_candidates(self, missing_shards: MissingShards) -> Callable[[Shape, int], Candidates]:
        """As :meth:`own_candidates`, for many shapes at one state; nodes by reason are not counted.

        Args:
            missing_shards: Shards that did not answer.
        """
        return BestRows(self._scorer, self.silent(missing_shards)).candidates


def round_of(state: State, choice: Choice) -> Round:
    """The record of a turn.

    Args:
        state: The cell, as it was when the turn was opened.
        choice: The turn.
    """
    opening, missing_shards = choice.opening, choice.missing_shards
    return Round(
        epoch=state.fold.epoch,
        base_seq=state.fold.base_seq,
        facts_seq=state.facts_seq,
        at_ms=opening.at_ms,
        number=opening.number,
        verdicts=[*opening.must.regained, *opening.must.refused, *choice.verdicts],
        evictions=opening.must.evictions,
        releases=released(opening.must.releases, opening.held, choice.recoveries),
        adoptions=opening.must.adoptions,
        missing=list(missing_shards.missing),
        shards=missing_shards.shards if missing_shards.missing else 0,
        recoveries=[*opening.must.recoveries, *choice.recoveries],
        held=[*opening.must.held, *choice.unheld],
        reserved=[*opening.must.reserved, *choice.reserved],
        admissions=list(opening.admissions),
        corrections=opening.must.corrections,
        work_max=opening.work_max,
    )
