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
            "api_requests_total",
            "Requests of programs, by `operation` and `result`: `ok`, or the code of the error.",
            ["operation", "result"],
        )
        self.took = registry.seconds(
            "api_request_seconds", "Duration of one request, but for `events`, which may wait."
        )
        self.events = registry.counter("api_events_total", "Events of jobs that were stored.")
        self.repeated = registry.counter(
            "api_events_repeated_total",
            "Events that were stored already: by another instance, or before a restart.",
        )
        self.failures = registry.counter(
            "api_event_failures_total", "Failed attempts to store events, which are retried."
        )
        self.untraced = registry.counter(
            "api_untraced_jobs_total",
            "Jobs without a trace, because more than `tracing.jobs_per_s` were accepted or rejected in their second.",
        )
        self.facts = registry.gauge("api_facts_sequence", "The last fact whose events are stored.")
        self.ledger = registry.gauge(
            "api_ledger_sequence",
            "The last ledger record whose events are stored; if it stays behind that of the dispatcher, events are late.",
        )
