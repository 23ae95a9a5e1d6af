"""What breaks in a simulation, what is done about it, and what it costs."""

from typing import Final, Literal

import msgspec

from berth.core.simulation.failures import BreakableNode, FailureModel
from berth.schemas.fault_facts import FAULT_SCHEDULING, POD_RESCHEDULING, RECOVER_POLICY

Strategy = Literal["pods", "pods-only", "job"]
STRATEGIES: Final[dict[Strategy, dict[str, str]]] = {
    "pods": {FAULT_SCHEDULING: "grace", POD_RESCHEDULING: "on"},
    "pods-only": {FAULT_SCHEDULING: "grace", POD_RESCHEDULING: "on"},
    "job": {FAULT_SCHEDULING: "grace"},
}
"""Labels of all jobs: only the pods that a fault concerns leave first, or the whole job does."""
LIMITS: Final[dict[Strategy, dict[str, str]]] = {"pods-only": {RECOVER_POLICY: "pod"}}
"""Annotations of the PodGroups of all jobs: healthy pods stay, however long a new pod waits for a place."""


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of a simulation, and what they and ends for other jobs cost. Times are in milliseconds."""

    model: FailureModel = FailureModel()
    nodes: list[BreakableNode] = []
    """Nodes that break; without any nothing does."""
    strategy: Strategy = "pods"
    checkpoint_ms: int = 3_600_000
    """Training between two checkpoints."""
    grace_ms: int = 30_000
    """Time that pods take to end."""
    recreate_ms: int = 10_000
    """Time until a controller has made a new pod."""
    restart_ms: int = 300_000
    """Time from the last pod's start to training, of a job that was placed anew."""
    rejoin_ms: int = 300_000
    """The same of a job of which some pods stayed."""
    has_replica: bool = False
    """Pods that stay hold a replica of what the others did: a job of which some pods stayed loses no work."""

    @property
    def has_failures(self) -> bool:
        """Whether anything breaks; else the plan says what ends for other jobs cost."""
        return bool(self.nodes)

    def __post_init__(self) -> None:
        """Check that the times mean something.

        Raises:
            ValueError: A time is out of its bounds.
        """
        if self.checkpoint_ms <= 0:
            raise ValueError(f"checkpoint: {self.checkpoint_ms} ms, expected a time above 0")
        for name in ("grace", "recreate", "restart", "rejoin"):
            if getattr(self, f"{name}_ms") < 0:
                raise ValueError(f"{name}: {getattr(self, f'{name}_ms')} ms, expected a time from 0 on")
