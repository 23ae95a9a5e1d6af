"""Metrics of a process: a service declares what it counts, the probes show it.

The metrics of a service are a class in its ``metrics.py`` that makes them on the registry that it gets:

    class GreeterMetrics:
        def __init__(self, registry: MetricsRegistry) -> None:
            self.greeted = registry.counter("greeter_greeted_nodes_total", "Nodes that were greeted.")

Names are ``berth_<service>_<what>_<unit>``. Labels take few values that are known beforehand, never a pod, a job or a
node. Nothing reads a registry while the probes are off.
"""

from collections.abc import Sequence
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

PREFIX: Final = "berth_"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of a histogram: from a quick write to a long wait."""


class MetricsRegistry:
    """The metrics of one service, and those of the operating system's process that runs it.

    The default registry of the library is not used: it is shared by everything in a process.
    """

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it bare
        self.collectors: Final = CollectorRegistry(auto_describe=True)
        """The registry in the form of the library."""
        ProcessCollector(registry=self.collectors)
        self.ready: Final = self.gauge("process_ready", "1 when the process is ready, else 0.")
        """Set by the probes."""

    def counter(self, name: str, what: str, labels: Sequence[str] = ()) -> Counter:
        """A number that only grows.

        Args:
            name: Without the prefix; ends in ``_total``.
            what: What is counted, in a sentence.
            labels: Names of its labels.

        Raises:
            ValueError: The registry has a metric of this name.
        """
        return Counter(PREFIX + name, what, labels, registry=self.collectors)

    def gauge(self, name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that goes up and down.

        Args:
            name: Without the prefix.
            what: What it is, in a sentence.
            labels: Names of its labels.

        Raises:
            ValueError: The registry has a metric of this name.
        """
        return Gauge(PREFIX + name, what, labels, registry=self.collectors)

    def seconds(self, name: str, what: str, labels: Sequence[str] = ()) -> Histogram:
        """How long something takes.

        Args:
            name: Without the prefix; ends in ``_seconds``.
            what: What is measured, in a sentence.
            labels: Names of its labels.

        Raises:
            ValueError: The registry has a metric of this name.
        """
        return Histogram(PREFIX + name, what, labels, registry=self.collectors, buckets=SECONDS)

    def exposition(self) -> bytes:
        """All metrics in the text form of Prometheus."""
        return generate_latest(self.collectors)
