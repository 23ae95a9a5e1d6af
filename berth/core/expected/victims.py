"""Which jobs would end for one that finds no room, as the rule of the epoch would decide on the state as it is."""

from berth.core.gangs import Gang
from berth.core.placement.projected_state import ProjectedState
from berth.core.placement.round_demand import is_heavy
from berth.core.preemption.model import PLACES, NoVictims
from berth.core.scheduling.quotas import refused_now
from berth.core.scheduling.rules.preemption import Preemption
from berth.core.scheduling.rules.search_ground import nothing_changes
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.kept_places import PREEMPTION
from berth.schemas.intake import Preemption as Declared
from berth.schemas.programs.expected import EndingJob, Victims
from berth.schemas.queues.queue import DEFAULT


def victims_for(scheduler: Scheduler, gang: Gang, at_ms: int, declared: Declared | None = None) -> Victims | None:
    """Which jobs would end for a gang if it were tried now.

    Args:
        scheduler: Of the state, which must not change.
        gang: A gang that waits, or would, with what drains say of its shapes.
        at_ms: The moment.
        declared: What it declares, of a job that is not submitted.

    Returns:
        None where the epoch has no preemption, and for gangs that take no part in it: those that have a place reserved,
        that can never fit, or that are too many pods of different shapes to be planned beside a round.
    """
    state, rule = scheduler.state, scheduler.rules.by_name.get(PREEMPTION)
    takes_part = gang.invalid is None and gang.uid not in state.fold.held
    if not isinstance(rule, Preemption) or not takes_part or is_heavy(gang.request_class, len(state.table)):
        return None
    is_let_in = refused_now(state, gang) is None
    if is_let_in and ProjectedState(state, scheduler.scorer, None).plan(gang) is not None:
        return Victims(code="not-needed")
    found = rule.found_for(gang, nothing_changes(state, scheduler.scorer, at_ms, scheduler.queue.gang), declared)
    if isinstance(found, NoVictims):
        place = PLACES.get(found.place, "")
        return Victims(code=found.code, place=place, candidates=found.gangs, chips=found.chips, times=found.evictions)
    if not found.victims:
        return None  # those that leave already make room for it
    holdings = state.fold.holdings
    return Victims(
        jobs=[
            EndingJob(
                job=f"{holdings[one.uid, one.attempt].namespace}/{holdings[one.uid, one.attempt].name}",
                queue=one.queue or DEFAULT,
                priority=one.priority,
                chips=one.chips,
                is_reclaimed=one.is_reclaimed,
                pods=len(one.ranks),
            )
            for one in found.victims
        ],
        place=PLACES.get(found.place.kind, ""),
        where=found.place.name,
    )
