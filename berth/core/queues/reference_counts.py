"""What a gang counts for where the reference admits others: what it holds, and what of its minimum it lacks.

What it holds beyond its minimum is elastic and does not count. Without a minimum all that it holds is elastic.

Source: docs/decisions/volcano-queues.md, "Reference implementation".
"""

from collections.abc import Mapping

from berth.core.parity import Differences
from berth.core.queues.amounts import plus
from berth.schemas.queues.queue import Amounts


def elastic_part(held: Mapping[str, int], minimum: Mapping[str, int]) -> Amounts:
    """What a gang holds beyond its minimum."""
    return _beyond(held, minimum)


def reserved_part(held: Mapping[str, int], minimum: Mapping[str, int], *, is_due: bool) -> Amounts:
    """What a gang lacks of its minimum.

    Args:
        held: What it holds.
        minimum: Its minimum.
        is_due: It was admitted and waits, or runs with as many pods as its minimum has; else nothing is reserved.
    """
    return _beyond(minimum, held) if is_due else {}


def counted_minimum(
    held: Mapping[str, int], minimum: Amounts | None, *, is_due: bool, differs: Differences
) -> Amounts | None:
    """What counts of a gang that stays: its minimum, which is made from its pods where it declares none (None).

    In the reference it is what the gang holds of its minimum, and what is reserved for it; nothing without a minimum.
    """
    if differs.counts_what_stays:
        return minimum
    minimum = minimum or {}
    within = {dimension: min(amount, minimum.get(dimension, 0)) for dimension, amount in held.items()}
    return plus(within, reserved_part(held, minimum, is_due=is_due))


def _beyond(amounts: Mapping[str, int], bounds: Mapping[str, int]) -> Amounts:
    left = {dimension: amount - bounds.get(dimension, 0) for dimension, amount in amounts.items()}
    return {dimension: amount for dimension, amount in left.items() if amount > 0}
