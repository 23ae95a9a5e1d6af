"""Metrics of a cell in one process: its own, and those of its services in one answer."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from berth.runtime.metrics import PREFIX, MetricsRegistry, exposition_of


class CellMetrics:
    """Metrics of the process of a cell.

    Args:
        registry: Registry of the metrics.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.restarts: Final = registry.counter(
            "cell_restarts_total", "Services that ended and were started again, by `service`.", ["service"]
        )


class _Merged(Collector):
    """Metrics of several registries. Those that several services have get the label ``service``."""

    def __init__(self, registries: Mapping[str, MetricsRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for service, registry in self._registries.items():
            for family in registry.collectors.collect():
                if family.name.startswith(PREFIX):
                    own = family.name.startswith(f"{PREFIX}{service}_") or family.name in registry.of_cell
                    _merge(found, family, {} if own else {"service": service})
                elif family.name not in found:  # of the process, which is the same for all
                    found[family.name] = family
        return found.values()


def _merge(found: dict[str, Metric], family: Metric, labels: Mapping[str, str]) -> None:
    merged = found.setdefault(family.name, Metric(family.name, family.documentation, family.type, family.unit))
    merged.samples.extend(_labelled(family, labels))


def _labelled(family: Metric, labels: Mapping[str, str]) -> Iterator[Sample]:
    for sample in family.samples:
        yield sample._replace(labels={**sample.labels, **labels})


def merged_exposition(registries: Mapping[str, MetricsRegistry]) -> bytes:
    """All metrics of several registries in the text format of Prometheus.

    Args:
        registries: By service. Metrics whose names do not begin with that of the service, and that are not of the whole
            cell, get the label ``service``.
    """
    return exposition_of(_Merged(registries))
