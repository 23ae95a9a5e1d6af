"""Chips of bound pods: which ones their annotations name, and how many of what they ask for nobody names. Pure.

Source: docs/reference/kubernetes.md, "Life of a pod"; docs/reference/nodes-and-chips.md, "Pod annotations of chips".
"""

from berth.formats.kubernetes.bound_pods import other_number
from berth.schemas.units import UnixMs
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.nodes.free_chips import SHARES
from berth.services.inventory.pod_rows import PodRow


class PodChips:
    """Reads the chips of pods on their nodes.

    Args:
        nodes: Nodes; they resolve the ids of chips.
        naming_ms: Time in which the device plug-in names the chips of a pod that was bound.
    """

    def __init__(self, nodes: Nodes, *, naming_ms: int) -> None:
        self._nodes = nodes
        self._naming_ms = naming_ms
        self._new: dict[str, UnixMs] = {}
        """Since when pods (uid) are known whose chips may still be named; the oldest come first."""

    def is_shared(self, node: str) -> bool:
        """Whether pods share the chips of a node."""
        return self._nodes.whole_chips(node, SHARES) == 1

    def asked(self, row: PodRow) -> int:
        """Number of chips that a pod asks for, or has parts of."""
        return self._nodes.whole_chips(row.node, row.asked)

    def of(self, row: PodRow) -> int:
        """Bitmap of the physical chips of a pod that its node has; of more than it asks for none counts."""
        chips = self._nodes.named(row.node, row.chips, physical=row.physical).chips
        return chips if chips.bit_count() <= self.asked(row) else 0

    def are_allocated(self, row: PodRow) -> int:
        """1 unless the device plug-in has yet to allocate the chips of a pod."""
        return int(row.taken or (row.chips != 0 and self.of(row) == self._nodes.mask(row.node)))

    def unnamed(self, row: PodRow, named: int) -> int:
        """Number of the chips of a pod without those that a fact of it names."""
        return max(self.asked(row) - named.bit_count(), 0)

    def begin(self, row: PodRow, now_ms: UnixMs) -> None:
        """Note that a pod came."""
        if row.asked:
            self._new[row.uid] = now_ms

    def settle(self, uid: str) -> None:
        """Note that the chips of a pod are known, or that it is gone."""
        self._new.pop(uid, None)

    def is_new(self, uid: str) -> bool:
        """Whether the device plug-in may still name the chips of a pod."""
        return uid in self._new

    def settled(self, now_ms: UnixMs) -> list[str]:
        """Pods (uid) that are not new any more; each is named once."""
        found = [uid for uid, since_ms in self._new.items() if since_ms + self._naming_ms <= now_ms]
        for uid in found:
            del self._new[uid]
        return found

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`settled` may name one; None for never."""
        first = next(iter(self._new.values()), None)
        return first + self._naming_ms if first is not None else None

    def reason(self, row: PodRow) -> str:
        """Errors of a pod's annotations, with its name; empty without one."""
        wrong = [row.reason] if row.reason else []
        extra = self._nodes.named(row.node, row.chips, physical=row.physical).unknown
        if extra and row.is_live:
            ids = ", ".join(str(chip) for chip in range(extra.bit_length()) if extra >> chip & 1)
            wrong.append(
                f"its chips {ids} do not exist on node {row.node}: expected chips of the node that it is bound to"
            )
        asked, named = self.asked(row), row.chips.bit_count()
        if row.is_live and named and named != asked and not wrong:
            wrong.append(other_number(named, asked))
        return f"pod {row.namespace}/{row.name}: {'; '.join(wrong)}" if wrong else ""
