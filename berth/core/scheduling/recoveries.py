"""Recoveries of a turn: places for the ranks of faulty gangs, before the gangs that wait, and the steps they make."""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.errors import guarded
from berth.core.faults.escalation import Wanted
from berth.core.faults.examination import Faulty, Unplaced
from berth.core.faults.scopes import LEVEL_STEPS
from berth.core.parity import differs
from berth.core.placement.planned_pods import RoundParts
from berth.core.placement.replacements import NoPlaces, plan_anew, plan_backup, plan_replacements, replacement_counts
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.rules import Rules
from berth.core.pod_shares import pods_of
from berth.core.queues.charges import charge_of_placement
from berth.core.scheduling.recovery_costs import Cost, deleted_pod_count, idle_of, smaller_step
from berth.core.state.due import Due
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.moves import merged_placement
from berth.core.state.internal_errors import SetAside
from berth.core.topologies.leaving import LeavingPods
from berth.schemas.ledger import Release
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery

_UNPLACED_MAX: Final = 2
"""Entries of a gang among those without a place: of its ranks, and of a backup pod."""


class Steps(NamedTuple):
    """Steps of recoveries that a turn takes."""

    recoveries: list[Recovery]
    set_aside: list[SetAside]
    """Gangs (namespaced names) whose step ended with an error; nothing is done for them in this turn."""
    unplaced: list[Unplaced]
    """Gangs for whose ranks without a pod, or for whose backup pods, no places were found."""
    restarts: Counter[tuple[str, str]]
    """Restarts of whole gangs by :attr:`Faulty.cause`."""


def candidates_needed(
    faulty: Sequence[Faulty], asks: Mapping[Shape, int], returning: Sequence[LeavingPods], *, full: int
) -> dict[Shape, int]:
    """Candidates that a turn needs of each shape when ranks of faulty gangs get places before its gangs.

    Args:
        faulty: The faulty gangs.
        asks: Candidates that its gangs need.
        returning: Pods of gangs with held places that get places after these.
        full: Nodes that take no further pod.
    """
    leaving = [*(most for one in faulty if (most := _most(one)) is not None), *returning]
    return replacement_counts(leaving, asks, full=full) if leaving else dict(asks)


def take_steps(
    parts: RoundParts,
    faulty: Iterable[Faulty],
    *,
    before: Steps | None = None,
    rules: Rules,
    missing: Sequence[int],
) -> Steps:
    """Take the first step of each faulty gang that has what it needs.

    Args:
        parts: The round; no gang of it is placed yet but returning ones.
        faulty: The gangs, in the order in which they are tried.
        before: Steps that the round takes already; these are added to them.
        rules: Rules of the round.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: The candidates end before all are tried.
    """
    steps = before or Steps([], [], [], Counter())
    for one in faulty:

        def left_out(error: Exception, one: Faulty = one) -> None:
            parts.nodes.roll_back_gang()
            steps.set_aside.append(SetAside(one.gang.namespaced_name, error))

        parts.nodes.begin_gang()
        taken = guarded(
            lambda one=one: (
                _grown(parts, one, missing, rules)  # type: ignore[misc]  # the default binds it
                if one.grows
                else _taken(parts, one, missing, steps.unplaced)
            ),
            left_out,
            passes=(NeedMoreError,),
        )
        if taken is not None and taken.scope == "job":
            if one.slots and steps.restarts[one.cause] >= one.slots:
                parts.nodes.roll_back_gang()
                continue  # as many restart for this cause as may at a time
            steps.restarts[one.cause] += 1
        if taken is not None:
            steps.recoveries.append(taken)
            if not one.grows:
                rules.stepped(one.gang, taken)
    return steps


def held_back(due: Due, faulty: Iterable[Faulty]) -> tuple[list[Faulty], list[Release]]:
    """Leave out gangs that end for another reason, and hold back releases that a recovery may replace.

    Args:
        due: What is due for gangs; the releases that are held back are taken out.
        faulty: Gangs that need a step.

    Returns:
        Gangs that still need one, and the releases.
    """
    evicted = {one.uid for one in due.evictions}
    over = {
        one.uid for one in due.releases if not one.ranks and (one.again or one.reason not in {"failed", "vanished"})
    }
    kept = [one for one in faulty if one.holding.uid not in evicted | over]
    failed = {one.holding.uid: _newly_faulty(one) for one in kept}
    held = [one for one in due.releases if _concerns(one, failed.get(one.uid))]
    due.releases = [one for one in due.releases if not _concerns(one, failed.get(one.uid))]
    return kept, held


