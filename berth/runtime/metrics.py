"""Metrics of a process: a service declares them, the probe server shows them.

The metrics of a service are a class in its ``metrics.py`` that creates them on a given registry:

    class GreeterMetrics:
        def __init__(self, registry: MetricsRegistry) -> None:
            self.greeted = registry.counter("greeter_greeted_nodes_total", "Nodes that were greeted.")

Names are ``berth_<service>_<what>_<unit>``. A label has few values, which are known in advance, and never names a pod,
job or node. A registry is read for the probe server, and its gauges for the statistics of the process on the bus.

Gauges of the whole cell are named without a service, ``berth_<what>``. They may name leaf switches and SuperPoDs, up to
a bound, so that they are no part of the statistics.
"""

from collections.abc import Callable, Sequence
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

PREFIX: Final = "berth_"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of a histogram in seconds."""


class MetricsRegistry:
    """Metrics of one service, and of the process of the operating system that runs it.

    The default registry of the library is not used, because the whole process shares it.
    """

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it
        self.collectors: Final = CollectorRegistry(auto_describe=True)
        """Registry of the library."""
        self.of_cell: Final[set[str]] = set()
        """Names of the gauges of the whole cell."""
        self._measures: Final[list[Callable[[], None]]] = []
        ProcessCollector(registry=self.collectors)
        self.ready: Final = self.gauge("process_ready", "1 if `/readyz` reports ready, otherwise 0.")
        """Set by the probe server, as are the next two."""
        self.connected: Final = self.gauge(
            "process_connected", "1 while the process is connected to NATS, otherwise 0."
        )
        self.waiting: Final = self.gauge(
            "process_waiting_messages",
            "Messages of a stream that the process follows and has not applied yet, as far as it knows, by `stream`.",
            ["stream"],
        )
        self.foreign: Final = self.gauge(
            "process_foreign_messages",
            "Messages for the followers of a stream that their consumers did not deliver, and that were dropped, by `stream`.",
            ["stream"],
        )

    def counter(self, name: str, what: str, labels: Sequence[str] = ()) -> Counter:
        """Create a counter.

        Args:
            name: Name without the prefix; ends in ``_total``.
            what: Help text, one sentence.
            labels: Names of the labels.

        Raises:
            ValueError: The registry already has a metric with this name.
        """
        return Counter(PREFIX + name, what, labels, registry=self.collectors)

    def gauge(self, name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
        """Create a gauge.

        Args:
            name: Name without the prefix.
            what: Help text, one sentence.
            labels: Names of the labels.

        Raises:
            ValueError: The registry already has a metric with this name.
        """
        return Gauge(PREFIX + name, what, labels, registry=self.collectors)

    def cell_gauge(self, name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
        """Create a gauge of the whole cell; as :meth:`gauge`, but :meth:`gauges` leaves it out."""
        self.of_cell.add(PREFIX + name)
        return self.gauge(name, what, labels)

    def measure_by(self, measure: Callable[[], None]) -> None:
        """Have gauges set by ``measure`` whenever the metrics are shown."""
        self._measures.append(measure)

    def measure(self) -> None:
        """Set the gauges that are known when they are asked for."""
        for measure in self._measures:
            measure()

    def seconds(
        self, name: str, what: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        """Create a histogram of durations.

        Args:
            name: Name without the prefix; ends in ``_seconds``.
            what: Help text, one sentence.
            labels: Names of the labels.
            bounds: Upper bounds of the buckets.

        Raises:
            ValueError: The registry already has a metric with this name.
        """
        return Histogram(PREFIX + name, what, labels, registry=self.collectors, buckets=bounds)

    def gauges(self) -> dict[str, float]:
        """Values of the gauges of the process, by name with labels as in the text format of Prometheus."""
        found: dict[str, float] = {}
        for family in self.collectors.collect():
            if family.type != "gauge" or not family.name.startswith(PREFIX) or family.name in self.of_cell:
                continue
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return exposition_of(self.collectors)


def exposition_of(collector: Collector) -> bytes:
    """The metrics of a collector in the text format of Prometheus."""
    return generate_latest(collector)
