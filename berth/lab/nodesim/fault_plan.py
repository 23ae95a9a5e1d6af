"""Faults at given and at random times. Pure: times in, requests to break nodes out.

The random faults of a kind form a Poisson process of its own, so that another kind changes none of them. A seed gives
the same faults at the same times.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from berth.lab.nodesim.breakage import OF_CHIPS, OF_PODS, has_switch_reports
from berth.schemas.nodes import NodeDescription
from berth.schemas.simulation import BreakNode
from berth.schemas.units import UnixMs

_MS: Final = 1000
FaultKind: TypeAlias = Literal[
    "chip", "network", "recovering", "node", "switch", "kubelet", "plugin", "gone", "container", "relation"
]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=31_536_000)]


class GivenFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault at a given time."""

    at_s: _Seconds
    """Seconds after the start."""
    node: str
    """Node, or leaf switch."""
    fault: FaultKind
    """What breaks."""
    chips: list[int] = []
    """Chips that break, for faults of chips and of their network."""
    level: str = ""
    """As the reporting agent names it; empty: the default of the fault."""
    code: str = ""
    """Fault code in upper-case hex; empty: the default of the fault."""
    for_s: _Seconds = 0
    """Duration; 0: it lasts."""
    leaf: bool = False
    """``node`` is a leaf switch: the fault is that of each node below it."""
    pod: str = ""
    """``namespace/name`` for faults of pods; empty: the first running pod of the node."""
    exit_code: int = 0
    """Exit code of the containers that end; 0 counts as 1."""


class RandomFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Faults of a kind at random times."""

    fault: FaultKind
    """What breaks."""
    mtbf_s: Annotated[float, Meta(gt=0, le=315_360_000)]
    """Mean time between two faults of this kind in the cluster."""
    for_s: Annotated[float, Meta(gt=0, le=31_536_000)] = 60.0
    """Mean duration."""
    level: str = ""
    """As the reporting agent names it; empty: the default of the fault."""
    leaf: bool = False
    """The faults are those of whole leaf switches."""


class FaultPlanConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Faults that come by themselves, beside those of the topology file."""

    seed: int = 0
    """Seed of the random faults."""
    given: list[GivenFault] = []
    """Faults at given times."""
    random: list[RandomFaults] = []
    """Faults at random times."""


class DueFault(NamedTuple):
    """A fault and its time."""

    at_ms: UnixMs
    request: BreakNode


class FaultPlan:
    """Faults in order of their times.

    Args:
        config: The faults.
        nodes: Nodes of the cluster.
        start_ms: Time from which given times count.
    """

    def __init__(self, config: FaultPlanConfig, nodes: Iterable[NodeDescription], *, start_ms: UnixMs) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self._given = sorted(
            (DueFault(start_ms + round(one.at_s * _MS), _given(one)) for one in config.given),
            key=lambda due: due.at_ms,
        )
        self._random = [
            _Process(one, self._nodes, Random(f"{config.seed} {number} {one.fault}"), start_ms)  # noqa: S311 - repeatable
            for number, one in enumerate(config.random)
        ]

    def next_ms(self) -> UnixMs | None:
        """Time of the next fault; None for never."""
        times = [due.at_ms for due in self._given[:1]]
        times += [process.due.at_ms for process in self._random if process.due is not None]
        return min(times, default=None)

    def take(self, now_ms: UnixMs) -> list[BreakNode]:
        """Faults whose time has come, by time; each is given once."""
        found: list[DueFault] = []
        while self._given and self._given[0].at_ms <= now_ms:
            found.append(self._given.pop(0))
        for process in self._random:
            found += process.take(now_ms)
        return [due.request for due in sorted(found, key=lambda due: (due.at_ms, due.request.node, due.request.fault))]


class _Process:
    """Random faults of one kind."""

    def __init__(self, config: RandomFaults, nodes: Sequence[NodeDescription], rng: Random, start_ms: UnixMs) -> None:
        self._config = config
        self._rng = rng
        self._nodes = [node for node in nodes if _can_have(config.fault, node)]
        self._leaves = sorted({node.leaf for node in self._nodes if node.leaf})
        has_some = bool(self._leaves if config.leaf else self._nodes)
        self.due = self._next(start_ms) if has_some else None
        """The next fault; None if no node can have one."""

    def take(self, now_ms: UnixMs) -> list[DueFault]:
        found: list[DueFault] = []
        while self.due is not None and self.due.at_ms <= now_ms:
            found.append(self.due)
            self.due = self._next(self.due.at_ms)
        return found

    def _next(self, after_ms: UnixMs) -> DueFault:
        config, rng = self._config, self._rng
        at_ms = after_ms + max(round(rng.expovariate(1 / config.mtbf_s) * _MS), 1)
        lasts_ms = 0 if config.fault in OF_PODS else max(round(rng.expovariate(1 / config.for_s) * _MS), 1)
        if config.leaf:
            request = BreakNode(rng.choice(self._leaves), config.fault, leaf=True)
        else:
            node = rng.choice(self._nodes)
            chips = [rng.choice(_chips(node))] if config.fault in OF_CHIPS else []
            request = BreakNode(node.name, config.fault, chips)
        return DueFault(at_ms, msgspec.structs.replace(request, level=config.level, lasts_ms=lasts_ms))


def _given(one: GivenFault) -> BreakNode:
    return BreakNode(
        one.node,
        one.fault,
        one.chips,
        one.level,
        one.code,
        round(one.for_s * _MS),
        leaf=one.leaf,
        pod=one.pod,
        exit_code=one.exit_code,
    )


def _can_have(fault: FaultKind, node: NodeDescription) -> bool:
    if fault in OF_CHIPS or fault == "plugin":
        return bool(node.chips)
    return fault != "switch" or has_switch_reports(node)


def _chips(node: NodeDescription) -> list[int]:
    return [chip for chip in range(node.chips.bit_length()) if node.chips >> chip & 1]
