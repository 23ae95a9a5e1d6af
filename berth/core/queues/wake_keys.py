"""Keys under which gangs sleep that a queue refused, and what wakes them.

A gang sleeps under the queues of its path, because what is declared of them decides its limits, and under the queue and
dimension that bind. A gang of a queue that is not valid sleeps under the tree as a whole.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from berth.core.queues.tree import Tree
from berth.schemas.queues.queue import KEY_SIGN, ROOT, Queue
from berth.schemas.refusal import QueueRefusal

_TREE: Final = KEY_SIGN
"""Any queue was declared otherwise."""


def keys_of_gang(tree: Tree | None, refusal: QueueRefusal, queue: str) -> tuple[str, ...]:
    """Keys under which a gang sleeps.

    Args:
        tree: The tree; None if there is none any more.
        refusal: Why it was refused.
        queue: Its queue.
    """
    path = tree.paths.get(queue) if tree is not None else None
    if path is None:
        return (_TREE,)
    keys = [declared_key(step) for step in path]
    return (*keys, amount_key(refusal.queue, refusal.dimension)) if refusal.dimension else tuple(keys)


def keys_of_change(old: Queue | None, new: Queue | None) -> dict[str, None]:
    """Keys that wake when a queue is declared otherwise.

    What is guaranteed to a queue, where it is, and whether it is valid bear on its siblings and on the queue
    above, so the queue above wakes with it.

    Args:
        old: The queue before; None if it is new.
        new: The queue now; None if it is gone.
    """
    found = {_TREE: None}
    is_other = old is None or new is None or (old.guarantee, bool(old.wrong)) != (new.guarantee, bool(new.wrong))
    for queue in (old, new):
        if queue is not None:
            found[declared_key(queue.name)] = None
            if is_other or (old and old.parent) != (new and new.parent):
                found[declared_key(queue.parent or ROOT)] = None
            if is_other:
                found[declared_key(ROOT)] = None  # with any guarantee, its children share what the nodes have
    return found


def keys_of_less(tree: Tree, queue: str, before: Mapping[str, int], now: Mapping[str, int]) -> Iterable[str]:
    """Keys that wake when a gang counts for less in its queue.

    Args:
        tree: The tree.
        queue: The queue.
        before: What the gang counted for.
        now: What it counts for in this queue now.
    """
    less = [dimension for dimension, amount in before.items() if amount > now.get(dimension, 0)]
    return (amount_key(step, dimension) for step in tree.charged(queue) for dimension in less) if less else ()


def declared_key(queue: str) -> str:
    """Key that wakes when a queue, or one on whose amounts its limits depend, is declared otherwise."""
    return f"{KEY_SIGN}{queue}"


def amount_key(queue: str, dimension: str) -> str:
    """Key that wakes when a queue holds less of a dimension."""
    return f"{KEY_SIGN}{queue}/{dimension}"
