"""Order between queues: which leaf queue has the next turn, by how the branches of the tree stand."""

from collections.abc import Container
from functools import cmp_to_key

from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares
from berth.core.queues.standing import Standing, standing_of
from berth.schemas.queues.queue import ROOT

Rank = tuple[int, Standing, int, str]
"""Priority, higher first; how the queue stands; age; name."""


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
