"""Limits and entitlements: what each queue may hold at most, and what it may get back from others."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from berth.core.queues.amounts import ordered, total, unit_of
from berth.core.queues.split import Entry, split
from berth.core.queues.tree import Tree
from berth.schemas.queues.queue import ROOT, Amounts


class Shares(NamedTuple):
    """What a tree of queues means on a cluster. Queues that are not valid have no part in it.

    Attributes:
        tree: The queues.
        capacity: What the ready nodes give, by dimension.
        limits: Most that each queue may hold; a dimension that is missing has no limit.
        entitlements: What each queue may get back; every dimension of the capacity is there.
        oversubscribed: By how much the children of a queue declare more ``deserved``, or more guarantees, than it is
            entitled to; queues without such an amount are missing.
    """

    tree: Tree
    capacity: Amounts
    limits: dict[str, Amounts]
    entitlements: dict[str, Amounts]
    oversubscribed: dict[str, Amounts]


def shares_of(tree: Tree, capacity: Mapping[str, int]) -> Shares:
    """Limits and entitlements of a tree.

    Args:
        tree: The queues.
        capacity: Healthy chips, allocatable cpu and memory of nodes that are ready.
    """
    given = ordered(capacity)
    limits = _limits(tree, given)
    entitlements = {ROOT: given}
    oversubscribed: dict[str, Amounts] = {}
    for name in _downwards(tree):
        children = tree.children[name]
        parts = _entitled(tree, children, entitlements[name], limits)
        entitlements |= parts
        sums = total(parts.values())
        beyond = {
            dimension: sums[dimension] - most
            for dimension, most in entitlements[name].items()
            if sums.get(dimension, 0) > most
        }
        if beyond:
            oversubscribed[name] = beyond
    return Shares(tree, given, limits, entitlements, oversubscribed)


def _downwards(tree: Tree) -> list[str]:
    """Queues that have children, each behind the one above it."""
    found = [ROOT] if ROOT in tree.children else []
    for name in found:
        found += [child for child in tree.children[name] if child in tree.children]
    return found


def _limits(tree: Tree, capacity: Mapping[str, int]) -> dict[str, Amounts]:
    root = tree.queues[ROOT]
    found = {ROOT: dict(root.capability)}
    kept = total(tree.queues[name].guarantee for name in tree.paths)
    shared = dict(root.capability)
    for dimension, amount in capacity.items():
        if kept.get(dimension) and tree.differs.guarantees_on_nodes:
            shared[dimension] = min(amount, shared.get(dimension, amount))
    for name in _downwards(tree):
        above = shared if name == ROOT else found[name]
        kept = total(tree.queues[child].guarantee for child in tree.children[name])
        for child in tree.children[name]:
            queue = tree.queues[child]
            limit = _capability(tree, child)
            for dimension, most in above.items():
                own = queue.guarantee.get(dimension, 0)
                bound = max(0, most - kept.get(dimension, 0)) + own
                if tree.differs.limited_by_parent:
                    bound = min(most, bound)
                limit[dimension] = min(bound, limit.get(dimension, bound))
            found[child] = ordered(limit)
    return found


def _capability(tree: Tree, name: str) -> Amounts:
    """Capability of a queue; in the reference with those of the queues above where it declares none."""
    if tree.differs.limited_by_parent:
        return dict(tree.queues[name].capability)
    found: Amounts = {}
    for step in reversed(tree.paths[name]):
        found |= tree.queues[step].capability
    return found


def _entitled(
    tree: Tree,
    children: Collection[str],
    above: Mapping[str, int],
    limits: Mapping[str, Mapping[str, int]],
) -> dict[str, Amounts]:
    """Entitlements of all children of a queue that is entitled to ``above``."""
    queues = [tree.queues[name] for name in children]
    is_split = not any(queue.deserved for queue in queues) and tree.differs.entitled_by_weight
    found: dict[str, Amounts] = {name: {} for name in children}
    for dimension, amount in above.items():
        if is_split:
            entries = [_entry(tree, name, dimension, limits[name].get(dimension)) for name in children]
            parts = split(amount, entries, unit=unit_of(dimension))
        else:
            parts = {}
            for queue in queues:
                deserved, most = queue.deserved.get(dimension, 0), limits[queue.name].get(dimension)
                if most is not None and tree.differs.entitled_within_limits:
                    deserved = min(deserved, most)
                parts[queue.name] = max(deserved, queue.guarantee.get(dimension, 0))
        for name, part in parts.items():
            found[name][dimension] = part
    return found


def _entry(tree: Tree, name: str, dimension: str, limit: int | None) -> Entry:
    """A queue in a split by weight. One that nobody declared gets nothing."""
    queue = tree.queues[name]
    floor = queue.guarantee.get(dimension, 0)
    return Entry(
        name, queue.weight if name in tree.declared else 0, floor, None if limit is None else max(limit, floor)
    )
