"""Failures of a cluster: when chips, nodes and leaf switches break, and when they are repaired.

Each part breaks by a process of its own: the time until it breaks is drawn from a distribution, its repair takes a
fixed time, and then it begins anew. Numbers come from a counter-based generator: those of a part depend on the seed and
on the part alone, so that a longer time span only adds events.

The mean time between failures is that of a node, with its chips and its share of the leaf switch. Its default is the
rate that was measured on the larger of two clusters of Meta, 6.50 failures in 1,000 node days (Kokolis et al.,
"Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680). Which part breaks is a
choice, not a measurement.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

Part = Literal["chip", "node", "leaf"]
_PARTS: Final[tuple[Part, ...]] = ("chip", "node", "leaf")
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST: Final = 31
_FRACTION_BITS: Final = 53
_DAY_MS: Final = 86_400_000
RSC_1_MTBF_MS: Final = round(1000 * _DAY_MS / 6.50)
"""Mean time between failures of a node of the cluster RSC-1."""
_YEARS_MS: Final = 1 << 52
"""A time that no simulation reaches; longer draws end here."""


class FailureModel(msgspec.Struct, frozen=True, kw_only=True):
    """How often parts break.

    Attributes:
        mtbf_ms: Mean time between failures of a node, all its parts together.
        chip: Weight of failures of one chip.
        node: Weight of failures of a whole node.
        leaf: Weight of failures of a leaf switch, with all nodes below it.
        weibull: Shape of the Weibull distribution of the time to a failure; 1 is the exponential distribution, below it
            failures follow soon after a repair.
        repair_ms: How long a repair takes.
        seed: Seed of all draws.
    """

    mtbf_ms: int = RSC_1_MTBF_MS
    chip: float = 0.70
    node: float = 0.29
    leaf: float = 0.01
    weibull: float = 1.0
    repair_ms: int = 4 * 3_600_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the numbers mean something.

        Raises:
            ValueError: A number is out of its bounds.
        """
        if self.mtbf_ms <= 0:
            raise ValueError(f"mtbf: {self.mtbf_ms} ms, expected a time above 0")
        if self.repair_ms <= 0:
            raise ValueError(f"repair: {self.repair_ms} ms, expected a time above 0")
        for name in _PARTS:
            weight = getattr(self, name)
            if not 0 <= weight < math.inf:
                raise ValueError(f"{name}: {weight:g}, expected a number from 0 on")
        if not self.chip + self.node + self.leaf > 0:
            raise ValueError("chip, node and leaf: 0, expected at least one above 0")
        if not SHAPE_MIN <= self.weibull <= SHAPE_MAX:
            raise ValueError(f"shape: {self.weibull:g}, expected a number from {SHAPE_MIN} to {SHAPE_MAX}")


SHAPE_MIN: Final = 0.2
SHAPE_MAX: Final = 20


class BreakableNode(NamedTuple):
    """A node that can break.

    Attributes:
        name: Its name.
        chips: Mask of its chips.
        leaf: Its leaf switch; empty for none.
    """

    name: str
    chips: int
    leaf: str = ""


class Failure(NamedTuple):
    """A part that breaks. Failures are in this order.

    Attributes:
        at_ms: When it breaks.
        part: What it is.
        name: The node, or the leaf switch.
        chips: Mask of the chip; 0 for other parts.
        repaired_ms: When it works again.
    """

    at_ms: int
    part: Part
    name: str
    chips: int
    repaired_ms: int


class _Process(NamedTuple):
    """Failures of one part, one after the other."""

    part: Part
    name: str
    chips: int
    """Mask of the chips of which one breaks; 0 for other parts."""
    mean_ms: float
    key: int


def failures(model: FailureModel, nodes: Sequence[BreakableNode]) -> Iterator[Failure]:
    """Failures of a cluster from moment 0 on, without an end unless nothing can break; ascending.

    Args:
        model: How often parts break.
        nodes: The cluster; the order of the nodes does not matter.
    """
    heap = [(_next(model, process, 0, 0), 1, process) for process in _processes(model, nodes)]
    heapq.heapify(heap)
    while heap:
        failure, count, process = heap[0]
        yield failure
        heapq.heapreplace(heap, (_next(model, process, failure.repaired_ms, count), count + 1, process))


def _processes(model: FailureModel, nodes: Sequence[BreakableNode]) -> Iterator[_Process]:
    """A process for each part that can break, in the order of kinds and names."""
    total = model.chip + model.node + model.leaf
    members: dict[str, int] = {}
    for node in sorted(nodes):
        if node.leaf:
            members[node.leaf] = members.get(node.leaf, 0) + 1
        if model.chip and node.chips:
            mean_ms = model.mtbf_ms * total / model.chip
            yield _Process("chip", node.name, node.chips, mean_ms, _key(model.seed, "chip", node.name))
        if model.node:
            mean_ms = model.mtbf_ms * total / model.node
            yield _Process("node", node.name, 0, mean_ms, _key(model.seed, "node", node.name))
    if model.leaf:
        yield from _leaf_processes(model, members, model.mtbf_ms * total / model.leaf)


def _leaf_processes(model: FailureModel, members: Mapping[str, int], of_node_ms: float) -> Iterator[_Process]:
    for name in sorted(members):
        yield _Process("leaf", name, 0, of_node_ms / members[name], _key(model.seed, "leaf", name))


def _next(model: FailureModel, process: _Process, from_ms: int, count: int) -> Failure:
    """The failure that follows a moment at which the part worked; ``count`` is the number of those before."""
    drawn = _mixed(process.key + 2 * count * _GOLDEN)
    unit = ((drawn >> (64 - _FRACTION_BITS)) + 1) / (1 << _FRACTION_BITS)  # above 0, at most 1
    scale_ms = process.mean_ms / math.gamma(1 + 1 / model.weibull)
    wait_ms = scale_ms * (-math.log(unit)) ** (1 / model.weibull)
    at_ms = from_ms + max(1, round(min(wait_ms, _YEARS_MS)))
    chips = 0
    if process.chips:
        pick = _mixed(process.key + (2 * count + 1) * _GOLDEN) % process.chips.bit_count()
        chips = _bits(process.chips)[pick]
    return Failure(at_ms, process.part, process.name, chips, at_ms + model.repair_ms)


def _bits(mask: int) -> list[int]:
    """Masks of the single bits of a mask, ascending."""
    return [1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _key(seed: int, part: Part, name: str) -> int:
    """Key of the draws of a part."""
    key = _mixed(seed & _MASK)
    for byte in f"{part} {name}".encode():
        key = _mixed(key ^ byte)
    return key


def _mixed(value: int) -> int:
    """Mix a number (splitmix64)."""
    found = (value + _GOLDEN) & _MASK
    for shift, factor in _STEPS:
        found = ((found ^ (found >> shift)) * factor) & _MASK
    return found ^ (found >> _LAST)
