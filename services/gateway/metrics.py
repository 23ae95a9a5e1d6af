"""What the gateway counts."""

from berth.runtime.metrics import MetricsRegistry


class GatewayMetrics:
    """What the gateway counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.requests = registry.counter(
            "gateway_requests_total",
            "Requests, by `route` as in the OpenAPI document and `status`; `other` is a path that does not exist.",
            ["route", "status"],
        )
        self.took = registry.seconds(
            "gateway_request_seconds", "Time until the answer to a request begins; streams of events included."
        )
        self.streams = registry.gauge("gateway_open_streams", "Streams of events that are open.")
        self.slow = registry.counter(
            "gateway_slow_readers_total", "Streams of events that were closed because their reader was too slow."
        )
        self.refused = registry.counter(
            "gateway_refused_streams_total", "Streams of events that were refused because `streams_max` were open."
        )
        self.connections = registry.gauge("gateway_open_connections", "Connections that are open.")
