"""Facts of a planned cluster, as inventory would write them: nodes, health and leaf switches. Pure."""

from typing import Final, NamedTuple

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import RepeatedNodeError, pack_health, pack_nodes, pack_switches
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.subjects import Subjects
from berth.schemas.units import UnixMs
from berth.schemas.workload import ClusterPlan

SOURCE: Final = "simulation"
"""Source of the health facts of planned nodes."""


class TimedFact(NamedTuple):
    """A fact of the cluster at a moment; 0 is the start."""

    at_ms: int
    subject: str
    data: bytes


def facts_of(plan: ClusterPlan, *, subjects: Subjects, at_ms: UnixMs) -> list[tuple[str, Message]]:
    """Subject and body of each fact: nodes and health of each domain in turn, then the leaf switches if there are any.

    Every node is healthy. The facts depend only on the plan.

    Args:
        plan: The cluster.
        subjects: Subjects of the cell.
        at_ms: The moment of all facts.

    Raises:
        RepeatedNodeError: Two nodes have the same name.
        OverflowError: A number of a node does not fit its column.
    """
    node_of: dict[str, NodeDescription] = {}
    for node in plan.nodes:
        if node.name in node_of:
            raise RepeatedNodeError(node.name)
        node_of[node.name] = node
    facts: list[tuple[str, Message]] = []
    for domain, names in domains(plan.nodes).items():
        nodes = pack_nodes(domain, [node_of[name] for name in names], at_ms=at_ms)
        health = pack_health(domain, [NodeCondition(name) for name in names], source=SOURCE, at_ms=at_ms)
        facts += [(subjects.fact_node(domain), nodes), (subjects.fact_health(domain), health)]
    switches = pack_switches(plan.nodes, level=plan.level, places=plan.places, at_ms=at_ms)
    if switches.leaves:
        facts.append((subjects.fact_topology(switches.kind), switches))
    return facts
