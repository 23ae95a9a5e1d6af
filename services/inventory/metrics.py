"""What the inventory counts."""

from berth.runtime.metrics import MetricsRegistry


class InventoryMetrics:
    """What the inventory counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.nodes = registry.gauge("inventory_nodes", "Nodes of the cluster.")
        self.pods = registry.gauge(
            "inventory_bound_pods", "Pods that are bound to a node, those that have ended included."
        )
        self.held = registry.gauge("inventory_held_gangs", "Gangs that are held, with a reason.")
        self.jobs = registry.gauge("inventory_requested_jobs", "Requests whose pods are followed.")
        self.messages = registry.counter(
            "inventory_messages_total", "Messages stored on the bus, by kind of message.", ["kind"]
        )
        self.refused = registry.counter("inventory_refused_messages_total", "Messages that the bus will never take.")
        self.problems = registry.counter(
            "inventory_problems_total", "Things found wrong with objects, by kind: Node, Pod, ConfigMap.", ["kind"]
        )
        self.failures = registry.counter("inventory_failures_total", "Calls to the API server that failed.")
