"""Descriptions of single nodes, from which the columns of facts are packed, and reports of agents on them."""

from typing import ClassVar

from berth.schemas.constraints import Taint
from berth.schemas.facts import NodeHealth
from berth.schemas.message import Message, Part
from berth.schemas.units import CpuMilli, MemoryMib, UnixMs


class NodeDescription(Part, frozen=True):
    """A node as its source describes it."""

    name: str
    product: str = ""
    """Product, for display; empty when unknown."""
    resource: str = ""
    """Resource name of its chips; empty for a node without chips."""
    chips: int = 0
    """Mask of its chips, bits 0..63."""
    allocatable: int = 0
    """Chips that Kubernetes counts as allocatable."""
    cpu_milli: CpuMilli = 0
    memory_mib: MemoryMib = 0
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    cordoned: bool = False
    ready: bool = True
    superpod: str = ""
    leaf: str = ""
    position: int = 0
    """Position below the leaf switch, or in the SuperPoD for a node without a leaf, 0..32767."""
    address: str = ""
    rack: str = ""
    """Rack inside the SuperPoD; empty when unknown."""
    cpu_others: CpuMilli = 0
    """CPU that pods without chips use which Berth did not place; it is not in ``cpu_milli``."""
    memory_others: MemoryMib = 0
    """Memory likewise; it is not in ``memory_mib``."""
    chips_others: int = 0
    """Chips that bound pods request and of which nobody knows which ones they are; they are in ``allocatable``."""
    is_unsettled: bool = False
    """Some of these pods are so new that the device plug-in may still name their chips."""

    @property
    def whole_chips(self) -> int:
        """Chips that it can allocate whole. With shared chips Kubernetes counts more chips than exist."""
        return min(self.allocatable, self.chips.bit_count())


class NodeCondition(Part, frozen=True):
    """Health of a node and of its chips, as masks."""

    name: str
    unhealthy: int = 0
    recovering: int = 0
    network_unhealthy: int = 0
    level: NodeHealth = NodeHealth.OK
    network_known: bool = True
    """False when the list of network-unhealthy chips is missing."""
    withheld: int = 0
    """Mask of chips that the node itself does not list as free."""
    reason: str = ""
    """Why it is not healthy, in one sentence with the source; empty when it is."""
    updated_ms: UnixMs = 0
    """Time of the last report of its source; 0 when unknown."""
    sub_healthy: int = 0
    """Mask of sub-healthy chips; all of them if the switch of the node is."""
    sources: int = 0
    """Mask of :class:`~berth.schemas.facts.HealthSource`: who reports a fault of the node or its chips."""
    noded_level: NodeHealth = NodeHealth.OK
    """Level of the node by the last valid report of NodeD."""
    switch_level: NodeHealth = NodeHealth.OK
    """Level of the node by the last valid report on its switch."""


class HealthReport(Message, frozen=True):
    """Health of one node, reported by an agent on it. Each report replaces the one before."""

    KIND: ClassVar[str] = "report.health"

    node: str
    unhealthy: list[int] = []
    """Chips (physical ids) that take no work."""
    recovering: list[int] = []
    network_unhealthy: list[int] = []
    """Chips that may serve a job of one pod only."""
    level: str = "ok"
    """Level of the node: ok, sub-health, no-new-work or evict."""
    reason: str = ""
    updated_ms: UnixMs = 0
    """Time of the observation; 0: time at which the report arrives."""
    source: str = ""
    """Name of the agent, for display."""
