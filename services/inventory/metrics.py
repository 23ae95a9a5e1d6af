"""What the inventory counts."""

from berth.runtime.kube.watch_silence import WatchSilence
from berth.runtime.metrics import MetricsRegistry


class InventoryMetrics:
    """What the inventory counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.watches = WatchSilence(registry)
        self.nodes = registry.gauge("inventory_nodes", "Nodes of the cluster.")
        self.pods = registry.gauge(
            "inventory_bound_pods", "Pods that are bound to a node, including those that have ended."
        )
        self.twice = registry.gauge(
            "inventory_twice_named_chips",
            "Chips that more than one bound pod names; Events on the pods say which: must be 0.",
        )
        self.false_marks = registry.gauge(
            "inventory_falsely_marked_pods",
            "Bound pods with annotations of Berth that it did not write; they count as pods of other schedulers.",
        )
        self.held = registry.gauge(
            "inventory_held_gangs", "Gangs that were not requested, with a reason in `fact.member`."
        )
        self.jobs = registry.gauge("inventory_requested_jobs", "Requests whose pods are followed.")
        self.messages = registry.counter("inventory_messages_total", "Messages stored on the bus, by `kind`.", ["kind"])
        self.refused = registry.counter(
            "inventory_refused_messages_total",
            "Messages that the bus rejects permanently, for example because they are too large: must be 0.",
        )
        self.problems = registry.counter(
            "inventory_problems_total",
            "Problems found in objects, by `kind`: `Node`, `Pod`, `ConfigMap`, `PodGroup` or another kind that pods"
            " belong to.",
            ["kind"],
        )
        self.failures = registry.counter(
            "inventory_failures_total", "Failed calls to the API server, including those that are retried."
        )
