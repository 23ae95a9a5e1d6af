"""What the gateway counts."""

from berth.runtime.metrics import MetricsRegistry


class ExtenderMetrics:
    """What the extender for kube-scheduler counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.requests = registry.counter(
            "gateway_extender_requests_total",
            "Calls of kube-scheduler to the extender, by `route` and `status`; `other` is a path that does not exist.",
            ["route", "status"],
        )
        self.took = registry.seconds(
            "gateway_extender_request_seconds",
            "Time until the answer to a call of kube-scheduler begins; bindings wait for the binder.",
        )
        self.answers = registry.counter(
            "gateway_extender_answers_total",
            "Answers to kube-scheduler about pods, by `verb` and `result`: `placed`, `bound`, `waiting` or `unknown`.",
            ["verb", "result"],
        )


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
            "gateway_refused_streams_total",
            "Streams of events that were refused because `streams_max` were open, or `streams_per_identity` of one.",
        )
        self.extender = ExtenderMetrics(registry)
        self.connections = registry.gauge("gateway_open_connections", "Connections that are open.")
