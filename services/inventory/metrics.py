"""What the inventory counts."""

from typing import Final

from berth.runtime.metrics import counter, gauge

NODES: Final = gauge("inventory_nodes", "Nodes of the cluster.")
PODS: Final = gauge("inventory_bound_pods", "Pods that are bound to a node, those that have ended included.")
HELD: Final = gauge("inventory_held_gangs", "Gangs that are held, with a reason.")
JOBS: Final = gauge("inventory_requested_jobs", "Requests whose pods are followed.")
MESSAGES: Final = counter("inventory_messages_total", "Messages stored on the bus, by kind of message.", ["kind"])
REFUSED: Final = counter("inventory_refused_messages_total", "Messages that the bus will never take.")
PROBLEMS: Final = counter(
    "inventory_problems_total", "Things found wrong with objects, by kind: Node, Pod, ConfigMap.", ["kind"]
)
FAILURES: Final = counter("inventory_failures_total", "Calls to the API server that failed.")
