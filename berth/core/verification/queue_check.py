"""Queues that hold more than their limit: nothing repairs that but the end of jobs, and no record is void for it."""

from typing import Final

from berth.core.queues.amounts import in_order, number_of
from berth.core.state.cell import State
from berth.core.verification.findings import Finding

OVER: Final = "over-capability"


def over_limits(state: State, *, stream: str) -> list[Finding]:
    """Queues above their limit, gangs that are leaving left out; by name of the queue.

    Args:
        state: The cell.
        stream: Name of the stream of the records.
    """
    shares = state.queues.shares()
    if shares is None:
        return []
    usage = state.queues.usage(shares.tree)
    return [
        Finding(
            OVER,
            stream,
            sequence=state.fold.head,
            name=name,
            text=(
                f"queue {name} holds {number_of(one, usage.held(name, one))} of {number_of(one, most)} {one}: its limit was"
                " lowered, or pods of another scheduler were adopted; nothing new is placed in it before that has fallen"
            ),
        )
        for name in sorted(shares.limits)
        for one in in_order(shares.limits[name])
        if usage.held(name, one) > (most := shares.limits[name][one])
    ]
