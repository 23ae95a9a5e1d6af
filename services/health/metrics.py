"""What health counts."""

from berth.runtime.metrics import MetricsRegistry


class HealthMetrics:
    """What health counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.facts = registry.counter("health_facts_total", "Health facts that were stored.")
        self.nodes = registry.gauge("health_nodes", "Nodes by level.", ["level"])
        self.suspect = registry.gauge("health_suspect_nodes", "Nodes of which some newest report could not be read.")
        self.taken = registry.counter("health_reports_total", "Reports that were read, by source.", ["source"])
        self.refused = registry.counter(
            "health_refused_total", "Reports, or chunks of them, that could not be read.", ["source"]
        )
