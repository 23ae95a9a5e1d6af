"""Chips that more than one bound pod names. Nobody is evicted for that: which pod is wrong is not known. Pure."""

from collections.abc import Callable

from berth.core.chips.picking import named_by_several
from berth.services.inventory.pod_rows import PodRow


class ChipsTwice:
    """Chips that live pods name, by node."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, int]] = {}
        self._crowded: dict[str, None] = {}
        """Nodes with a chip that two pods name."""

    def note(self, node: str, uid: str, mask: int) -> list[str]:
        """Take the chips that a pod names; 0 for none, or for a pod that has ended.

        Returns:
            Other pods that name some of the chips that changed.
        """
        pods = self._named.setdefault(node, {})
        before = pods.pop(uid, 0)
        if mask:
            pods[uid] = mask
        changed = before ^ mask
        affected = [other for other, named in pods.items() if other != uid and named & changed]
        if not pods:
            del self._named[node]
        if affected:
            self._crowded.pop(node, None)
            if named_by_several(pods):
                self._crowded[node] = None
        return affected

    def before(self, node: str, uid: str, is_own: Callable[[str], bool]) -> int:
        """Chips that others name which come before a pod of others: pods of Berth, and those with smaller uids."""
        found = 0
        for other, named in self._named.get(node, {}).items() if node in self._crowded else ():
            if other != uid and (is_own(other) or other < uid):
                found |= named
        return found

    @property
    def count(self) -> int:
        """Number of chips that more than one pod names."""
        return sum(len(named_by_several(self._named[node])) for node in self._crowded)

    def sentences(self, row: Callable[[str], PodRow | None]) -> dict[str, str]:
        """What is wrong, by pod (uid).

        Args:
            row: A pod by its uid.
        """
        found: dict[str, str] = {}
        for node in self._crowded:
            chips: dict[str, list[int]] = {}
            others: dict[str, dict[str, None]] = {}
            for chip, uids in named_by_several(self._named[node]):
                names = {uid: f"{one.namespace}/{one.name}" for uid in sorted(uids) if (one := row(uid)) is not None}
                for uid in names:
                    chips.setdefault(uid, []).append(chip)
                    others.setdefault(uid, {}).update((name, None) for other, name in names.items() if other != uid)
            for uid, ids in chips.items():
                which = f"{'chip' if len(ids) == 1 else 'chips'} {', '.join(map(str, ids))} of node {node}"
                found[uid] = f"{which} {'is' if len(ids) == 1 else 'are'} named by pod {' and '.join(others[uid])} too"
        return found
