"""Shared use of a node's chips: how much of each is allocated to pods that share it.

Source: docs/reference/nodes-and-chips.md, "Soft share".
"""

from typing import Final

import msgspec

from berth.schemas.placement import Share

CHIP_IDS: Final = 16
"""Most chips of a node that can be shared, and the longest free list that is accepted."""
CORE_PERCENT: Final = 100
"""Cores of a chip, in percent."""
POLICY_NUMBERS: Final = {"fixed-share": 1, "elastic": 2, "best-effort": 3}
"""Number of a policy in a column; 0 is a chip that is not shared."""


class SharedNode(msgspec.Struct):
    """Use of a node's chips by soft-share pods, by chip id."""

    enabled: bool
    memory_mib: int
    """Memory of one chip in MiB; 0 if the label is missing or invalid."""
    core: list[int]
    hbm: list[int]
    policy: list[int]
    pods: list[int]
    closed: list[int]
    """Reservations that wait for the chip: no further pod can share it."""

    def copy(self) -> "SharedNode":
        """Independent copy."""
        lists = (self.core, self.hbm, self.policy, self.pods, self.closed)
        return SharedNode(self.enabled, self.memory_mib, *(column[:] for column in lists))

    def add(self, chip: int, share: Share) -> None:
        """Add the quota of one more pod to a chip."""
        self.core[chip] += share.aicore
        self.hbm[chip] += share.hbm_mib
        self.policy[chip] = POLICY_NUMBERS[share.policy]
        self.pods[chip] += 1

    def remove(self, chip: int, share: Share) -> None:
        """Remove the quota of a pod from a chip."""
        self.core[chip] -= share.aicore
        self.hbm[chip] -= share.hbm_mib
        self.pods[chip] -= 1
        if not self.pods[chip]:
            self.policy[chip] = 0

    @property
    def mask(self) -> int:
        """Mask of the chips that at least one pod shares."""
        return sum(1 << chip for chip, pods in enumerate(self.pods) if pods)

    @property
    def full(self) -> int:
        """Mask of the chips that no further pod can share: all cores or all memory is allocated, or others get them."""
        return sum(
            1 << chip
            for chip, pods in enumerate(self.pods)
            if self.closed[chip] or (pods and (self.core[chip] >= CORE_PERCENT or self.hbm[chip] >= self.memory_mib))
        )


def unused_node() -> SharedNode:
    """A node whose chips cannot be shared, and no pod shares."""
    zeros = [0] * CHIP_IDS
    return SharedNode(False, 0, *(zeros[:] for _ in range(5)))  # noqa: FBT003  # its columns
