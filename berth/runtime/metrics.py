"""Metrics of the process: declared where they are counted, shown by the probes.

A module of a service declares what it counts, as it gets its logger:

    _ROUNDS: Final = counter("dispatcher_rounds_total", "Rounds that were appended.")

Names are ``berth_<service>_<what>_<unit>``; labels take few values that are known beforehand, never a pod, a job or a
node. All metrics stand in one registry of the process, which nothing reads while its probes are off.
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

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""The registry of this process; the library's own is not used."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it bare
ProcessCollector(registry=REGISTRY)


def counter(name: str, what: str, labels: Sequence[str] = ()) -> Counter:
    """A number that only grows.

    Args:
        name: Without the prefix; ends in ``_total``.
        what: What is counted, in a sentence.
        labels: Names of its labels.
    """
    return Counter(PREFIX + name, what, labels, registry=REGISTRY)


def gauge(name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
    """A number that goes up and down.

    Args:
        name: Without the prefix.
        what: What it is, in a sentence.
        labels: Names of its labels.
    """
    return Gauge(PREFIX + name, what, labels, registry=REGISTRY)


def seconds(name: str, what: str, labels: Sequence[str] = ()) -> Histogram:
    """How long something takes.

    Args:
        name: Without the prefix; ends in ``_seconds``.
        what: What is measured, in a sentence.
        labels: Names of its labels.
    """
    return Histogram(PREFIX + name, what, labels, registry=REGISTRY, buckets=SECONDS)


def exposition() -> bytes:
    """All metrics of the process in the text form of Prometheus."""
    return generate_latest(REGISTRY)
