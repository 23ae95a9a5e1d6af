"""Fair shares as the reference has them: in parts of a unit, with guarantees on top, and a limit of what is placed.

In rounds each queue that is not met gets its part of the rest by weight, up to its limit and its requests, and at least
its guarantee. A queue is met if it needs no more, or gets no more.

Source: docs/decisions/volcano-queues.md, "Reference implementation".
"""

from collections.abc import Mapping
from typing import Final

from berth.core.queues.amounts import is_chips
from berth.core.queues.shares import Shares
from berth.schemas.queues.queue import Amounts

PARTS: Final = 10**8
"""Parts of a unit in which shares are counted. A round that gives a queue a part or less gives it nothing."""
_ERROR: Final = PARTS // 10**4
"""Parts that many rounds may lose together."""


def reference_fair(shares: Shares, demand: Mapping[str, Mapping[str, int]]) -> dict[str, Amounts]:
    """Parts of each queue by dimension, :data:`PARTS` to a unit.

    Args:
        shares: Limits, weights and guarantees.
        demand: By queue what its gangs hold and ask for; others get nothing.
    """
    rest = {dimension: amount * PARTS for dimension, amount in shares.capacity.items()}
    found = {name: dict.fromkeys(rest, 0) for name in sorted(demand)}
    unmet = list(found)
    while unmet and any(amount >= small(dimension) for dimension, amount in rest.items()):
        weights = sum(shares.tree.queues[name].weight for name in unmet)
        before = {name: dict(found[name]) for name in unmet}
        met = {name for name in unmet if _give(shares, found[name], rest, demand[name], name, weights)}
        given = {
            dimension: sum(found[name][dimension] - before[name][dimension] for name in unmet) for dimension in rest
        }
        if all(abs(amount) <= len(unmet) for amount in given.values()):
            break
        rest = {dimension: max(0, amount - given[dimension]) for dimension, amount in rest.items()}
        unmet = [name for name in unmet if name not in met]
    return {
        name: {dimension: (amount + _ERROR // 2) // _ERROR * _ERROR for dimension, amount in parts.items()}
        for name, parts in found.items()
    }


def _give(
    shares: Shares, parts: Amounts, rest: Mapping[str, int], asked: Mapping[str, int], name: str, weights: int
) -> bool:
    """Raise the parts of a queue by its part of the rest; true if the queue is met."""
    queue, before = shares.tree.queues[name], dict(parts)
    for dimension, amount in rest.items():
        wanted = asked.get(dimension, 0)
        most = min(wanted, shares.limits[name].get(dimension, wanted)) * PARTS
        parts[dimension] = min(parts[dimension] + amount * queue.weight // weights, most)
    is_met = all(abs(amount - before[dimension]) <= 1 for dimension, amount in parts.items()) or all(
        asked.get(dimension, 0) * PARTS < amount + small(dimension) for dimension, amount in parts.items()
    )
    for dimension, amount in parts.items():
        parts[dimension] = max(amount, queue.guarantee.get(dimension, 0) * PARTS)
    return is_met


def small(dimension: str) -> int:
    """Parts that count as nothing: a tenth of a thousandth of a CPU or chip, or of a MiB."""
    return PARTS // 100 if is_chips(dimension) else PARTS // 10
