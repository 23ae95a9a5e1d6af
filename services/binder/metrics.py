"""Metrics of the binder."""

from berth.runtime.metrics import MetricsRegistry


class BinderMetrics:
    """Metrics of the binder.

    Args:
        registry: Registry of the metrics.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
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
        self.notices = registry.counter(
            "binder_notices_total", "Pod conditions and Events, by result: written, failed or dropped.", ["result"]
        )
