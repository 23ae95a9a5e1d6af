"""Gangs with many different tasks: each of these is scored on all nodes, so that one gang may take as long as a round.

They have a lane of their own: other gangs wait behind none of them. A round takes some of both, and decides them in
their order. The shapes of heavy gangs are scored last, and not by shards. When these take too long, the round goes on
without the gangs (refused as ``late``), and their next try with what is scored. A heavy gang that is refused is not
tried again for a while, whatever changes: else it would take most of the time where much changes. That follows from
the records alone, as the order does.
"""

import heapq
import operator
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

import msgspec

from berth.core.gangs import ClassKey, Gang
from berth.core.placement.round_demand import (
    ROUND_WORK_MAX,
    SHAPES_LEAST,
    candidate_counts,
    first_counts,
    gangs_of_one_round,
    is_heavy,
    offered_of,
)
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.recoveries import candidates_needed
from berth.core.scheduling.rules.port import EpochRules
from berth.core.scheduling.turn import Opening, most_of_a_class
from berth.core.state.cell import State
from berth.core.state.records.entries import GangRecord
from berth.schemas.ledger import Round, Verdict
from berth.schemas.offers import Shape
from berth.schemas.refusal import LATE, Refusal

WORK_MAX_LEAST: Final = ROUND_WORK_MAX // 64
"""Least bound of a round after many that were late."""
_PAUSE_MS: Final = 1_000
"""First pause after a refusal; it doubles up to ..."""
PAUSE_MAX_MS: Final = 10_000
"""... this."""


def gangs_of_round(state: State, queue: Queue, rules: EpochRules, *, work_max: int) -> list[Gang]:
    """Gangs for a round, in queue order; those of the lane without chips come last.

    Where queues have turns, heavy gangs come after the others. Without rules that have a say a class is read as far as
    the free chips go: no later gang of it may fare otherwise than those before it.

    Args:
        state: The cell.
        queue: Its queue.
        rules: The rules of the epoch.
        work_max: Bound of the work for heavy gangs, and of that for others; one gang of each is taken in any case.
    """
    settings, nodes = state.fold.settings, len(state.table)
    gangs_max, bytes_max = settings.round_gangs_max, settings.round_bytes_max
    most = most_of_a_class(state) if not rules.have_say and not settings.strict_product_support else None

    def taken(accepts: Callable[[ClassKey], bool] | None) -> Sequence[Gang]:
        turns = rules.turns(state)
        found = queue.take(gangs_max=gangs_max, bytes_max=bytes_max, most=most, accepts=accepts, turns=turns)
        return gangs_of_one_round(found, nodes=nodes, work_max=work_max)

    many = [key.request_class for key in queue.tried() if len(key.request_class) > SHAPES_LEAST]
    heavy = {key for key in many if is_heavy(key, nodes)}
    if not heavy or queue.is_strict:
        found = list(taken(None))
    else:
        lanes = taken(lambda key: key not in heavy), taken(lambda key: key in heavy)
        has_turns = rules.turns(state) is not None
        found = [*lanes[0], *lanes[1]] if has_turns else list(heapq.merge(*lanes, key=operator.attrgetter("order")))
    return [*found, *queue.take(gangs_max=gangs_max, bytes_max=bytes_max, plain=True, turns=rules.turns(state))]


def with_asks(opening: Opening, *, nodes: int, full: int) -> Opening:
    """A turn with the candidates that it asks for.

    Args:
        opening: The turn.
        nodes: Nodes of the cell.
        full: Nodes that take no further pod, whatever it is.
    """
    counts = candidate_counts([gang for gang in opening.gangs if not gang.invalid], full=full)
    pods = [one.pods for one in opening.returning]
    changing = [*opening.faulty, *opening.growing]
    needs = candidates_needed(changing, counts, pods, full=full)
    heavy = _heavy_of(opening.gangs, nodes)
    only: frozenset[Shape] = frozenset()
    if heavy:
        uids = {gang.uid for gang in heavy}
        others = shapes_of(gang for gang in opening.gangs if gang.uid not in uids)
        only = shapes_of(heavy) - others - candidates_needed(changing, {}, pods, full=full).keys()
    return opening._replace(asks=first_counts(needs), needs=needs, heavy=only)


def without(opening: Opening, gangs: Container[str], *, nodes: int) -> Opening:
    """A turn that leaves out some of its heavy gangs.

    Args:
        opening: The turn.
        gangs: Gangs (uid); those that are not heavy stay.
        nodes: Nodes of the cell.
    """
    late = _heavy_of((gang for gang in opening.gangs if gang.uid in gangs), nodes)
    left = {gang.uid for gang in late}
    stay = [gang for gang in opening.gangs if gang.uid not in left]
    only = opening.heavy - shapes_of(stay)
    asks = {shape: count for shape, count in opening.asks.items() if shape not in only}
    return opening._replace(gangs=stay, asks=asks, heavy=opening.heavy - only, late=late)


def _heavy_of(gangs: Iterable[Gang], nodes: int) -> list[Gang]:
    """Those of some gangs that are heavy."""
    return [gang for gang in gangs if is_heavy(gang.request_class, nodes)]


def shapes_of(gangs: Iterable[Gang]) -> frozenset[Shape]:
    """Shapes of gangs."""
    return frozenset(shape for gang in gangs for shape in offered_of(gang.request_class))


def late_of(record: Round) -> list[str]:
    """Gangs (uid) that a round left out because of their work."""
    return [one.uid for one in record.verdicts if one.refusal is not None and one.refusal.code == LATE]


def with_pauses(state: State, queue: Queue, opening: Opening, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts of a turn: refused heavy gangs get the time of their next try, and those that were left out a refusal.

    Args:
        state: The cell, as it was when the turn was opened.
        queue: Its queue.
        opening: The turn.
        verdicts: Verdicts on the gangs that were decided.
    """
    nodes, at_ms = len(state.table), opening.at_ms
    paused: dict[str, Gang] = {}
    if not queue.is_strict:  # there it keeps its place
        paused = {gang.uid: gang for gang in _heavy_of(opening.gangs, nodes)}
    if not paused and not opening.late:
        return list(verdicts)

    def next_try_ms(gang: Gang) -> int:
        return at_ms + _pause_ms(state.fold.gangs.get(gang.uid), gang.attempt)

    found: list[Verdict] = []
    for one in verdicts:
        gang = paused.get(one.uid)
        if gang is not None and one.refusal is not None and not one.final:
            refusal = msgspec.structs.replace(one.refusal, retry_ms=next_try_ms(gang))
            found.append(msgspec.structs.replace(one, refusal=refusal))
        else:
            found.append(one)
    for gang in opening.late:
        refusal = Refusal(
            code=LATE,
            pods_need=gang.pods,
            form=gang.form,
            form_because=gang.form_because,
            shapes=len(shapes_of([gang])),
            retry_ms=next_try_ms(gang),
        )
        found.append(Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, None, refusal))
    return found


def _pause_ms(known: GangRecord | None, attempt: int) -> int:
    """Pause of a gang before its next try: twice the one before."""
    before = known.refusal if known is not None and known.attempt == attempt else None
    if known is None or before is None or not before.retry_ms:
        return _PAUSE_MS
    return min(2 * max(before.retry_ms - known.at_ms, _PAUSE_MS), PAUSE_MAX_MS)
