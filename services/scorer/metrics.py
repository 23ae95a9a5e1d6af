"""What a scorer counts."""

from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords


class ScorerMetrics:
    """What a scorer counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.requests = registry.counter(
            "scorer_requests_total", "Score requests; ready: whether the requested sequences were reached.", ["ready"]
        )
        self.took = registry.seconds(
            "scorer_request_seconds", "How long one score request took, the wait for its sequences included."
        )
        self.facts = registry.gauge("scorer_facts_sequence", "Sequence of the last fact that was applied.")
        self.ledger = registry.gauge("scorer_ledger_sequence", "Sequence of the last ledger record that was applied.")
        self.nodes = registry.gauge("scorer_nodes", "Nodes of this shard.")
