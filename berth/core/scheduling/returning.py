"""Returning gangs: jobs that start anew as a whole, with places that are held for them.

They are tried after the recoveries of a turn, but before other gangs restart for places, and before the gangs that
wait. Healthy pods get back the nodes and chips that they had, the others new places. One that finds none this way waits
like any other gang.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from berth.core.changes import Changes
from berth.core.errors import guarded
from berth.core.placement.leaving_pods import LeavingPods, NoPlaces
from berth.core.placement.planned_pods import RoundParts
from berth.core.placement.replacements import plan_restart
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.rules import Rules
from berth.core.requests.gangs import Gang
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.turn import Returning
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.core.state.internal_errors import SetAside
from berth.schemas.ledger import Verdict


class Returned(NamedTuple):
    """Returning gangs that are placed.

    Attributes:
        verdicts: Their placements.
        set_aside: Gangs whose plan ended with an error; they wait like any other one.
    """

    verdicts: list[Verdict]
    set_aside: list[SetAside]


def returning_gangs(
    state: State, queue: Queue, drained: DrainedGangs, taken: Sequence[Gang], changes: Changes
) -> list[Returning]:
    """Gangs with held places that may find their other places now.

    Args:
        state: The cell.
        queue: Gangs that wait.
        drained: Drains that count for them.
        taken: Gangs that are tried in this turn anyway.
        changes: What the turn consumes.
    """
    uids = {gang.uid for gang in taken}
    has_gained = bool(changes.capacity_gained or changes.chips_returned)
    found: list[Returning] = []
    for uid, held in sorted(state.fold.held.items()):
        gang = queue.gang(uid) if has_gained or uid in uids else None
        if gang is not None and gang.invalid is None and gang.pods == held.placement.pods():
            gang = drained.applied(gang)
            found.append(Returning(gang, _pods(state, gang, held)))
    return found


def place_returning(
    parts: RoundParts, returning: Iterable[Returning], *, rules: Rules, missing: Sequence[int]
) -> Returned:
    """Place returning gangs, as far as there are places.

    Args:
        parts: The round; recoveries of the turn have their places, and no gang is placed yet.
        returning: The gangs, in the order in which they are tried.
        rules: Rules of the round.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: The candidates end before all are tried.
    """
    found = Returned([], [])
    for gang, pods in returning:

        def left_out(error: Exception, gang: Gang = gang) -> NoPlaces | None:
            parts.roll_back()
            found.set_aside.append(SetAside(gang.namespaced_name, error))
            return None

        placement = guarded(
            lambda pods=pods: plan_restart(parts, pods, missing=missing),  # type: ignore[misc]  # the default binds it
            left_out,
            passes=(NeedMoreError,),
        )
        if placement is None or isinstance(placement, NoPlaces):
            continue
        found.verdicts.append(Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, placement))
        rules.started(gang, placement)
    return found


def _pods(state: State, gang: Gang, held: Held) -> LeavingPods:
    """All pods of a gang; those whose places are held can return."""
    record = state.fold.gangs.get(gang.uid)
    recovery = record.recovery if record is not None else None
    ranks, kept = range(gang.pods), set(held.ranks)
    failed_nodes = tuple(recovery.nodes) if recovery is not None else ()
    names = held.placement.names()
    faulty = [rank for rank in recovery.faulty if names[rank] in failed_nodes] if recovery is not None else []
    return LeavingPods(
        gang,
        held.placement,
        tuple(ranks),
        tuple(faulty),  # others have a place that was reserved for them
        tuple(rank for rank in ranks if rank not in kept),
        "job",
        failed_nodes=failed_nodes,
        have_ended=True,
    )
