"""Order between queues: which leaf queue has the next turn, by how the branches of the tree stand. Exact fractions."""

from collections.abc import Container
from fractions import Fraction
from functools import cmp_to_key

from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares
from berth.schemas.queues.queue import ROOT

Standing = tuple[bool, Fraction, bool]
"""Whether a queue borrows; its share, or what it borrows over its weight; whether it is entitled to nothing."""
Rank = tuple[int, Standing, int, str]
"""Priority, higher first; how the queue stands; age; name."""


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


def rank_of(shares: Shares, usage: Usage, name: str) -> Rank:
    """Rank of a valid queue among its siblings; the smallest has its turn first."""
    queue = shares.tree.queues[name]
    return (-queue.priority, standing_of(shares, usage, name), queue.created, name)


def leaves_in_order(shares: Shares, usage: Usage) -> list[str]:
    """All valid leaf queues in the order of their turns, if none of them got anything."""
    tree = shares.tree
    if not tree.differs.branch_priority:
        return _by_leaf(shares, usage)
    found: list[str] = []
    left = [ROOT]
    while left:
        name = left.pop()
        below = tree.children.get(name)
        if below is None:
            found.append(name)
        else:
            left += sorted(below, key=lambda child: rank_of(shares, usage, child), reverse=True)
    return found


def next_leaf(shares: Shares, usage: Usage, awake: Container[str]) -> str | None:
    """The leaf queue that has the next turn; None without one.

    Args:
        shares: Entitlements.
        usage: What queues hold, what was given in this round included.
        awake: Valid queues that have a gang to try, in them or below.
    """
    tree = shares.tree
    if not tree.differs.branch_priority:
        return next((name for name in _by_leaf(shares, usage) if name in awake), None)
    if ROOT not in awake:
        return None
    name = ROOT
    while name in tree.children:
        awake_below = [child for child in tree.children[name] if child in awake]
        name = min(awake_below, key=lambda child: rank_of(shares, usage, child))
    return name


def _by_leaf(shares: Shares, usage: Usage) -> list[str]:
    """Leaf queues as the reference orders them: by the priority of the leaf, how its branch stands, its age and name.

    Source: docs/decisions/queues.md, "Reference implementation".
    """
    tree = shares.tree
    stands = {name: standing_of(shares, usage, name) for name in tree.paths}

    def compare(one: str, other: str) -> int:
        first, second = tree.queues[one], tree.queues[other]
        mine, theirs = (stands[branch[-1]] for branch in tree.branches(one, other))
        before = (-first.priority, mine, first.created, one) < (-second.priority, theirs, second.created, other)
        return -1 if before else 1

    return sorted(tree.leaves(), key=cmp_to_key(compare))
