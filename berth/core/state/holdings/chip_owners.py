"""Owners of chips, as far as the ledger alone says: what every reader sees in the same way, also one without columns.

Changes are drafted first. A draft that would give a chip twice is an error, and then nothing has changed.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.core.errors import InvariantError
from berth.core.pod_shares import PodShare
from berth.core.state.holdings.holding import Holding, owned_by
from berth.schemas.placement import Placement, Share

_PERCENT: Final = 100


class SharedChip(NamedTuple):
    """Use of one chip by soft-share pods."""

    aicore: int
    """Percent of the chip's cores that are given."""
    policy: str
    pods: int


class ChipOwners:
    """Chips of each node that have an owner; nodes without any are not in it."""

    def __init__(self) -> None:
        self.masks: dict[str, int] = {}
        """Chips that one pod owns alone, by node."""
        self.shared: dict[str, dict[int, SharedChip]] = {}
        """Chips that soft-share pods use, by node and chip; a draft replaces the inner tables, and changes none."""
        self._pods: dict[tuple[str, int], tuple[Placement, list[PodShare]]] = {}
        """What attempts own that have all ranks at the places of their placement; others may be missing."""

    def pods_of(self, holding: Holding) -> list[PodShare]:
        """All that an attempt owns: what its ranks own, in rank order, and then the places reserved for them.

        Callers do not change the list.
        """
        if not holding.moves and not holding.gone:
            known = self._pods.get(holding.key)
            if known is not None and known[0] is holding.placement:
                return known[1]
        return [*owned_by(holding), *holding.reserved().values()]

    def draft(self) -> "Draft":
        """An empty draft."""
        return Draft(self)

    def install(self, draft: "Draft") -> None:
        """Let a draft of these owners count."""
        for key, known in draft.pods.items():
            if known is None:
                self._pods.pop(key, None)
            else:
                self._pods[key] = known
        for node, mask in draft.masks.items():
            if mask:
                self.masks[node] = mask
            else:
                self.masks.pop(node, None)
        for node, chips in draft.shared.items():
            if chips:
                self.shared[node] = chips
            else:
                self.shared.pop(node, None)


class Draft:
    """Changes of owners that do not count yet.

    Args:
        owners: The owners before.
    """

    def __init__(self, owners: ChipOwners) -> None:
        self._owners = owners
        self.masks: dict[str, int] = {}
        self.shared: dict[str, dict[int, SharedChip]] = {}
        self.pods: dict[tuple[str, int], tuple[Placement, list[PodShare]] | None] = {}

    def place(self, holding: Holding) -> None:
        """Give an attempt all that it owns.

        Raises:
            InvariantError: See :meth:`take`.
        """
        pods = [*owned_by(holding), *holding.reserved().values()]
        self.take(pods, holding.placement.share)
        self.pods[holding.key] = (holding.placement, pods) if not holding.moves and not holding.gone else None

    def remove(self, holding: Holding) -> None:
        """Take back all that an attempt owned before."""
        self.give_back(self._owners.pods_of(holding), holding.placement.share)
        self.pods[holding.key] = None

    def give_back(self, pods: Iterable[PodShare], share: Share | None) -> None:
        """Take chips from pods."""
        masks, before = self.masks, self._owners.masks
        for pod in pods:
            if share is not None:
                self._unshare(pod, share)
            elif pod.mask:
                masks[pod.node] = masks.get(pod.node, before.get(pod.node, 0)) & ~pod.mask

    def take(self, pods: Iterable[PodShare], share: Share | None) -> None:
        """Give chips to pods.

        Raises:
            InvariantError: One has an owner, or is shared by another policy, or more than all of it would be given.
        """
        masks, before = self.masks, self._owners.masks
        for pod in pods:
            if share is not None:
                self._share(pod, share)
            elif pod.mask:
                owned = masks.get(pod.node, before.get(pod.node, 0))
                if pod.mask & owned or any(pod.mask >> chip & 1 for chip in self._shared(pod.node)):
                    raise InvariantError("a chip would have two owners", subject=f"node {pod.node}")
                masks[pod.node] = owned | pod.mask

    def _shared(self, node: str) -> dict[int, SharedChip]:
        found = self.shared.get(node)
        return self._owners.shared.get(node, _NONE) if found is None else found

    def _share(self, pod: PodShare, share: Share) -> None:
        if not pod.chips:
            return
        chip, chips = pod.chips[0], self._shared(pod.node)
        subject = f"node {pod.node} chip {chip}"
        if self.masks.get(pod.node, self._owners.masks.get(pod.node, 0)) >> chip & 1:
            raise InvariantError("a chip would have two owners", subject=subject)
        used = chips.get(chip, SharedChip(0, share.policy, 0))
        if used.policy != share.policy:
            raise InvariantError("a chip would be shared by two policies", subject=subject)
        if used.aicore + share.aicore > _PERCENT:
            raise InvariantError("more than 100 percent of a chip would be given", subject=subject)
        self.shared[pod.node] = {**chips, chip: SharedChip(used.aicore + share.aicore, share.policy, used.pods + 1)}

    def _unshare(self, pod: PodShare, share: Share) -> None:
        if not pod.chips:
            return
        chip, chips = pod.chips[0], dict(self._shared(pod.node))
        used = chips[chip]
        if used.pods > 1:
            chips[chip] = SharedChip(used.aicore - share.aicore, used.policy, used.pods - 1)
        else:
            del chips[chip]
        self.shared[pod.node] = chips


_NONE: Final[dict[int, SharedChip]] = {}
