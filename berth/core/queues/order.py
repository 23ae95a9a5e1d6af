"""Order between queues: which leaf queue has the next turn, by how the branches of the tree stand."""

import functools
from collections.abc import Container, Iterable
from typing import Final

from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares
from berth.schemas.queues.queue import ROOT


@functools.total_ordering
class Ratio:
    """A fraction that is compared exactly: by its nearest number, and only of equal ones by its terms.

    Args:
        numerator: Numerator.
        denominator: Denominator, above 0.
    """

    __slots__ = ("denominator", "numerator", "value")

    def __init__(self, numerator: int, denominator: int) -> None:
        self.numerator, self.denominator = numerator, denominator
        self.value = numerator / denominator

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratio):
            return NotImplemented
        return self.value == other.value and self._over(other) == 0

    def __lt__(self, other: "Ratio") -> bool:
        return self.value < other.value or (self.value == other.value and self._over(other) < 0)

    def __hash__(self) -> int:
        return hash(self.value)

    def _over(self, other: "Ratio") -> int:
        return self.numerator * other.denominator - other.numerator * self.denominator


Standing = tuple[bool, Ratio, bool]
"""Whether a queue borrows; its share, or what it borrows over its weight; whether it is entitled to nothing."""
Rank = tuple[int, Standing, int, str]
"""Priority, higher first; how the queue stands; age; name."""
_NOTHING: Final = Ratio(0, 1)
_WHOLE: Final = Ratio(1, 1)


def share_of(shares: Shares, usage: Usage, name: str) -> Ratio | None:
    """Largest part that a queue holds of its entitlement in any dimension; None if it is entitled to nothing."""
    parts = ((usage.held(name, one), entitled) for one, entitled in shares.entitlements[name].items() if entitled)
    return _largest(parts)


def borrowed_of(shares: Shares, usage: Usage, name: str) -> Ratio:
    """Largest part of the capacity that a queue holds beyond its entitlement in any dimension, over its weight."""
    weight = max(1, shares.tree.queues[name].weight)
    parts = (
        (max(0, usage.held(name, one) - entitled), shares.capacity[one] * weight)
        for one, entitled in shares.entitlements[name].items()
        if shares.capacity[one]
    )
    return _largest(parts) or _NOTHING


def _largest(parts: Iterable[tuple[int, int]]) -> Ratio | None:
    """The largest of some fractions; None without one."""
    top, below = 0, 0
    for numerator, denominator in parts:
        if not below or numerator * below > top * denominator:
            top, below = numerator, denominator
    return Ratio(top, below) if below else None


def standing_of(shares: Shares, usage: Usage, name: str) -> Standing:
    """What decides between queues of one priority, the smaller first.

    Entitled ones come by share, then borrowers by what they borrow. The reference orders all by share, where a queue
    that is entitled to nothing has 1 and comes last of these.
    """
    share = share_of(shares, usage, name)
    if not shares.tree.differs.borrowers_by_weight:
        return (False, _WHOLE, True) if share is None else (False, share, False)
    if share is None or share.numerator >= share.denominator:
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

    Source: docs/decisions/volcano-queues.md, "Reference implementation".
    """
    tree = shares.tree
    stands = {name: standing_of(shares, usage, name) for name in tree.paths}

    def compare(one: str, other: str) -> int:
        first, second = tree.queues[one], tree.queues[other]
        mine, theirs = (stands[branch[-1]] for branch in tree.branches(one, other))
        before = (-first.priority, mine, first.created, one) < (-second.priority, theirs, second.created, other)
        return -1 if before else 1

    return sorted(tree.leaves(), key=functools.cmp_to_key(compare))
