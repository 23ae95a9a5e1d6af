"""How a queue stands: its share of what it is entitled to, and what it borrows. Exact fractions."""

from fractions import Fraction

from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares

Standing = tuple[bool, Fraction, bool]
"""Whether a queue borrows; its share, or what it borrows over its weight; whether it is entitled to nothing."""


def share_of(shares: Shares, usage: Usage, name: str) -> Fraction | None:
    """Largest part that a queue holds of its entitlement in any dimension; None if it is entitled to nothing."""
    parts = [
        Fraction(usage.held(name, dimension), entitled)
        for dimension, entitled in shares.entitlements[name].items()
        if entitled
    ]
    return max(parts, default=None)


def borrowed_of(shares: Shares, usage: Usage, name: str) -> Fraction:
    """Largest part of the capacity that a queue holds beyond its entitlement in any dimension, over its weight."""
    weight = max(1, shares.tree.queues[name].weight)
    parts = [
        Fraction(max(0, usage.held(name, dimension) - entitled), shares.capacity[dimension] * weight)
        for dimension, entitled in shares.entitlements[name].items()
        if shares.capacity[dimension]
    ]
    return max(parts, default=Fraction())


def standing_of(shares: Shares, usage: Usage, name: str) -> Standing:
    """What decides between queues of one priority, the smaller first.

    Entitled ones come by share, then borrowers by what they borrow. The reference orders all by share, where a queue
    that is entitled to nothing has 1 and comes last of these.
    """
    share = share_of(shares, usage, name)
    if not shares.tree.differs.borrowers_by_weight:
        return (False, Fraction(1), True) if share is None else (False, share, False)
    if share is None or share >= 1:
        return (True, borrowed_of(shares, usage, name), False)
    return (False, share, False)
