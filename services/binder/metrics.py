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
            "binder_gangs_total", "Jobs handled, by `outcome`: `bound`, `failed`, `evicted`.", ["outcome"]
        )
        for outcome in ("bound", "failed", "evicted"):
            self.outcomes.labels(outcome)
        self.took = registry.seconds(
            "binder_gang_seconds", "Time to bind or evict one job, including the message about its outcome."
        )
        self.retries = registry.counter("binder_retries_total", "Attempts that failed and are retried.")
        self.pending = registry.gauge(
            "binder_pending_gangs", "Jobs that are not bound or evicted yet, including those under way."
        )
        self.ledger = registry.gauge("binder_ledger_sequence", "The last ledger record that was folded.")
        self.pods = registry.counter(
            "binder_pods_total", "Pods that were to be bound on Kubernetes, by `result`: `bound`, `failed`.", ["result"]
        )
        for result in ("bound", "failed"):
            self.pods.labels(result)
        self.leaves = registry.counter(
            "binder_leaving_pods_total",
            "Pods that were asked to end for a fault or a drain, by `manner`: `grace`, `force`, `evict`.",
            ["manner"],
        )
        self.held_evictions = registry.counter(
            "binder_held_evictions_total", "Evictions that a disruption budget refused; each is tried again."
        )
        self.recovered = registry.seconds(
            "binder_recovery_seconds",
            "Time from the first record of a recovery until its last replaced pod was bound; not of jobs that restart"
            " as a whole.",
            bounds=_MINUTES,
        )
        self.notices = registry.counter(
            "binder_notices_total",
            "Pod conditions and Events, by `result`: `written`, `failed`, `dropped`.",
            ["result"],
        )
        for result in ("written", "failed", "dropped"):
            self.notices.labels(result)
