"""Lost nodes: since when nodes with attempts are gone, not ready, or to be left, and when that is all of one cause.

A switch or a SuperPoD that fails is reported node by node. Who acts on the first report moves pods to places that fail
next, and restarts jobs again.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.cluster.domains import is_linked

MOVE_MS: Final = 60_000
"""Longest time in which a node that changes its domain is in none."""
_SETTLES_MAX: Final = 5
"""Longest wait for further nodes of the same cause, in settle times."""


class LostNode(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A node that is gone or not ready, or that pods are to leave."""

    name: str
    domain: str
    """Domain that it was in when it was lost."""
    unready_ms: int = 0
    """Since when it is gone or not ready; 0: it is neither."""
    evicted_ms: int = 0
    """Since when its sources want pods to leave; 0: they do not."""
    moves: bool = False
    """It has left its domain for another one, whose fact follows."""

    @property
    def newest_ms(self) -> int:
        """When it was last lost."""
        return max(self.unready_ms, self.evicted_ms)


class LostNodes:
    """Those nodes that have attempts."""

    def __init__(self) -> None:
        self._nodes: dict[str, LostNode] = {}
        self._in: dict[str, dict[str, None]] = {}
        """Names by domain."""

    def note(self, name: str, domain: str, *, is_unready: bool, is_evicted: bool, at_ms: int) -> None:
        """Note how a node is from a moment on; what was noted before keeps its time."""
        before = self._nodes.get(name, LostNode(name, domain))
        self.drop(name)
        at_ms = at_ms or 1  # a fact without a time
        if is_unready or is_evicted:
            self._put(
                LostNode(
                    name,
                    domain or before.domain,
                    (before.unready_ms or at_ms) if is_unready else 0,
                    (before.evicted_ms or at_ms) if is_evicted else 0,
                )
            )

    def note_move(self, name: str) -> None:
        """Note that a node which is lost changes its domain."""
        self._nodes[name] = msgspec.structs.replace(self._nodes[name], moves=True)

    def _put(self, node: LostNode) -> None:
        self._nodes[node.name] = node
        self._in.setdefault(node.domain, {})[node.name] = None

    def drop(self, name: str) -> None:
        """Forget a node."""
        node = self._nodes.pop(name, None)
        if node is not None:
            names = self._in[node.domain]
            del names[name]
            if not names:
                del self._in[node.domain]

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others."""
        kept = dict.fromkeys(names)
        for name in [name for name in self._nodes if name not in kept]:
            self.drop(name)

    def get(self, name: str) -> LostNode | None:
        """What is known of a node; None if it is not lost."""
        return self._nodes.get(name)

    def settled_ms(self, name: str, settle_ms: int) -> int:
        """When no further nodes are expected to be lost for the same cause as one; 0: there is nothing to wait for.

        A node of which a source alone says that pods are to leave is waited for only with another one of its domain.

        Args:
            name: The node.
            settle_ms: How long none of its domain must have been lost.
        """
        node = self._nodes.get(name)
        if node is None or not is_linked(node.domain):
            return 0
        newest_ms = [self._nodes[other].newest_ms for other in self._in[node.domain] if other != name]
        own_ms = node.newest_ms
        if not node.unready_ms and not any(other_ms > own_ms - settle_ms for other_ms in newest_ms):
            return 0
        return min(max([own_ms, *newest_ms]) + settle_ms, own_ms + _SETTLES_MAX * settle_ms)

    def dump(self) -> list[LostNode]:
        """All of them, by name."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def load(self, nodes: Iterable[LostNode]) -> None:
        """Become what a snapshot holds."""
        self._nodes, self._in = {}, {}
        for node in nodes:
            self._put(node)
