"""Quotas: what a queue says of a gang that waits, on the state as it is."""

from berth.core.gangs import Gang
from berth.core.queues.admission import Ask, placement_refusal
from berth.core.state.cell import State
from berth.schemas.refusal import QueueRefusal


def refused_now(state: State, gang: Gang) -> QueueRefusal | None:
    """Why its queue does not let a gang in now; None if it does, or queues do nothing."""
    shares = state.queues.shares()
    if shares is None or state.queues.continues(gang):
        return None
    usage = state.queues.usage(shares.tree)
    if gang.uid in state.fold.held:
        usage = usage.fork()
        state.queues.charge_held(usage, gang.uid, times=-1)
    return placement_refusal(shares, usage, Ask(gang.queue, gang.charge, gang.namespace))
