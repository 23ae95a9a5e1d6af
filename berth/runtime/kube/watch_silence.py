"""Silence of the API server, as every service that depends on watches measures it."""

from collections.abc import Callable

from berth.runtime.metrics import MetricsRegistry


class WatchSilence:
    """Age of what a service knows of the cluster. A watch that works brings at least a bookmark every other minute.

    Args:
        registry: Registry on which the metric is created.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._gauge = registry.gauge(
            "watch_silence_seconds",
            "Longest time for which one of the watches of the process has brought nothing from the API server, not even"
            " a bookmark.",
        )

    def measure(self, silence_s: Callable[[], float]) -> None:
        """Take the value from a function whenever it is asked for.

        Args:
            silence_s: Longest silence in seconds; see :meth:`berth.runtime.kube.client.KubeApi.silence_s`.
        """
        self._gauge.set_function(silence_s)
