"""Instruments of a service. The entry of a process creates them and passes them in; services share none of them.

Several services, or several instances of one, can therefore run in one process, each with its own metrics, readiness
and log context. See decision instruments.
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
        metrics: Metrics of the service, an instance of the class in its ``metrics.py``.
        readiness: State behind ``/readyz``.
        faults: Points at which a test kills the process.
        log: Logger with the name of the service.
        registry: Registry of the metrics, which ``/metrics`` shows.
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
        """Create instruments with their own registry, for a service that has not started.

        Args:
            metrics: Creates the metrics of the service on a registry.
            log: Logger of the service.
            faults: Points at which a test kills the process; None for none.
        """
        registry = MetricsRegistry()
        return Instruments(metrics(registry), Readiness(), faults or FaultPoints(), log, registry)
