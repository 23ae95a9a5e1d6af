"""Accounts of the simulated nodes: chips, CPU and memory in use, independent of any scheduler. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from berth.products.model import LABEL_CHIP_MEMORY
from berth.schemas.nodes import NodeDescription
from berth.schemas.placement import Share

_CORES: Final = 100
_GIB_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources that a pod uses on a node.

    Attributes:
        node: The node's name.
        chips: Bitmap of the chips.
        resource: Resource name that the chips must have.
        cpu_milli: CPU in thousandths.
        memory_mib: Memory in MiB.
        share: Quota, when it uses only a part of a chip.
        repeated: The same chip is named twice for the pod.
    """

    node: str
    chips: int
    resource: str
    cpu_milli: int
    memory_mib: int
    share: Share | None
    repeated: bool = False


@dataclass(slots=True)
class _Ledger:
    """Resources in use on one node."""

    whole: int = 0
    shares: dict[int, list[Share]] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0


class Accounts:
    """Resources in use on each node.

    Attributes:
        double_allocations: Chips that were requested for a second pod; it was refused.
        overcommits: Pods for which a node had no CPU or memory left; they were refused too.
    """

    def __init__(self, nodes: Mapping[str, NodeDescription]) -> None:
        self._nodes = nodes
        self._taken: dict[str, _Ledger] = {}
        self.double_allocations = 0
        self.overcommits = 0

    def take(self, use: ResourceUse) -> str:
        """Account for a pod; returns why it is refused, or an empty text when it is accepted."""
        node = self._nodes.get(use.node)
        if node is None:
            return f"node {use.node} does not exist"
        if not node.ready:
            return f"node {use.node} is not ready"
        if use.chips and use.resource != node.resource:
            return f"node {use.node} has {node.resource}, not {use.resource}"
        if use.chips & ~node.chips:
            return f"node {use.node} has no chip {(use.chips & ~node.chips).bit_length() - 1}"
        taken = self._taken.setdefault(use.node, _Ledger())
        reason = self._chips_taken(use, node, taken) or self._overcommitted(use, node, taken)
        if not reason:
            _book(taken, use)
        return reason

    def _chips_taken(self, use: ResourceUse, node: NodeDescription, taken: _Ledger) -> str:
        shared = sum(1 << chip for chip, shares in taken.shares.items() if shares)
        if use.share is not None:
            full = [chip for chip in _ids(use.chips) if not _fits(taken.shares.get(chip, []), use.share, node)]
            clash = use.chips & taken.whole | sum(1 << chip for chip in full)
        else:
            clash = use.chips & (taken.whole | shared)
        if use.repeated or clash:
            self.double_allocations += max(clash.bit_count(), 1)
            chips = ", ".join(map(str, _ids(clash)))
            return f"chips {chips} of node {use.node} are held by another pod" if clash else "a chip is given twice"
        return ""

    def _overcommitted(self, use: ResourceUse, node: NodeDescription, taken: _Ledger) -> str:
        for word, wanted, free in (
            ("cpu", use.cpu_milli, node.cpu_milli - taken.cpu_milli),
            ("memory", use.memory_mib, node.memory_mib - taken.memory_mib),
        ):
            if wanted > free:
                self.overcommits += 1
                return f"node {use.node} has {free} {word} left, {wanted} requested"
        return ""

    def release(self, use: ResourceUse) -> None:
        """Release what an accepted pod uses."""
        taken = self._taken.get(use.node)
        if taken is None:
            return
        if use.share is None:
            taken.whole &= ~use.chips
        else:
            for chip in _ids(use.chips):
                if use.share in taken.shares.get(chip, []):
                    taken.shares[chip].remove(use.share)
        taken.cpu_milli -= use.cpu_milli
        taken.memory_mib -= use.memory_mib

    def chips_held(self) -> int:
        """Number of chips in use, wholly or in part."""
        return sum(
            taken.whole.bit_count() + sum(1 for shares in taken.shares.values() if shares)
            for taken in self._taken.values()
        )


def _book(taken: _Ledger, use: ResourceUse) -> None:
    if use.share is None:
        taken.whole |= use.chips
    else:
        for chip in _ids(use.chips):
            taken.shares.setdefault(chip, []).append(use.share)
    taken.cpu_milli += use.cpu_milli
    taken.memory_mib += use.memory_mib


def _ids(mask: int) -> list[int]:
    return [chip for chip in range(mask.bit_length()) if mask >> chip & 1]


def _fits(shares: list[Share], share: Share, node: NodeDescription) -> bool:
    """Whether a share fits on a chip with others: one policy, up to 100 percent of cores and the chip's memory.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    size = node.labels.get(LABEL_CHIP_MEMORY, "").removesuffix("G")
    memory_mib = int(size) * _GIB_MIB if size.isascii() and size.isdigit() else 0
    return (
        all(other.policy == share.policy for other in shares)
        and sum(other.aicore for other in shares) + share.aicore <= _CORES
        and sum(other.hbm_mib for other in shares) + share.hbm_mib <= memory_mib
    )
