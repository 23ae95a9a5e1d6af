"""What the summary writer counts."""

from berth.runtime.kube.watch_silence import WatchSilence
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords


class SummaryMetrics:
    """What the summary writer counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.watches = WatchSilence(registry)
        self.jobs = registry.gauge("summary_jobs", "Jobs that have a summary.")
        self.writes = registry.counter("summary_writes_total", "ConfigMaps that were written or deleted.")
        self.queue_writes = registry.counter("summary_queue_writes_total", "Writes of the status of a Queue.")
        self.queue_failures = registry.counter(
            "summary_queue_failures_total", "Failed attempts to write the status of a Queue."
        )
        self.expected_starts = registry.counter(
            "summary_expected_starts_total", "PodGroups whose expected start was written."
        )
        self.failures = registry.counter("summary_failures_total", "Failed attempts to write the summary of a job.")
        self.fault_writes = registry.counter("summary_fault_writes_total", "ConfigMaps about faults that were written.")
        self.fault_failures = registry.counter(
            "summary_fault_failures_total", "Failed attempts to write a ConfigMap about faults."
        )
