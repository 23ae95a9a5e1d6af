"""What a search for victims sees: the gangs that run, what a round changes of them, and the places that are taken.

For the rule it is the state before a round, with what the round does; for an explanation the state as it is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.chips.picking import ids_of
from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.scoring import Scorer
from berth.core.pod_shares import PodShare, pods_at, pods_of
from berth.core.preemption.model import RunningGang, evictions_at
from berth.core.preemption.search import Ground
from berth.core.preemption.surplus import surplus_of_job
from berth.core.queues.charges import Holding as Counted
from berth.core.queues.charges import charge_of_placement
from berth.core.queues.shares import Shares
from berth.core.requests.gangs import priority_of
from berth.core.scheduling.turn import Opening
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.holdings.holding import Holding, chips_in, owned_by
from berth.core.state.kept_places import hold_ms_of
from berth.schemas.intake import JobRequest
from berth.schemas.intake import Preemption as Declared
from berth.schemas.ledger import Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.queues.queue import DEFAULT
from berth.schemas.recovery import Recovery

_Key = tuple[str, int]
"""(uid, attempt)."""
_NOTHING_DECLARED: Final = Declared()


class Displacing(NamedTuple):
    """A round whose gangs have their verdicts.

    Attributes:
        state: The cell before it.
        scorer: Its scoring.
        opening: The turn.
        silent: Rows of shards that did not answer, shape (rows,); None for no such row.
        verdicts: Verdicts on its gangs.
        recoveries: Steps that it takes.
        waiting: Gang that waits, by uid.
    """

    state: State
    scorer: Scorer
    opening: Opening
    silent: Fits | None
    verdicts: Sequence[Verdict]
    recoveries: Sequence[Recovery]
    waiting: Callable[[str], Gang | None]


def nothing_changes(state: State, scorer: Scorer, at_ms: int, waiting: Callable[[str], Gang | None]) -> Displacing:
    """A round that changes nothing: what a search sees of the state as it is.

    Args:
        state: The cell.
        scorer: Its scoring.
        at_ms: The moment.
        waiting: Gang that waits, by uid.
    """
    return Displacing(state, scorer, Opening(0, at_ms, (), Due(), {}), None, (), (), waiting)


class Changed(NamedTuple):
    """Attempts that a round changes, or that left before.

    Attributes:
        leaving: They leave: the round ends them, or one before did.
        released: The round releases them as a whole.
        others: It changes them in any other way, too.
        restarting: The round ends them for a fault, by whether it has places for the next attempt.
        given_up: Ranks that they give up for others and still hold, ascending.
    """

    leaving: set[_Key]
    released: set[_Key]
    others: set[_Key]
    restarting: Mapping[_Key, bool]
    given_up: Mapping[_Key, Sequence[int]]


def changed_by(round_: Displacing) -> Changed:
    """Which attempts a round changes."""
    must = round_.opening.must
    steps = [*must.recoveries, *round_.recoveries]
    released = {(one.uid, one.attempt) for one in must.releases if not one.ranks}
    leaving = _leaving(round_.state)
    leaving.update((one.uid, one.attempt) for one in must.evictions)
    ending = [one for one in steps if one.scope == "job" and one.how in {"grace", "force"}]
    restarting = {(one.uid, one.attempt): one.placement is not None for one in ending}
    leaving.update(restarting)
    others = {(one.uid, one.attempt) for one in steps}
    others.update((one.uid, one.attempt) for one in must.releases)
    others.update((one.uid, one.attempt) for one in must.corrections)
    return Changed(leaving, released, others, restarting, _given_up(round_.state))


def _leaving(state: State) -> set[_Key]:
    """Attempts that leave already."""
    return {key for key, holding in state.fold.holdings.items() if holding.ending}


def _given_up(state: State) -> dict[_Key, list[int]]:
    """Ranks that attempts give up."""
    found = {key: holding.giving_up() for key, holding in state.fold.holdings.items() if holding.moves}
    return {key: ranks for key, ranks in found.items() if ranks}


def running_gangs(state: State, changed: Changed) -> list[RunningGang]:
    """Gangs that hold something, by uid and attempt."""
    shares = state.queues.shares()
    gone = changed.leaving | changed.released
    others = changed.others.union(changed.given_up)
    return [
        _running_gang(
            state,
            holding,
            shares,
            is_leaving=key in gone,
            may_leave=key not in others,
            is_restarting=key in changed.restarting,
            is_planned=changed.restarting.get(key, False),
        )
        for key, holding in sorted(state.fold.holdings.items())
    ]


def _running_gang(
    state: State,
    holding: Holding,
    shares: Shares | None,
    *,
    is_leaving: bool,
    may_leave: bool,
    is_restarting: bool,
    is_planned: bool,
) -> RunningGang:
    request = _request_of(state, holding.namespace, holding.name, holding.uid)
    record = state.fold.gangs.get(holding.uid)
    declared = _declared_of(request)
    priority = 0 if request is None else priority_of(state.jobs[holding.namespace, holding.name], request)
    seen = state.pods_seen(holding)
    giving_up = holding.giving_up() if holding.moves else ()
    gone = {*holding.gone, *giving_up}
    uncharged = set(holding.gone).difference(holding.unplaced).union(giving_up)  # as the sums of the queues have it
    surplus = surplus_of_job(request, holding) if request is not None else ()
    has_minimum = surplus and shares is not None
    counted = Counted(
        holding.uid,
        holding.charged_queue,
        charge_of_placement(holding.placement, uncharged) if shares is not None else {},
        minimum=charge_of_placement(holding.placement, uncharged.union(surplus)) if has_minimum else None,
        namespace=holding.namespace,
        priority=priority,
        start=holding.at_ms,
        is_leaving=is_leaving,
        is_preemptable=may_leave and declared.preemptable and request is not None and not holding.foreign,
        is_critical=declared.critical,
    )
    return RunningGang(
        counted,
        holding.attempt,
        chips_in(holding.placement.runs) if not gone else _chips_without(holding.placement, gone),
        holding.at_ms,
        checkpoint_ms=seen.checkpoint_ms if seen is not None else 0,
        cooldown_until_ms=holding.at_ms + declared.cooldown_s * 1_000 if declared.cooldown_s else 0,
        declares_preemptable=declared.is_declared,
        evicted_ms=tuple(record.displaced_ms) if record is not None else (),
        restarts=record.restarts if record is not None else 0,
        budgets=tuple(seen.budgets) if seen is not None else (),
        surplus=surplus,
        is_kept=is_planned or ((is_restarting or holding.ending == "fault") and hold_ms_of(state.fold, holding) > 0),
    )


def _chips_without(placement: Placement, gone: Collection[int]) -> int:
    return sum(len(chips) for rank, chips in enumerate(placement.chips_by_rank()) if rank not in gone)


def ground_of(round_: Displacing, changed: Changed) -> Ground:
    """What a search sees of a round."""
    state, at_ms = round_.state, round_.opening.at_ms
    running = running_gangs(state, changed)
    gangs = {gang.uid: gang for gang in round_.opening.gangs}
    gangs |= {one.gang.uid: one.gang for one in round_.opening.returning}
    placed = [(gangs[one.uid], one.placement) for one in round_.verdicts if one.placement and one.uid in gangs]
    recovering = {one.holding.uid: one.gang for one in (*round_.opening.faulty, *round_.opening.growing)}
    moved = [
        (recovering[one.uid], places)
        for one in round_.recoveries
        if (places := _new_places(state.fold.holdings[one.uid, one.attempt], one)) is not None
    ]
    shares = state.queues.shares()
    usage = None
    if shares is not None:
        usage = state.queues.usage(shares.tree).fork()
        for key in sorted(changed.released):
            state.queues.end(usage, key)
        for gang, _ in placed:
            usage.charge(gang.queue, gang.charge, namespace=gang.namespace)
            state.queues.charge_held(usage, gang.uid, times=-1)
        growing = {one.holding.uid: one.holding for one in round_.opening.growing}
        for gang, places in moved:
            if (holding := growing.get(gang.uid)) is not None:
                charge = charge_of_placement(places)
                usage.charge(holding.charged_queue, charge, namespace=holding.namespace, pods=0)
    returned = [gang.uid for gang, _ in placed if gang.uid in state.fold.held]
    taken = [*_awaited(round_, returned), *moved, *placed]
    return Ground(
        state,
        round_.scorer,
        running,
        at_ms,
        round_.silent,
        taken,
        shares,
        usage,
        _evictions(state, running, at_ms),
        returned=returned,
    )


def _evictions(state: State, running: Sequence[RunningGang], at_ms: int) -> dict[str, int]:
    """How often gangs of each queue ended for others in the last hour; most of them wait since then."""
    found: dict[str, int] = {}
    queue_of = {one.counted.uid: one.counted.queue for one in running}
    for uid, record in state.fold.gangs.items():
        if record.displaced_ms:
            request = _request_of(state, record.namespace, record.name, uid)
            queue = queue_of.get(uid) or (request.queue if request is not None else "") or DEFAULT
            found[queue] = found.get(queue, 0) + evictions_at(record.displaced_ms, at_ms)
    return found


def _awaited(round_: Displacing, returned: Sequence[str]) -> Iterator[tuple[Gang, Placement]]:
    """What reserved places lack: it is taken, although others still have it."""
    for uid, held in sorted(round_.state.fold.held.items()):
        gang = round_.waiting(uid) if held.lacks and uid not in returned else None
        if gang is None:
            continue
        shares = pods_at(held.placement, held.lacks)
        ranks = sorted(shares)
        yield gang, _part_of(held.placement, [shares[rank] for rank in ranks], [held.lacks[rank] for rank in ranks])


def _new_places(holding: Holding, recovery: Recovery) -> Placement | None:
    """What a step takes beside what its attempt has; on chips that it has already it takes no cpu and memory either."""
    if recovery.placement is None:
        return None
    had = [*owned_by(holding), *holding.reserved().values()]
    owned = Counter((pod.node, chip) for pod in had for chip in pod.chips)
    new: list[PodShare] = []
    for pod in pods_of(recovery.placement):
        chips = [chip for chip in pod.chips if not owned[pod.node, chip]]
        if len(chips) == len(pod.chips) and pod not in had:
            new.append(pod)
            continue
        owned.subtract((pod.node, chip) for chip in pod.chips if chip not in chips)
        new.append(PodShare(pod.node, sum(1 << chip for chip in chips), tuple(chips), 0, 0))
    return _part_of(recovery.placement, new, [pod.mask for pod in new])


def _part_of(placement: Placement, pods: Sequence[PodShare], masks: Sequence[int]) -> Placement:
    """Some pods of a placement with some chips (masks) each, without what is about the whole gang."""
    runs = [Run(1, mask.bit_count(), pod.cpu_milli, pod.memory_mib) for pod, mask in zip(pods, masks, strict=True)]
    chips = [*map(ids_of, masks)]
    return placement_of([pod.node for pod in pods], chips, runs, resource=placement.resource, share=placement.share)


def _request_of(state: State, namespace: str, name: str, uid: str) -> JobRequest | None:
    job = state.jobs.get((namespace, name))
    return job.request if job is not None and job.uid == uid else None


def _declared_of(request: JobRequest | None) -> Declared:
    return _NOTHING_DECLARED if request is None or request.preemption is None else request.preemption


def declared_by(state: State, namespace: str, name: str, uid: str) -> Declared:
    """What a job declares about preemption; of one without a request, nothing."""
    return _declared_of(_request_of(state, namespace, name, uid))


def may_end(state: State) -> list[RunningGang]:
    """Gangs that may end for others where preemption is on, by uid: which ones do, priorities and queues decide."""
    return [one for one in running_gangs(state, _as_it_is(state)) if one.may_end]


def displaceable(state: State) -> list[Counted]:
    """What gangs count for that hold something, by uid; preemptable as far as the settings have it.

    Without preemption nobody is displaced, so there is none.
    """
    if not state.fold.settings.preempt:
        return []
    found = running_gangs(state, _as_it_is(state))
    if state.fold.settings.preempt > 1:
        return [one.counted for one in found]
    return [
        one.counted if one.declares_preemptable else msgspec.structs.replace(one.counted, is_preemptable=False)
        for one in found
    ]


def surplus_charges(state: State) -> Iterator[Counted]:
    """What gangs that run have beyond their minimum, by uid: it keeps no PodGroup from being admitted."""
    for _, holding in sorted(state.fold.holdings.items()):
        request = _request_of(state, holding.namespace, holding.name, holding.uid)
        surplus = surplus_of_job(request, holding) if request is not None else ()
        if surplus:
            others = set(range(holding.placement.pods())).difference(surplus)
            charge = charge_of_placement(holding.placement, others)
            yield Counted(holding.uid, holding.charged_queue, charge, namespace=holding.namespace)


def _as_it_is(state: State) -> Changed:
    return Changed(_leaving(state), set(), set(), {}, _given_up(state))
