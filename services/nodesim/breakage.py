"""What is broken on a simulated node, and since when. Pure.

Levels are those of the agents that report them: the device plug-in's for chips and their network, NodeD's for the node,
the switch reports' for the links of A3 nodes.

Source: docs/reference/faults.md, "Chip fault levels" and "Node and switch fault levels".
"""

import re
from dataclasses import dataclass, field
from typing import Final

from berth.formats.clusters.topology_file import Fault
from berth.products.model import RESOURCE_910
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeDescription
from berth.schemas.simulation import BreakNode
from berth.schemas.units import UnixMs

CHIP_LEVELS: Final = (
    "NotHandleFault", "SubHealthFault", "RestartRequest", "RestartBusiness", "FreeRestartNPU", "RestartNPU",
    "PreSeparateNPU", "SeparateNPU", "ManuallySeparateNPU",
)  # fmt: skip
"""Levels of chips and of their network, mildest first."""
HARMLESS: Final = frozenset({"NotHandleFault", "SubHealthFault"})
"""Levels of chips that stay in the list of free chips."""
NODE_LEVELS: Final = {"NotHandleFault": "Healthy", "PreSeparateFault": "PreSeparate", "SeparateFault": "UnHealthy"}
"""NodeD's levels, mildest first, and the NodeStatus of each."""
SWITCH_LEVELS: Final = {
    "NotHandle": "Healthy",
    "SubHealthFault": "SubHealthy",
    "PreSeparate": "PreSeparate",
    "RestartRequest": "UnHealthy",
    "Reset": "UnHealthy",
    "Separate": "UnHealthy",
}
"""Levels of switch reports, mildest first, and the NodeStatus of each."""
KEPT_MS: Final = 60_000
"""How long after its end a breakage is remembered at least, so that everybody sees that it ended."""
KINDS: Final = ("chip", "network", "recovering", "node", "switch", "kubelet", "plugin")
OF_CHIPS: Final = frozenset({"chip", "network", "recovering"})
_LEVELS: Final[dict[str, tuple[str, ...]]] = {
    "chip": CHIP_LEVELS,
    "network": CHIP_LEVELS,
    "node": tuple(NODE_LEVELS),
    "switch": tuple(SWITCH_LEVELS),
}
_USUAL: Final = {
    "chip": ("RestartNPU", "80E24E00"),
    "network": ("PreSeparateNPU", "81078603"),
    "node": ("SeparateFault", "0100001D"),
    "switch": ("SubHealthFault", "00F1FF09"),
}
"""Level and code of a kind when none is given."""
_CODE: Final = re.compile(r"[0-9A-F]{1,16}")
_NODE_LEVEL: Final = {NodeHealth.NO_NEW_WORK: "PreSeparateFault", NodeHealth.EVICT: "SeparateFault"}
_FILE_KINDS: Final = {"unhealthy": "chip", "network-unhealthy": "network", "recovering": "recovering"}


class WrongBreakError(ValueError):
    """A wish to break what cannot be broken so; the text names field, value and what is right."""


@dataclass(frozen=True, slots=True)
class Breakage:
    """One thing that is broken for a while.

    Attributes:
        kind: One of :data:`KINDS`.
        chips: Mask, for the kinds of :data:`OF_CHIPS`.
        level: Level of the reporting agent; empty for recovering, kubelet and plugin.
        code: Fault code; likewise.
        from_ms: When it breaks.
        until_ms: When it is well again by itself; None for never.
    """

    kind: str
    chips: int = 0
    level: str = ""
    code: str = ""
    from_ms: UnixMs = 0
    until_ms: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """What is broken at a moment, in the order in which it broke."""

    items: tuple[Breakage, ...] = ()

    def of(self, kind: str) -> list[Breakage]:
        """Breakages of one kind."""
        return [item for item in self.items if item.kind == kind]

    @property
    def kubelet(self) -> bool:
        """The kubelet is dead."""
        return bool(self.of("kubelet"))

    @property
    def plugin(self) -> bool:
        """The device plug-in is dead."""
        return bool(self.of("plugin"))

    @property
    def recovering(self) -> int:
        """Mask of chips that are being reset."""
        return _mask(self.of("recovering"))

    @property
    def network(self) -> int:
        """Mask of chips whose network fails: any level counts that is not to be ignored."""
        return _mask([item for item in self.of("network") if item.level != "NotHandleFault"])

    def unhealthy(self, used: int) -> int:
        """Mask of chips that get no work.

        Args:
            used: Mask of chips in use; one of level ``PreSeparateNPU`` stays healthy while it is.
        """
        mask = 0
        for item in self.of("chip"):
            if item.level not in HARMLESS:
                mask |= item.chips & ~used if item.level == "PreSeparateNPU" else item.chips
        return mask