def _newly_faulty(faulty: Faulty) -> set[int]:
    """Ranks that would leave because their pods are faulty."""
    return {rank for option in faulty.options if option.how in {"grace", "force"} for rank in option.faulty}


def _concerns(release: Release, failed: set[int] | None) -> bool:
    """Whether a release would end for good what a step may bring back."""
    if not failed:
        return False
    is_kept = release.reason in {"fault", "backup"}  # of pods that are gone in any case
    return not release.ranks or (not is_kept and not failed.isdisjoint(release.ranks))


def released(due: Iterable[Release], held: Iterable[Release], recoveries: Iterable[Recovery]) -> list[Release]:
    """Releases of a record with steps: those that are due, and those that were held back and go with a step.

    Only ranks whose pods have ended go with one, not whole attempts. With a step of the whole job no rank is released:
    all are together, when the attempt has ended, so that nobody else gets the place of a rank that returns to it.

    Args:
        due: Releases that are due in any case.
        held: Releases that were held back.
        recoveries: Steps that are taken.
    """
    scopes = {one.uid: one.scope for one in recoveries}
    return [
        *(one for one in due if not one.ranks or one.reason == "backup" or scopes.get(one.uid) != "job"),
        *(one for one in held if one.ranks and scopes.get(one.uid, "job") != "job"),
    ]


class _Tried(NamedTuple):
    """A step, and what was found for it."""

    option: Wanted
    is_open: bool
    """It may be taken."""
    placement: Placement | None = None
    none: NoPlaces | None = None
    """Why there are no places."""


def _taken(parts: RoundParts, faulty: Faulty, missing: Sequence[int], unplaced: list[Unplaced]) -> Recovery | None:
    """The first step that has what it needs; with ``plan_before_delete`` the one that costs least."""
    settings = parts.nodes.scorer.settings
    if settings.plan_before_delete and differs(settings).places_before_deletion:
        tried = _cheapest(parts, faulty, missing, unplaced)
    else:
        found = (_tried(parts, faulty, option, missing, unplaced) for option in faulty.options)
        tried = next((one for one in found if one.is_open), None)
    return None if tried is None else _recovery(faulty, tried.option, tried.placement)


def _grown(parts: RoundParts, one: Faulty, missing: Sequence[int], rules: Rules) -> Recovery | None:
    """Places for as many as possible of the first ranks that a gang gave up, as far as its queue lets them in."""
    pods = range(one.holding.placement.pods())
    for option in one.options:
        others = set(pods).difference(option.ranks)
        charge = charge_of_placement(one.holding.placement, others) if one.gang.charge else {}
        queue = one.holding.charged_queue if one.gang.queue else ""
        part = msgspec.structs.replace(one.gang, charge=charge, queue=queue)
        found = _planned(parts, one, option, missing) if rules.lets_in(part) else None
        if isinstance(found, Placement):
            rules.grew(part)
            return _recovery(one, option, found)
        parts.nodes.roll_back_gang()
    return None


def _cheapest(parts: RoundParts, faulty: Faulty, missing: Sequence[int], unplaced: list[Unplaced]) -> _Tried | None:
    """The step that costs least of those that have what they need; what its places have is taken from the round."""
    holding = faulty.holding
    left = [(deleted_pod_count(holding, option), number, option) for number, option in enumerate(faulty.options)]
    heapq.heapify(left)
    best: tuple[Cost, Wanted] | None = None
    while left and (best is None or left[0][0] == best[0].restarts):
        restarts, number, option = heapq.heappop(left)
        tried = _tried(parts, faulty, option, missing, unplaced)
        if tried.none is not None:
            smaller = smaller_step(faulty.options, option, tried.none.ranks)
            if smaller is not None and all(smaller.ranks != one.ranks for _, _, one in left):
                at = len(faulty.options) + len(smaller.ranks)
                heapq.heappush(left, (deleted_pod_count(holding, smaller), at, smaller))
        if not tried.is_open:
            continue
        is_placed = tried.none is None and bool(option.sought)
        idle = 0 if is_placed and option.scope == "job" else idle_of(holding, option, tried.placement)
        if best is None and not (idle and left and left[0][0] == restarts):
            return tried  # none of the others costs less
        parts.nodes.roll_back_gang()
        cost = Cost(restarts, idle, number)
        if best is None or cost < best[0]:
            best = (cost, option)
    return None if best is None else _tried(parts, faulty, best[1], missing, unplaced)


