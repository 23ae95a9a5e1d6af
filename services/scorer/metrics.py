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
            "scorer_requests_total",
            'Score requests, by `ready`; `ready="no"`: the requested sequences were not reached in time;'
            ' `ready="dropped"`: there was no answer before its deadline.',
            ["ready"],
        )
        for ready in ("yes", "no", "dropped"):
            self.requests.labels(ready)
        self.took = registry.seconds(
            "scorer_request_seconds", "Duration of one request, including the wait for its sequences."
        )
        self.facts = registry.gauge("scorer_facts_sequence", "The last fact that was applied.")
        self.ledger = registry.gauge(
            "scorer_ledger_sequence",
            "The last ledger record that was applied; if it stays behind that of the dispatcher, the scorer hangs.",
        )
        self.nodes = registry.gauge("scorer_nodes", "Nodes of the shard.")