@dataclass(slots=True)
class Breakages:
    """All that is or will be broken on a node."""

    items: list[Breakage] = field(default_factory=list)

    def add(self, item: Breakage) -> None:
        """Break something; the same thing again only gets a new end. What ended long before is forgotten."""
        kept_ms = item.from_ms - KEPT_MS
        self.items = [
            other
            for other in self.items
            if _what(other) != _what(item) and (other.until_ms is None or other.until_ms > kept_ms)
        ]
        self.items.append(item)

    def mend(self, kind: str, chips: int = 0) -> int:
        """Take back what is broken of a kind, of some chips or of all (0); returns how many breakages changed."""
        kept: list[Breakage] = []
        changed = 0
        for item in self.items:
            if item.kind != kind or (chips and not item.chips & chips):
                kept.append(item)
                continue
            changed += 1
            rest = item.chips & ~chips if chips else 0
            if rest:
                kept.append(
                    Breakage(item.kind, rest, item.level, item.code, from_ms=item.from_ms, until_ms=item.until_ms)
                )
        self.items = kept
        return changed

    def at(self, now_ms: UnixMs) -> Broken:
        """What is broken at a moment."""
        return Broken(
            tuple(
                item
                for item in self.items
                if item.from_ms <= now_ms and (item.until_ms is None or item.until_ms > now_ms)
            )
        )

    def next_turn_ms(self, now_ms: UnixMs) -> UnixMs | None:
        """When something next breaks or is well after ``now_ms``; None for never."""
        turns = [turn for item in self.items for turn in (item.from_ms, item.until_ms) if turn and turn > now_ms]
        return min(turns, default=None)


def breakage_of(wish: BreakNode, node: NodeDescription, now_ms: UnixMs) -> Breakage:
    """What a wish breaks or mends.

    Raises:
        WrongBreakError: The kind, a chip, the level or the code cannot be.
    """
    if wish.fault not in KINDS:
        raise WrongBreakError(f"fault is {wish.fault!r}, expected one of {', '.join(KINDS)}")
    return Breakage(
        kind=wish.fault,
        chips=_chips(wish, node),
        level=_level(wish),
        code=_code(wish),
        from_ms=now_ms,
        until_ms=now_ms + wish.lasts_ms if wish.lasts_ms > 0 else None,
    )


def breakages_of_file(fault: Fault, node: NodeDescription, start_ms: UnixMs) -> list[Breakage]:
    """What a fault of a topology file breaks; its times count from ``start_ms``.

    A sub-healthy node is one whose switch says so where it reports any (A3), else one with all chips sub-healthy: NodeD
    has no such level.
    """
    from_ms = start_ms + fault.from_ms
    until_ms = None if fault.until_ms is None else start_ms + fault.until_ms
    chips = fault.chips
    if fault.kind:
        kind = _FILE_KINDS[fault.kind]
        level, code = _USUAL.get(kind, ("", ""))
    elif fault.level in _NODE_LEVEL:
        kind, level, code = "node", _NODE_LEVEL[fault.level], _USUAL["node"][1]
    elif fault.level == NodeHealth.SUB_HEALTHY and has_switch_reports(node):
        kind, (level, code) = "switch", _USUAL["switch"]
    elif fault.level == NodeHealth.SUB_HEALTHY:
        kind, level, code, chips = "chip", "SubHealthFault", _USUAL["chip"][1], node.chips
    else:
        return []
    return [Breakage(kind, chips, level, code, from_ms, until_ms)]


def has_switch_reports(node: NodeDescription) -> bool:
    """Whether the device plug-in of the node reports its switches: on A3.

    Source: docs/reference/kubernetes.md, "ConfigMaps".
    """
    return node.resource == RESOURCE_910 and "a3" in node.product


def _chips(wish: BreakNode, node: NodeDescription) -> int:
    if wish.fault not in OF_CHIPS:
        if wish.chips:
            raise WrongBreakError(f"chips are {wish.chips}, expected none: a fault of kind {wish.fault} has no chips")
        if wish.fault == "switch" and not has_switch_reports(node):
            raise WrongBreakError(f"fault is 'switch', and node {node.name} ({node.product}) has no switch reports")
        return 0
    if not wish.chips and not wish.mend:
        raise WrongBreakError(f"chips are missing: a fault of kind {wish.fault} needs some of {_listed(node.chips)}")
    wrong = [chip for chip in wish.chips if chip < 0 or not node.chips >> chip & 1]
    if wrong:
        raise WrongBreakError(f"chips are {wrong}, expected some of {_listed(node.chips)} of node {node.name}")
    return sum(1 << chip for chip in set(wish.chips))


def _level(wish: BreakNode) -> str:
    known = _LEVELS.get(wish.fault, ())
    if not wish.level:
        return _USUAL[wish.fault][0] if known else ""
    if wish.level not in known:
        expected = f"one of {', '.join(known)}" if known else f"none: a fault of kind {wish.fault} has no level"
        raise WrongBreakError(f"level is {wish.level!r}, expected {expected}")
    return wish.level


def _code(wish: BreakNode) -> str:
    if not wish.code:
        return _USUAL.get(wish.fault, ("", ""))[1]
    if not _CODE.fullmatch(wish.code):
        raise WrongBreakError(f"code is {wish.code!r}, expected up to 16 digits in upper-case hex")
    return wish.code


def _what(item: Breakage) -> tuple[str, int, str, str]:
    return (item.kind, item.chips, item.level, item.code)


def _mask(items: list[Breakage]) -> int:
    mask = 0
    for item in items:
        mask |= item.chips
    return mask


def _listed(mask: int) -> str:
    return ", ".join(str(chip) for chip in range(mask.bit_length()) if mask >> chip & 1)
