"""Nodes that have got another SuperPoD or rack while pods with chips ran on them. Pure.

Nothing is wrong with what is known: the node is where it is now. But the pods were placed beside others, and an operator
may want to know, for as long as they run.
"""

from collections.abc import Callable, Iterable

import msgspec

from berth.schemas.nodes import NodeDescription


class Moves:
    """Where nodes were when pods that still run there were placed, as far as they are elsewhere now."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, str]] = {}
        self._now: dict[str, tuple[str, str]] = {}
        self._published: dict[str, tuple[str, str]] = {}
        """Where earlier runs said that nodes are which have not been seen since."""

    def restore(self, nodes: Iterable[NodeDescription]) -> None:
        """Take where earlier runs said that nodes are. Those that were in no SuperPoD have not moved, wherever they are."""
        self._published |= {node.name: (node.superpod, node.rack) for node in nodes if node.superpod}

    def begin(self, node: NodeDescription, *, is_busy: bool) -> None:
        """Take a node that was not there before in this run.

        Args:
            node: The node.
            is_busy: Pods with chips run there. They were placed by what was said last.
        """
        said = self._published.pop(node.name, None)
        if said is None or not is_busy:
            return
        superpod, rack = said
        self.note(msgspec.structs.replace(node, superpod=superpod, rack=rack or node.rack), node)

    def note(self, before: NodeDescription, after: NodeDescription) -> None:
        """Take that a node with pods is told of anew. A node that comes back to where it was has not moved."""
        old, new = (before.superpod, before.rack), (after.superpod, after.rack)
        if old == new:
            return
        first = self._before.setdefault(after.name, old)
        self._now[after.name] = new
        if first == new:
            self._drop(after.name)

    def sentences(self, is_busy: Callable[[str], bool]) -> dict[str, str]:
        """What is to be said, by node; nodes whose pods are gone are forgotten.

        Args:
            is_busy: Whether pods with chips run on a node.
        """
        for name in [name for name in self._now if not is_busy(name)]:
            self._drop(name)
        return {name: _sentence(name, self._before[name], now) for name, now in self._now.items()}

    def _drop(self, name: str) -> None:
        del self._before[name], self._now[name]


def _sentence(name: str, before: tuple[str, str], now: tuple[str, str]) -> str:
    """A SuperPoD outranks the rack in it."""
    what, old, new = ("rack", before[1], now[1]) if before[0] == now[0] else ("SuperPoD", before[0], now[0])
    return (
        f"node {name}: {what} is {new or 'none'}: expected {old or 'none'}, as before, while pods with chips run there; "
        "they keep their chips, and what is placed next counts the node where it is now"
    )
