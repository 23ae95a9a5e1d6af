"""Pods of a simulated node as its kubelet keeps them. Pure."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from berth.lab.nodesim.accounts import ResourceUse
from berth.lab.nodesim.agents.device_plugin import Allocated
from berth.lab.nodesim.agents.pods import AgentPod
from berth.schemas.units import UnixMs

NEVER: Final = 1 << 62


class Step(IntEnum):
    """State of a pod at its kubelet."""

    NEW = 0
    """Bound; not admitted yet."""
    ADMITTED = 1
    """Has its chips; its containers are being created."""
    RUNNING = 2
    OVER = 3


@dataclass(slots=True)
class HostedPod:
    """A pod of the node."""

    pod: AgentPod
    step: Step
    due_ms: UnixMs
    leaves_ms: UnixMs | None = None
    started_ms: UnixMs = 0
    given: list[Allocated] = field(default_factory=list)
    use: ResourceUse | None = None
    is_booked: bool = False
    is_reported: bool = False

    @property
    def is_running(self) -> bool:
        """Whether it runs, and is not being deleted."""
        return self.step is Step.RUNNING and self.leaves_ms is None

    @property
    def chips(self) -> tuple[int, ...]:
        """Its real chips."""
        return tuple(chip for part in self.given for chip in part.chips)

    @property
    def mask(self) -> int:
        """Its real chips as a bitmap."""
        return sum(1 << chip for chip in set(self.chips))
