"""Nodes whose SuperPoD or rack changed while pods with chips ran on them. Pure.

The description of the node is correct: it states the current place. But the pods were placed for the former place, and
an operator is informed as long as they run.
"""

from collections.abc import Callable, Iterable

import msgspec

from berth.schemas.nodes import NodeDescription


class Moves:
    """Former places of nodes whose pods were placed before the node moved."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, str]] = {}
        self._now: dict[str, tuple[str, str]] = {}
        self._published: dict[str, tuple[str, str]] = {}
        """Published places of nodes that have not been seen since the restart."""

    def restore(self, nodes: Iterable[NodeDescription]) -> None:
        """Restore the published places. A node that was in no SuperPoD has not moved, wherever it is."""
        self._published |= {node.name: (node.superpod, node.rack) for node in nodes if node.superpod}

    def begin(self, node: NodeDescription, *, is_busy: bool) -> None:
        """Take a node that is new in this run.

        Args:
            node: The node.
            is_busy: Pods with chips run there. They were placed by the published place.
        """
        published = self._published.pop(node.name, None)
        if published is None or not is_busy:
            return
        superpod, rack = published
        self.note(msgspec.structs.replace(node, superpod=superpod, rack=rack or node.rack), node)

    def note(self, before: NodeDescription, after: NodeDescription) -> None:
        """Take a change of a node with pods. A node that returns to its former place has not moved."""
        old, new = (before.superpod, before.rack), (after.superpod, after.rack)
        if old == new:
            return
        first = self._before.setdefault(after.name, old)
        self._now[after.name] = new
        if first == new:
            self._drop(after.name)

    def sentences(self, is_busy: Callable[[str], bool]) -> dict[str, str]:
        """Messages by node; nodes whose pods are gone are dropped.

        Args:
            is_busy: Whether pods with chips run on a node.
        """
        for name in [name for name in self._now if not is_busy(name)]:
            self._drop(name)
        return {name: _sentence(name, self._before[name], now) for name, now in self._now.items()}

    def _drop(self, name: str) -> None:
        del self._before[name], self._now[name]


def _sentence(name: str, before: tuple[str, str], now: tuple[str, str]) -> str:
    """Message about a move. A change of the SuperPoD takes precedence over one of the rack."""
    what, old, new = ("rack", before[1], now[1]) if before[0] == now[0] else ("SuperPoD", before[0], now[0])
    return (
        f"node {name}: {what} is {new or 'none'}: expected {old or 'none'}, no change while pods with chips run there; "
        "they keep their chips, and new placements use the current place of the node"
    )
