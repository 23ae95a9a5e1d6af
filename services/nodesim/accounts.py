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
class Claim:
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
    share: Share | None = None
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
        double_allocations: Chips that were claimed for a second pod; the claim was refused.
        overcommits: Pods for which a node had no CPU or memory left; they were refused too.
    """

    def __init__(self, nodes: Mapping[str, NodeDescription]) -> None:
        self._nodes = nodes
        self._taken: dict[str, _Ledger] = {}
        self.double_allocations = 0
        self.overcommits = 0

    def take(self, claim: Claim) -> str:
        """Book a claim; returns why it is refused, or an empty text when it is booked."""
        node = self._nodes.get(claim.node)
        if node is None:
            return f"node {claim.node} does not exist"
        if not node.ready:
            return f"node {claim.node} is not ready"
        if claim.chips and claim.resource != node.resource:
            return f"node {claim.node} has {node.resource}, not {claim.resource}"
        if claim.chips & ~node.chips:
            return f"node {claim.node} has no chip {(claim.chips & ~node.chips).bit_length() - 1}"
        taken = self._taken.setdefault(claim.node, _Ledger())
        reason = self._chips_taken(claim, node, taken) or self._overcommitted(claim, node, taken)
        if not reason:
            _book(taken, claim)
        return reason

    def _chips_taken(self, claim: Claim, node: NodeDescription, taken: _Ledger) -> str:
        shared = sum(1 << chip for chip, shares in taken.shares.items() if shares)
        if claim.share is not None:
            full = [chip for chip in _ids(claim.chips) if not _fits(taken.shares.get(chip, []), claim.share, node)]
            clash = claim.chips & taken.whole | sum(1 << chip for chip in full)
        else:
            clash = claim.chips & (taken.whole | shared)
        if claim.repeated or clash:
            self.double_allocations += max(clash.bit_count(), 1)
            chips = ", ".join(map(str, _ids(clash)))
            return f"chips {chips} of node {claim.node} are held by another pod" if clash else "a chip is given twice"
        return ""

    def _overcommitted(self, claim: Claim, node: NodeDescription, taken: _Ledger) -> str:
        for word, wanted, free in (
            ("cpu", claim.cpu_milli, node.cpu_milli - taken.cpu_milli),
            ("memory", claim.memory_mib, node.memory_mib - taken.memory_mib),
        ):
            if wanted > free:
                self.overcommits += 1
                return f"node {claim.node} has {free} {word} left, {wanted} requested"
        return ""

    def release(self, claim: Claim) -> None:
        """Release a booked claim."""
        taken = self._taken.get(claim.node)
        if taken is None:
            return
        if claim.share is None:
            taken.whole &= ~claim.chips
        else:
            for chip in _ids(claim.chips):
                if claim.share in taken.shares.get(chip, []):
                    taken.shares[chip].remove(claim.share)
        taken.cpu_milli -= claim.cpu_milli
        taken.memory_mib -= claim.memory_mib

    def chips_held(self) -> int:
        """Number of chips in use, wholly or in part."""
        return sum(
            taken.whole.bit_count() + sum(1 for shares in taken.shares.values() if shares)
            for taken in self._taken.values()
        )


def _book(taken: _Ledger, claim: Claim) -> None:
    if claim.share is None:
        taken.whole |= claim.chips
    else:
        for chip in _ids(claim.chips):
            taken.shares.setdefault(chip, []).append(claim.share)
    taken.cpu_milli += claim.cpu_milli
    taken.memory_mib += claim.memory_mib


def _ids(mask: int) -> list[int]:
    return [chip for chip in range(mask.bit_length()) if mask >> chip & 1]


def _fits(shares: list[Share], share: Share, node: NodeDescription) -> bool:
    """Whether a share fits beside others on a chip: one policy, up to 100 percent of cores and the chip's memory.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    size = node.labels.get(LABEL_CHIP_MEMORY, "").removesuffix("G")
    memory_mib = int(size) * _GIB_MIB if size.isascii() and size.isdigit() else 0
    return (
        all(other.policy == share.policy for other in shares)
        and sum(other.aicore for other in shares) + share.aicore <= _CORES
        and sum(other.hbm_mib for other in shares) + share.hbm_mib <= memory_mib
    )
