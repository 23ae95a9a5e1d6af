"""Metrics of the binder."""

from typing import Final

from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords

_MINUTES: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0)
"""Bounds for what depends on grace periods and controllers, in seconds."""


class BinderMetrics:
    """Metrics of the binder.

    Args:
        registry: Registry of the metrics.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.outcomes = registry.counter(
            "binder_gangs_total", "Gangs that were handled, by outcome: bound, failed or evicted.", ["outcome"]
        )
        self.took = registry.seconds(
            "binder_gang_seconds", "How long it took to bind or evict one gang, its outcome included."
        )
        self.retries = registry.counter("binder_retries_total", "Tries that failed and are made again.")
        self.pending = registry.gauge(
            "binder_pending_gangs", "Gangs that are to be bound or evicted, those under way included."
        )
        self.ledger = registry.gauge("binder_ledger_sequence", "Sequence of the last ledger record that was folded.")
        self.pods = registry.counter(
            "binder_pods_total", "Pods that were to be bound, by result: bound or failed.", ["result"]
        )
        self.leaves = registry.counter(
            "binder_leaving_pods_total",
            "Pods that were asked to end for a fault or a drain, by manner: grace, force or evict.",
            ["manner"],
        )
        self.held_evictions = registry.counter(
            "binder_held_evictions_total", "Evictions that a disruption budget refused; each is tried again."
        )
        self.recovered = registry.seconds(
            "binder_recovery_seconds",
            "From the first record of a recovery until its last replaced pod was bound, the whole job aside.",
            bounds=_MINUTES,
        )
        self.notices = registry.counter(
            "binder_notices_total", "Pod conditions and Events, by result: written, failed or dropped.", ["result"]
        )
