"""What a service reports through. The entry of a process makes it and passes it in; nothing of it is shared.

So two services, or one service twice, can run in one process: each has its own metrics, readiness and log context.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from berth.runtime.fault_points import FaultPoints
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.probes import Readiness

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Instruments(Generic[M]):
    """Metrics, readiness, fault points and log of one running service.

    Attributes:
        metrics: What the service counts, of the class in its ``metrics.py``.
        readiness: What ``/readyz`` answers.
        faults: Where a test lets the process die.
        log: Logger that bears the name of the service.
        registry: Where the metrics were made; ``/metrics`` shows it.
    """

    metrics: M
    readiness: Readiness
    faults: FaultPoints
    log: Logger
    registry: MetricsRegistry

    @classmethod
    def make(
        cls,
        metrics: Callable[[MetricsRegistry], M],
        *,
        log: Logger = DEFAULT_LOG,
        faults: FaultPoints | None = None,
    ) -> "Instruments[M]":
        """Instruments on a registry of their own, for a service that has not begun.

        Args:
            metrics: Makes the metrics of the service on a registry.
            log: Logger of the service.
            faults: Where the process is to die; None for nowhere.
        """
        registry = MetricsRegistry()
        return Instruments(metrics(registry), Readiness(), faults or FaultPoints(), log, registry)
