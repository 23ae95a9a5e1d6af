"""What health counts."""

from berth.runtime.kube.watch_silence import WatchSilence
from berth.runtime.metrics import MetricsRegistry


class HealthMetrics:
    """What health counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.watches = WatchSilence(registry)
        self.facts = registry.counter("health_facts_total", "Health facts that were stored.")
        self.nodes = registry.gauge(
            "health_nodes", "Nodes by `level`: `ok`, `sub-health`, `no-new-work`, `evict`.", ["level"]
        )
        self.suspect = registry.gauge("health_suspect_nodes", "Nodes with an unreadable newest report of some source.")
        self.taken = registry.counter(
            "health_reports_total",
            "Reports that were read, by `source`: `device plug-in`, `NodeD`, `switch`, `agent`.",
            ["source"],
        )
        self.refused = registry.counter(
            "health_refused_total",
            'Unreadable reports, or whole chunks (`source="ClusterD"`), by `source`.',
            ["source"],
        )