def _tried(
    parts: RoundParts, faulty: Faulty, option: Wanted, missing: Sequence[int], unplaced: list[Unplaced]
) -> _Tried:
    """What is found for a step; why there are no places for pods that wait is noted once for each gang."""
    backups = faulty.holding.backups() if option.scope != "job" and not option.backup else {}
    has_backups = not backups.keys().isdisjoint(option.ranks)
    if has_backups or not option.sought:  # a rank with a backup pod gets its place
        return _Tried(option, not (has_backups and option.needs_place))
    found = _planned(parts, faulty, option, missing)
    if isinstance(found, NoPlaces):
        noted = Unplaced(faulty.holding.namespace, faulty.holding.name, found.refusal, option.backup)
        is_known = any(one._replace(refusal=noted.refusal) == noted for one in unplaced[-_UNPLACED_MAX:])
        if option.how in {"place", "backup"} and not is_known:
            unplaced.append(noted)
        return _Tried(option, not option.needs_place, none=found)
    if found is None:
        parts.nodes.roll_back_gang()  # the record does not say that they are taken
    return _Tried(option, is_open=True, placement=found)


def _planned(parts: RoundParts, faulty: Faulty, option: Wanted, missing: Sequence[int]) -> Placement | NoPlaces | None:
    """New places of the ranks of a step; None if there are some, and none of them can be reserved.

    There are none for a request that the settings of this epoch do not allow.
    """
    if faulty.gang.invalid is not None:
        return NoPlaces(faulty.gang.invalid)
    plan = plan_backup if option.backup else plan_replacements
    leaving = _leaving(faulty, option)
    found = plan(parts, leaving, missing=missing)
    if option.scope != "job":
        return found
    if isinstance(found, NoPlaces):
        again = plan_anew(parts, leaving, found, missing=missing)
        return again if isinstance(again, NoPlaces) else None  # its ranks get what others of them still have
    is_reserved = not faulty.holding.backups() and _are_alike(found, faulty.holding.placement)
    return msgspec.structs.replace(found, claims=[]) if is_reserved else None  # volumes are chosen when it starts


def _are_alike(one: Placement, other: Placement) -> bool:
    """Whether each rank has as much in both placements: pods that were gone have nothing where they were found so."""
    first, second = (
        [(len(pod.chips), pod.cpu_milli, pod.memory_mib) for pod in pods_of(placement)] for placement in (one, other)
    )
    return first == second and (one.resource, one.share) == (other.resource, other.share)


def _recovery(faulty: Faulty, wanted: Wanted, placement: Placement | None) -> Recovery:
    holding = faulty.holding
    return Recovery(
        namespace=holding.namespace,
        name=holding.name,
        uid=holding.uid,
        attempt=holding.attempt,
        step=faulty.step,
        kind=wanted.kind,
        cause=wanted.cause,
        scope=wanted.scope,
        how=wanted.how,
        ranks=list(wanted.ranks),
        faulty=list(wanted.faulty),
        since_ms=wanted.since_ms,
        until_ms=wanted.until_ms,
        placement=placement,
        retries_left=wanted.retries_left,
        nodes=list(faulty.nodes),
        backups=[wanted.backup] if wanted.backup else [],
        saves=wanted.saves,
    )


def _most(faulty: Faulty) -> LeavingPods | None:
    """The option with most ranks for which places are sought; None if they are for none."""
    option = max(faulty.options, key=lambda one: len(one.sought))
    return _leaving(faulty, option) if option.sought else None


def _leaving(faulty: Faulty, wanted: Wanted) -> LeavingPods:
    holding = faulty.holding
    return LeavingPods(
        faulty.gang,
        _newest(holding, without=wanted.ranks if wanted.backup else ()),
        wanted.sought,
        wanted.faulty,
        holding.gone,
        wanted.moves or wanted.scope,
        LEVEL_STEPS if (wanted.moves or wanted.scope) == "level" else 0,
        faulty.nodes,
    )


def _newest(holding: Holding, *, without: Collection[int] = ()) -> Placement:
    """Place of each rank: the one that is reserved for it, else the one that it has.

    Args:
        holding: The attempt.
        without: Ranks of which the place counts that they have.
    """
    places = {
        rank: (move.placement, move.ranks.index(rank))
        for move in holding.moves
        if move.placement is not None
        for rank in move.placed
        if rank not in without
    }
    return merged_placement(holding.placement, places) if places else holding.placement
