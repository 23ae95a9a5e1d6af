"""Returning gangs: jobs that start anew as a whole, with places that are held for them.

They are tried after the recoveries of a turn, but before other gangs restart for places, and before the gangs that
wait. Healthy pods get back the nodes and chips that they had, the others new places. One that finds none this way waits
like any other gang.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from berth.core.errors import guarded
from berth.core.gangs import Gang
from berth.core.placement.planned_pods import RoundParts
from berth.core.placement.replacements import NoPlaces, plan_restart
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.rules import Rules
from berth.core.scheduling.turn import Returning
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
        if not rules.lets_in(gang):
            continue

        def left_out(error: Exception, gang: Gang = gang) -> NoPlaces | None:
            parts.nodes.roll_back_gang()
            found.set_aside.append(SetAside(gang.namespaced_name, error))
            return None

        placement = guarded(
            lambda pods=pods: plan_restart(parts, pods, missing=missing),  # type: ignore[misc]  # the default binds it
            left_out,
            passes=(NeedMoreError,),
        )
        if placement is None or isinstance(placement, NoPlaces):
            continue
        found.verdicts.append(Verdict(gang.namespace, gang.name, gang.uid, gang.attempt, placement, queue=gang.queue))
        rules.started(gang, placement)
    return found
