"""Predicate times on pods: strictly increasing on each node. Pure.

The device plug-in serves the pod with the smallest time first. So two pods of one node must never share a time, and a
later decision must never look like an earlier one: not within a millisecond of the clock, not when the clock is set
back, and not after a restart. After a restart, the times of pods that still wait for chips are read from the pods. For
all others, whose time is no longer relevant, the times of the last outcomes are a lower bound.

Source: docs/reference/nodes-and-chips.md, "Pod annotations of chips"; docs/reference/kubernetes.md, "Pod annotations"
and "Binding".
"""

from typing import Final

from berth.schemas.units import UnixMs

_NS_PER_MS: Final = 1_000_000


class PredicateTimes:
    """The last time of each node."""

    def __init__(self) -> None:
        self._floor_ns = 0
        self._last_ns: dict[str, int] = {}

    def begin_after(self, at_ms: UnixMs) -> None:
        """Assign no time up to the end of a millisecond: an earlier run may have assigned it."""
        self._floor_ns = max(self._floor_ns, (at_ms + 1) * _NS_PER_MS)

    def note(self, node: str, predicate_ns: int | None) -> None:
        """Note the predicate time of a pod on a node; None for none."""
        if predicate_ns is None:
            return
        self._last_ns[node] = max(self._last_ns.get(node, 0), predicate_ns)

    def next(self, node: str, now_ms: UnixMs) -> int:
        """Predicate time for the next pod of a node, in ns since 1970: the clock's, or the first free one after it."""
        found = max(now_ms * _NS_PER_MS, self._floor_ns, self._last_ns.get(node, 0) + 1)
        self._last_ns[node] = found
        return found
