"""Fair shares by demand: the capacity split among the leaf queues that hold or ask for something.

They are shown and enforced nowhere: they move whenever somebody submits.
"""

from collections.abc import Mapping

from berth.core.queues.amounts import unit_of
from berth.core.queues.charges import Usage
from berth.core.queues.reference_fair import PARTS, reference_fair, small
from berth.core.queues.shares import Shares
from berth.core.queues.split import Entry, split
from berth.schemas.queues.queue import Amounts


def fair_shares(shares: Shares, demand: Mapping[str, Mapping[str, int]]) -> dict[str, Amounts]:
    """Fair share of each leaf queue, in whole units.

    Args:
        shares: Limits, weights and guarantees.
        demand: By valid leaf queue what its gangs hold and ask for; others get nothing.
    """
    if not shares.tree.differs.floors_within_the_sum:
        return {
            name: {dimension: parts // PARTS for dimension, parts in part.items()}
            for name, part in reference_fair(shares, demand).items()
        }
    found: dict[str, Amounts] = {name: {} for name in sorted(demand)}
    for dimension, amount in shares.capacity.items():
        entries = []
        for name in found:
            queue, asked = shares.tree.queues[name], demand[name].get(dimension, 0)
            floor = queue.guarantee.get(dimension, 0)
            most = min(asked, shares.limits[name].get(dimension, asked))
            entries.append(Entry(name, queue.weight, floor, max(most, floor)))
        for name, part in split(amount, entries, unit=unit_of(dimension)).items():
            found[name][dimension] = part
    return found


def is_beyond_fair(
    shares: Shares, usage: Usage, demand: Mapping[str, Mapping[str, int]], queue: str, asked: Mapping[str, int]
) -> bool:
    """Whether the fair share of a queue forbids that it gets more; in the reference alone, with its plug-in proportion.

    Args:
        shares: Limits, weights and guarantees.
        usage: What queues hold.
        demand: As for :func:`fair_shares`.
        queue: A queue that is in the demand.
        asked: What it asks for.
    """
    if shares.tree.differs.deserved_is_no_limit:
        return False
    parts = reference_fair(shares, demand)[queue]
    return any(
        amount * PARTS >= max(0, parts.get(dimension, 0) - usage.held(queue, dimension) * PARTS) + small(dimension)
        for dimension, amount in asked.items()
        if amount
    )
