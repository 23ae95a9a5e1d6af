"""What the service for programs counts."""

from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords


class ApiMetrics:
    """What the service for programs counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.requests = registry.counter(
            "api_requests_total", "Requests of programs, by operation and result.", ["operation", "result"]
        )
        self.took = registry.seconds("api_request_seconds", "Time from a request to its reply.")
        self.events = registry.counter("api_events_total", "Events of jobs that were stored.")
        self.repeated = registry.counter("api_events_repeated_total", "Events that had been stored before.")
        self.failures = registry.counter("api_event_failures_total", "Tries to store events that failed.")
        self.facts = registry.gauge("api_facts_sequence", "Last fact of which the events are stored.")
        self.ledger = registry.gauge("api_ledger_sequence", "Last record of the ledger of which the events are stored.")
