"""Preemption: gangs end so that another one gets a place, and it gets that place.

The rule is asked after the gangs of a round have their verdicts, about those that found no room or no room in their
queue. The place is reserved by the same record that ends the others; see :mod:`berth.core.state.kept_places`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from berth.core.errors import guarded
from berth.core.gangs import Gang, WaitKey, chips_of
from berth.core.placement.scoring import Scorer
from berth.core.preemption.footprints import Footprints
from berth.core.preemption.model import PLACES, Likeness, NoVictims, Preemptor, Terms, Victim, VictimSet
from berth.core.preemption.search import Search
from berth.core.queues.amounts import number_of
from berth.core.scheduling.rules.port import Rule
from berth.core.scheduling.rules.search_ground import Changed, Displacing, changed_by, declared_by, ground_of
from berth.core.scheduling.wake_rules import FOR_ROOM
from berth.core.state.cell import State
from berth.core.state.cell_fork import CellFork
from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.pod_phases import next_step
from berth.core.state.internal_errors import SetAside
from berth.core.state.kept_places import refused_for
from berth.core.state.ledger import GangRecord
from berth.core.text import pluralize
from berth.schemas import rules as schemas
from berth.schemas.intake import Preemption as Declared
from berth.schemas.ledger import Reservation, Verdict
from berth.schemas.recovery import PREEMPTED, RECLAIMED, Awaited, HeldPlaces, Recovery
from berth.schemas.refusal import Refusal

SLACK_MS: Final = 30_000
"""How long a place stays reserved after the others should have left."""
LATER_MS: Final = 300_000
"""When a class that found no room is tried again although nothing has changed: by then gangs may end for it that had
not run for long enough, or had ended for others too often."""


class Displaced(NamedTuple):
    """What the rule adds to a round.

    Attributes:
        verdicts: All verdicts of the round.
        recoveries: Steps that end gangs.
        reserved: Places.
        set_aside: Gangs for which the search ended with an error; they wait without a place.
        unheld: Gangs whose reserved place is for one of higher priority now.
    """

    verdicts: list[Verdict]
    recoveries: list[Recovery]
    reserved: list[Reservation]
    set_aside: list[SetAside]
    unheld: list[HeldPlaces]


class Preemption(Rule):
    """The rule in an epoch.

    Args:
        terms: Its parameters.
    """

    def __init__(self, terms: schemas.Preemption) -> None:
        self._terms = Terms(
            declared_only=terms.level == 1,
            evictions_per_hour=terms.evictions_per_hour,
            queue_evictions_per_hour=terms.queue_evictions_per_hour,
            preempt_min_run_s=terms.preempt_min_run_s,
            reclaim_min_run_s=terms.reclaim_min_run_s,
        )
        self._footprints = Footprints()

    def wakes(self, state: State, gang: GangRecord) -> tuple[str, ...]:
        """A gang sleeps as long as a place is reserved for it; its name is not the key of anything that wakes."""
        return (f"{gang.namespace}/{gang.name}",) if gang.uid in state.fold.held else ()

    def displaced(self, round_: Displacing) -> Displaced:
        """Which gangs end for those of a round that found no room, and which places these get."""
        found = Displaced([], [], [], [], [])
        self._displace(round_, found)
        news = {verdict.uid: verdict for verdict in found.verdicts}
        verdicts = [news.pop(verdict.uid, verdict) for verdict in round_.verdicts]
        return found._replace(verdicts=[*verdicts, *news.values()])

    def _displace(self, round_: Displacing, found: Displaced) -> None:
        """Find out for whom gangs end; verdicts are those of gangs that get a place reserved."""
        wanting = list(self._first(_preemptors(round_)))
        if not wanting:
            return
        changed = changed_by(round_)
        search = guarded(
            lambda: Search(ground_of(round_, changed), self._terms, self._footprints),
            lambda error: found.set_aside.append(SetAside(wanting[0].gang.namespaced_name, error)),
        )
        if search is None:
            return
        self._footprints.keep_only(round_.state.fold.holdings)
        tried: set[Likeness] = set()
        for preemptor in wanting:

            def left_out(error: Exception, gang: Gang = preemptor.gang) -> None:
                found.set_aside.append(SetAside(gang.namespaced_name, error))

            result = guarded(lambda preemptor=preemptor: search.find(preemptor), left_out)  # type: ignore[misc]  # the default binds it
            if result is None:
                continue
            if isinstance(result, NoVictims):
                is_new = preemptor.likeness not in tried
                tried.add(preemptor.likeness)
                if is_new and guarded(lambda one=preemptor: self._take_over(round_, changed, one, found), left_out):  # type: ignore[misc]
                    return  # the search knows nothing of it; the others are asked about in the next round
                continue
            search.accept(preemptor, result)
            if not result.victims:
                continue  # those that leave already make room, and who is first then gets it
            _reserve(round_, changed, preemptor.gang, result, found)

    def _take_over(self, round_: Displacing, changed: Changed, preemptor: Preemptor, found: Displaced) -> bool:
        """Give a gang a place that is reserved for others of lower priority, which wait anew.

        The search of the round does not see that, so nothing is taken over in a round that has reserved places.

        Args:
            round_: The round.
            changed: What it changes.
            preemptor: The gang, for which nobody may end that would make room.
            found: What the rule adds to the round; changed if the gang gets a place.

        Returns:
            Whether it does.
        """
        weaker = [] if found.reserved else _weaker(round_, preemptor.gang)
        if not weaker:
            return False
        fork = CellFork(round_.state)
        for held in weaker:
            fork.lift(held)
        scorer = Scorer(fork.table, fork.shares, fork.fold.settings)
        ground = ground_of(round_._replace(state=fork, scorer=scorer), changed)
        result = Search(ground._replace(has_more_room=True), self._terms, self._footprints).find(preemptor)
        if isinstance(result, NoVictims):
            return False
        nodes = {*result.placement.names()}
        lost = [held for held in weaker if not nodes.isdisjoint(held.placement.names())]
        found.unheld.extend(HeldPlaces(one.namespace, one.name, one.uid, one.attempt) for one in lost)
        _reserve(round_, changed, preemptor.gang, result, found)
        return True

    def found_for(self, gang: Gang, round_: Displacing, declared: Declared | None = None) -> VictimSet | NoVictims:
        """Which gangs would end for one that finds no room, and the place that it would get.

        Args:
            gang: The gang.
            round_: What is seen of the cell.
            declared: What it declares, if the cell does not know the job.
        """
        search = Search(ground_of(round_, changed_by(round_)), self._terms, self._footprints)
        return search.find(_preemptor(round_.state, gang, declared))

    def _first(self, preemptors: Iterable[Preemptor]) -> Iterator[Preemptor]:
        """The first preemptors; those that are like others before them take hardly more time."""
        seen: dict[Likeness, None] = {}
        for one in preemptors:
            seen[one.likeness] = None
            if len(seen) > self._terms.preemptors_max:
                return
            yield one


def _preemptors(round_: Displacing) -> Iterator[Preemptor]:
    """Gangs of a round that found no room, in their order."""
    state = round_.state
    verdicts = {verdict.uid: verdict for verdict in round_.verdicts}
    of_class: dict[WaitKey, Refusal] = {}
    for gang in round_.opening.gangs:
        verdict = verdicts.get(gang.uid)
        record = state.fold.gangs.get(gang.uid)
        refusal = verdict.refusal if verdict is not None else of_class.get(gang.wait_key)
        if verdict is None and refusal is None and record is not None:
            refusal = record.refusal
        if refusal is not None:
            of_class[gang.wait_key] = refusal
        is_placed = verdict is not None and verdict.placement is not None
        if is_placed or refusal is None or refusal.code not in FOR_ROOM or gang.uid in state.fold.held:
            continue
        yield _preemptor(state, gang)


def _weaker(round_: Displacing, gang: Gang) -> list[Held]:
    """Places that are reserved for gangs of lower priority, by uid: as far as priorities count."""
    shares = round_.state.queues.shares()
    ends = {one.uid for one in round_.opening.must.held}
    ends.update(one.uid for one in round_.verdicts if one.placement is not None)
    found: list[Held] = []
    for uid, held in sorted(round_.state.fold.held.items()):
        other = round_.waiting(uid) if held.is_reserved and uid not in ends else None
        if other is not None and other.priority < gang.priority and (shares is None or other.queue == gang.queue):
            found.append(held)
    return found


def _preemptor(state: State, gang: Gang, declared: Declared | None = None) -> Preemptor:
    if declared is None:
        declared = declared_by(state, gang.namespace, gang.name, gang.uid)
    record = state.fold.gangs.get(gang.uid)
    return Preemptor(
        gang,
        is_never=declared.never,
        is_critical=declared.critical,
        was_reclaimed=record is not None and record.is_reclaimed,
    )


def _reserve(round_: Displacing, changed: Changed, gang: Gang, result: VictimSet, found: Displaced) -> None:
    """End the victims of a gang, and reserve its place, unless nobody has to leave it."""
    reservation = _reservation(round_, changed, gang, result)
    if not reservation.awaits:
        return
    found.reserved.append(reservation)
    found.recoveries.extend(_ended(round_, gang, result, victim) for victim in result.victims)
    found.verdicts.append(_waits(round_.state, gang, reservation))


def _ended(round_: Displacing, gang: Gang, result: VictimSet, victim: Victim) -> Recovery:
    """The step that ends a gang, or its surplus."""
    state, at_ms = round_.state, round_.opening.at_ms
    holding = state.fold.holdings[victim.uid, victim.attempt]
    gone = set(holding.gone)
    whole = [rank for rank in range(holding.placement.pods()) if rank not in gone]
    notice_s, settings = _notice_s(state, victim.uid, victim.attempt), state.fold.settings
    return Recovery(
        namespace=holding.namespace,
        name=holding.name,
        uid=victim.uid,
        attempt=victim.attempt,
        step=next_step(holding, state.pods_seen(holding), state.outcome_of(holding)),
        kind=RECLAIMED if victim.is_reclaimed else PREEMPTED,
        cause=_cause(gang, result, victim),
        scope="pod" if victim.ranks else "job",
        how="grace",
        ranks=sorted(victim.ranks) or whole,
        faulty=[],
        since_ms=at_ms,
        until_ms=at_ms + notice_s * 1_000 + settings.grace_over_ms if settings.preempt_force else 0,
        saves=notice_s > 0,
        for_job=gang.namespaced_name,
    )


def _cause(gang: Gang, result: VictimSet, victim: Victim) -> str:
    """Why a gang ends, in words without names: the record has the place of the other gang."""
    number = chips_of(gang.request_class)
    chips = (
        pluralize(number, "chip") if gang.share is None else f"room for {pluralize(gang.pods, 'pod')} on shared chips"
    )
    where = "" if result.place.kind == "cell" else f" in one {PLACES[result.place.kind]}"
    if not victim.is_reclaimed:
        return f"preempted for a job of priority {gang.priority}, above {victim.priority}, that needs {chips}{where}"
    numbers = [
        f"{'its queue' if one.queue == gang.queue else 'this one'} has {number_of(one.dimension, one.held)} of"
        f" {number_of(one.dimension, one.entitled)} {one.dimension}"
        for one in result.standings
        if one.queue in {gang.queue, victim.queue}
    ]
    return f"reclaimed for a job of another queue that needs {chips}{where}: {', '.join(numbers)}"


def _reservation(round_: Displacing, changed: Changed, gang: Gang, result: VictimSet) -> Reservation:
    """The place of a gang, and who leaves it: its victims, and those on its nodes that leave anyway."""
    state, at_ms = round_.state, round_.opening.at_ms
    nodes = {*result.placement.names()}
    awaited: dict[tuple[str, int], Sequence[int]] = {
        key: ()
        for key in changed.leaving - changed.released
        if not nodes.isdisjoint(pod.node for pod in state.held_by(key) if pod.pods)
    }
    for key, ranks in changed.given_up.items():
        owned = state.owned(key)
        if key not in changed.leaving | changed.released and any(owned[rank].node in nodes for rank in ranks):
            awaited[key] = ranks
    awaited |= {(one.uid, one.attempt): sorted(one.ranks) for one in result.victims}
    notice_ms = max((_notice_s(state, *key) for key in awaited), default=0) * 1_000
    return Reservation(
        gang.namespace,
        gang.name,
        gang.uid,
        gang.attempt,
        result.placement,
        [Awaited(*key, list(ranks)) for key, ranks in sorted(awaited.items())],
        at_ms + notice_ms + state.fold.settings.grace_over_ms + SLACK_MS,
        gang.queue,
    )


def _waits(state: State, gang: Gang, reservation: Reservation) -> Verdict:
    """Refusal of a gang that has a place as soon as others have left."""
    others = reservation.awaits
    has = "have" if len(others) > 1 else "has"
    end = f"{has} made room" if any(one.ranks for one in others) else f"{has} ended"
    refusal = refused_for(state.fold, others, "its place is reserved; it starts once {others} " + end)
    return Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, refusal=refusal)


def _notice_s(state: State, uid: str, attempt: int) -> int:
    """How long before its end an attempt is told of it (s)."""
    holding = state.fold.holdings[uid, attempt]
    return declared_by(state, holding.namespace, holding.name, uid).notice_s
