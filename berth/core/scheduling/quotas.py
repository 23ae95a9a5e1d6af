"""Quotas: what a queue says of a gang that waits, on the state as it is."""

from berth.core.gangs import Gang
from berth.core.queues.admission import Ask, placement_refusal
from berth.core.state.cell import State
from berth.schemas.refusal import QueueRefusal


def refused_now(state: State, gang: Gang) -> QueueRefusal | None:
    """Why its queue does not let a gang in now; None if it does, or queues do nothing."""
    shares = state.queues.shares()
    if shares is None or state.queues.held_places(gang.uid):
        return None
    return placement_refusal(shares, state.queues.usage(shares.tree), Ask(gang.queue, gang.charge, gang.namespace))
