"""Faults of a simulated node, with their start and end. Pure.

Levels are those of the reporting agents: the device plug-in for chips and their network, NodeD for the node, the switch
reports for the links of A3 nodes.

Source: docs/reference/faults.md, "Chip fault levels" and "Node and switch fault levels".
"""

import re
from dataclasses import dataclass, field
from typing import Final

from berth.formats.clusters.topology_file import Fault
from berth.products.catalogue import A3_NODES
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
"""Minimum time for which a fault is kept after its end, so that every agent observes the end."""
KINDS: Final = ("chip", "network", "recovering", "node", "switch", "kubelet", "plugin", "gone", "container", "relation")
"""Kinds of faults; container and relation are of a pod, and happen once."""
OF_PODS: Final = frozenset({"container", "relation"})
RELATION_LEVELS: Final = ("Separate", "SubHealth", "software")
"""Values of the label that ClusterD gives to a pod for a fault that it has matched with the job."""
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
"""Default level and code of a kind."""
_CODE: Final = re.compile(r"[0-9A-F]{1,16}")
_NODE_LEVEL: Final = {NodeHealth.NO_NEW_WORK: "PreSeparateFault", NodeHealth.EVICT: "SeparateFault"}
_FILE_KINDS: Final = {"unhealthy": "chip", "network-unhealthy": "network", "recovering": "recovering"}


class WrongBreakError(ValueError):
    """Invalid fault request; the text names field, value and valid values."""


@dataclass(frozen=True, slots=True)
class Breakage:
    """One fault.

    Attributes:
        kind: One of :data:`KINDS`.
        chips: Bitmap, for the kinds of :data:`OF_CHIPS`.
        level: Level of the reporting agent; empty for recovering, kubelet, plugin and gone.
        code: Fault code; likewise.
        from_ms: Time at which it starts.
        until_ms: Time at which it ends by itself; None for never.
    """

    kind: str
    chips: int = 0
    level: str = ""
    code: str = ""
    from_ms: UnixMs = 0
    until_ms: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """Faults at a moment, in the order in which they started."""

    items: tuple[Breakage, ...] = ()

    def of(self, kind: str) -> list[Breakage]:
        """Faults of one kind."""
        return [item for item in self.items if item.kind == kind]

    @property
    def kubelet(self) -> bool:
        """Whether the kubelet is dead."""
        return bool(self.of("kubelet")) or self.gone

    @property
    def plugin(self) -> bool:
        """Whether the device plug-in is dead."""
        return bool(self.of("plugin")) or self.gone

    @property
    def gone(self) -> bool:
        """Whether the node has left the cluster."""
        return bool(self.of("gone"))

    @property
    def recovering(self) -> int:
        """Bitmap of chips that are being reset."""
        return _mask(self.of("recovering"))

    @property
    def network(self) -> int:
        """Bitmap of chips whose network fails, at any level that is not ignored."""
        return _mask([item for item in self.of("network") if item.level != "NotHandleFault"])

    def unhealthy(self, used: int) -> int:
        """Bitmap of chips that get no work.

        Args:
            used: Bitmap of chips in use; a chip of level ``PreSeparateNPU`` stays healthy while it is in use.
        """
        mask = 0
        for item in self.of("chip"):
            if item.level not in HARMLESS:
                mask |= item.chips & ~used if item.level == "PreSeparateNPU" else item.chips
        return mask


@dataclass(slots=True)
class Breakages:
    """All current and future faults of a node."""

    items: list[Breakage] = field(default_factory=list)

    def add(self, item: Breakage) -> None:
        """Add a fault; for an existing one only the end changes. Faults that ended long ago are dropped."""
        kept_ms = item.from_ms - KEPT_MS
        self.items = [
            other
            for other in self.items
            if _what(other) != _what(item) and (other.until_ms is None or other.until_ms > kept_ms)
        ]
        self.items.append(item)

    def repair(self, kind: str, chips: int = 0) -> int:
        """End the faults of a kind, on some chips or on all (0); returns the number of faults that changed."""
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
        """Faults at a moment."""
        return Broken(
            tuple(
                item
                for item in self.items
                if item.from_ms <= now_ms and (item.until_ms is None or item.until_ms > now_ms)
            )
        )

    def next_turn_ms(self, now_ms: UnixMs) -> UnixMs | None:
        """Time of the next start or end of a fault after ``now_ms``; None for never."""
        turns = [turn for item in self.items for turn in (item.from_ms, item.until_ms) if turn and turn > now_ms]
        return min(turns, default=None)


def breakage_of(request: BreakNode, node: NodeDescription, now_ms: UnixMs) -> Breakage:
    """Fault that a request adds or repairs.

    Raises:
        WrongBreakError: The kind, a chip, the level or the code is invalid.
    """
    if request.fault not in KINDS:
        raise WrongBreakError(f"fault is {request.fault!r}, expected one of {', '.join(KINDS)}")
    return Breakage(
        kind=request.fault,
        chips=_chips(request, node),
        level=_level(request),
        code=_code(request),
        from_ms=now_ms,
        until_ms=now_ms + request.lasts_ms if request.lasts_ms > 0 else None,
    )


def breakages_of_file(fault: Fault, node: NodeDescription, start_ms: UnixMs) -> list[Breakage]:
    """Faults for an entry of the topology file; its times count from ``start_ms``.

    For a sub-healthy node the switch reports it where the node reports switches (A3). Otherwise all chips are
    sub-healthy: NodeD has no such level.
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
    return node.resource == RESOURCE_910 and node.product in A3_NODES


def _chips(request: BreakNode, node: NodeDescription) -> int:
    if request.fault not in OF_CHIPS:
        if request.chips:
            raise WrongBreakError(
                f"chips are {request.chips}, expected none: a fault of kind {request.fault} has no chips"
            )
        if request.fault == "switch" and not has_switch_reports(node):
            raise WrongBreakError(f"fault is 'switch', and node {node.name} ({node.product}) has no switch reports")
        return 0
    if not request.chips and not request.repair:
        raise WrongBreakError(f"chips are missing: a fault of kind {request.fault} needs some of {_listed(node.chips)}")
    wrong = [chip for chip in request.chips if chip < 0 or not node.chips >> chip & 1]
    if wrong:
        raise WrongBreakError(f"chips are {wrong}, expected some of {_listed(node.chips)} of node {node.name}")
    return sum(1 << chip for chip in set(request.chips))


def _level(request: BreakNode) -> str:
    known = _LEVELS.get(request.fault, ())
    if not request.level:
        return _USUAL[request.fault][0] if known else ""
    if request.level not in known:
        expected = f"one of {', '.join(known)}" if known else f"none: a fault of kind {request.fault} has no level"
        raise WrongBreakError(f"level is {request.level!r}, expected {expected}")
    return request.level


def _code(request: BreakNode) -> str:
    if not request.code:
        return _USUAL.get(request.fault, ("", ""))[1]
    if not _CODE.fullmatch(request.code):
        raise WrongBreakError(f"code is {request.code!r}, expected up to 16 digits in upper-case hex")
    return request.code


def _what(item: Breakage) -> tuple[str, int, str, str]:
    return (item.kind, item.chips, item.level, item.code)


def _mask(items: list[Breakage]) -> int:
    mask = 0
    for item in items:
        mask |= item.chips
    return mask


def _listed(mask: int) -> str:
    return ", ".join(str(chip) for chip in range(mask.bit_length()) if mask >> chip & 1)
