"""Ground: the nodes of a simulated cluster, their faults, and the facts that tell of both. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.domains import domains
from berth.core.packing import pack_health, pack_nodes, pack_switches
from berth.formats.topology_file import Cluster, Fault
from schemas.facts import HealthSeen, NodesSeen, TopologySeen
from schemas.nodes import NodeCondition, NodeDescription
from schemas.units import UnixMs

SOURCE: Final = "nodesim"
_FIELDS: Final = {"unhealthy": "unhealthy", "network-unhealthy": "network_unhealthy", "recovering": "recovering"}


class DomainFacts(msgspec.Struct, frozen=True):
    """What is said of one domain."""

    nodes: NodesSeen
    health: HealthSeen


class Ground:
    """Nodes and faults; answers for any moment, remembers nothing.

    Args:
        cluster: Nodes, and faults whose times count from ``start_ms``.
        start_ms: When the cluster started.
    """

    def __init__(self, cluster: Cluster, *, start_ms: UnixMs) -> None:
        self.nodes = {node.name: node for node in cluster.nodes}
        self.domains = domains(cluster.nodes)
        self.domain_of = {name: domain for domain, names in self.domains.items() for name in names}
        self._faults: dict[str, list[Fault]] = {}
        for fault in cluster.faults:
            self._faults.setdefault(fault.node, []).append(fault)
        self._start_ms = start_ms
        self._turns = sorted({turn for fault in cluster.faults for turn in self._turns_of(fault)})

    def _turns_of(self, fault: Fault) -> Iterable[int]:
        yield self._start_ms + fault.from_ms
        if fault.until_ms is not None:
            yield self._start_ms + fault.until_ms

    def next_turn_ms(self, now_ms: UnixMs) -> UnixMs | None:
        """When a fault next comes or goes after ``now_ms``; None for never."""
        return next((turn for turn in self._turns if turn > now_ms), None)

    def faulty_domains(self) -> list[str]:
        """Domains that some fault concerns at some time, sorted."""
        return sorted({self.domain_of[name] for name in self._faults})

    def condition(self, name: str, now_ms: UnixMs) -> NodeCondition:
        """Health of a node: its faults at the moment together, the worst level first."""
        seen = NodeCondition(name)
        for fault in self._faults.get(name, []):
            age_ms = now_ms - self._start_ms
            if age_ms < fault.from_ms or (fault.until_ms is not None and age_ms >= fault.until_ms):
                continue
            if not fault.kind:
                seen = msgspec.structs.replace(seen, level=max(seen.level, fault.level))
            else:
                field = _FIELDS[fault.kind]
                seen = msgspec.structs.replace(seen, **{field: getattr(seen, field) | fault.chips})
        return seen

    def facts(self, domain: str, now_ms: UnixMs) -> DomainFacts:
        """What is to be said of a domain: unhealthy and recovering chips are not allocatable."""
        conditions = [self.condition(name, now_ms) for name in self.domains[domain]]
        nodes = [_allocatable(self.nodes[condition.name], condition) for condition in conditions]
        return DomainFacts(
            nodes=pack_nodes(domain, nodes, at_ms=now_ms),
            health=pack_health(domain, conditions, source=SOURCE, at_ms=now_ms),
        )

    def switches(self, now_ms: UnixMs) -> TopologySeen:
        """The leaf switches of the cluster."""
        return pack_switches(self.nodes.values(), at_ms=now_ms)


def _allocatable(node: NodeDescription, condition: NodeCondition) -> NodeDescription:
    usable = node.chips & ~(condition.unhealthy | condition.recovering)
    return msgspec.structs.replace(node, allocatable=usable.bit_count())
