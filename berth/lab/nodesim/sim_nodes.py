"""Nodes of a simulated cluster, their faults, and the facts about both. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_health, pack_nodes, pack_switches
from berth.formats.ascend.fault_levels import level_of
from berth.formats.clusters.topology_file import Cluster, Fault
from berth.lab.nodesim.breakage import HARMLESS, OF_PODS, Breakages, WrongBreakError, breakage_of
from berth.schemas.facts import HealthSeen, NodesSeen, TopologySeen
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.simulation import BreakNode
from berth.schemas.units import UnixMs

SOURCE: Final = "nodesim"
_ON_AN_API_SERVER: Final = frozenset({"plugin", "gone", *OF_PODS})
_FIELDS: Final = {"unhealthy": "unhealthy", "network-unhealthy": "network_unhealthy", "recovering": "recovering"}


class DomainFacts(msgspec.Struct, frozen=True):
    """Facts about one domain."""

    nodes: NodesSeen
    health: HealthSeen


class SimNodes:
    """Nodes and faults: those of the file for any moment, and those set by command from now on.

    Args:
        cluster: Nodes, and faults whose times count from ``start_ms``.
        start_ms: Time at which the cluster started.
    """

    def __init__(self, cluster: Cluster, *, start_ms: UnixMs) -> None:
        self.nodes = {node.name: node for node in cluster.nodes}
        self._switches = cluster.switches
        self.domains = domains(cluster.nodes)
        self.domain_of = {name: domain for domain, names in self.domains.items() for name in names}
        self._faults: dict[str, list[Fault]] = {}
        for fault in cluster.faults:
            self._faults.setdefault(fault.node, []).append(fault)
        self._broken: dict[str, Breakages] = {}
        self._start_ms = start_ms
        self._turns = sorted({turn for fault in cluster.faults for turn in self._turns_of(fault)})

    def _turns_of(self, fault: Fault) -> Iterable[int]:
        yield self._start_ms + fault.from_ms
        if fault.until_ms is not None:
            yield self._start_ms + fault.until_ms

    def next_turn_ms(self, now_ms: UnixMs) -> UnixMs | None:
        """Time of the next start or end of a fault after ``now_ms``; None for never."""
        turns = [next((turn for turn in self._turns if turn > now_ms), None)]
        turns += [broken.next_turn_ms(now_ms) for broken in self._broken.values()]
        return min((turn for turn in turns if turn is not None), default=None)

    def faulty_domains(self) -> list[str]:
        """Domains with a fault at any time, sorted."""
        return sorted({self.domain_of[name] for name in (*self._faults, *self._broken)})

    def names_of(self, request: BreakNode) -> list[str]:
        """Nodes that a request is about; none if there is no such node or leaf switch."""
        if not request.leaf:
            return [request.node] if request.node in self.nodes else []
        return [name for name, node in self.nodes.items() if request.node and node.leaf == request.node]

    def break_node(self, request: BreakNode, now_ms: UnixMs) -> str:
        """Add or repair a fault by command; returns why not, or an empty text. Faults of the file stay."""
        names = self.names_of(request)
        if not names:
            what = "leaf switch" if request.leaf else "node"
            return f"{what} is {request.node!r}, expected a {what} of the topology file"
        reasons = [self._break(msgspec.structs.replace(request, node=name), now_ms) for name in names]
        return "; ".join(reasons) if all(reasons) else ""

    def _break(self, request: BreakNode, now_ms: UnixMs) -> str:
        node = self.nodes[request.node]
        if request.fault in _ON_AN_API_SERVER:
            return f"fault is {request.fault!r}, which is simulated on an API server only"
        try:
            item = breakage_of(request, node, now_ms)
        except WrongBreakError as error:
            return str(error)
        broken = self._broken.setdefault(request.node, Breakages())
        if not request.repair:
            broken.add(item)
        elif not broken.repair(item.kind, item.chips):
            return f"node {request.node} has no such fault set by command"
        return ""

    def condition(self, name: str, now_ms: UnixMs) -> NodeCondition:
        """Health of a node: all its current faults, and the worst level."""
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
        return self._with_broken(seen, now_ms)

    def _with_broken(self, seen: NodeCondition, now_ms: UnixMs) -> NodeCondition:
        """Health of a node with the faults set by command."""
        if seen.name not in self._broken:
            return seen
        broken = self._broken[seen.name].at(now_ms)
        levels = [item.level for item in broken.items if item.kind in {"node", "switch"}]
        levels += [item.level for item in broken.of("chip") if item.level in HARMLESS]
        return msgspec.structs.replace(
            seen,
            unhealthy=seen.unhealthy | broken.unhealthy(0),
            recovering=seen.recovering | broken.recovering,
            network_unhealthy=seen.network_unhealthy | broken.network,
            level=max([seen.level, *(level_of(level).health for level in levels)]),
        )

    def facts(self, domain: str, now_ms: UnixMs) -> DomainFacts:
        """Facts about a domain: unhealthy and recovering chips are not allocatable."""
        conditions = [self.condition(name, now_ms) for name in self.domains[domain]]
        nodes = [
            _allocatable(self.nodes[condition.name], condition, is_dead=self._is_dead(condition.name, now_ms))
            for condition in conditions
        ]
        return DomainFacts(
            nodes=pack_nodes(domain, nodes, at_ms=now_ms),
            health=pack_health(domain, conditions, source=SOURCE, at_ms=now_ms),
        )

    def _is_dead(self, name: str, now_ms: UnixMs) -> bool:
        return name in self._broken and self._broken[name].at(now_ms).kubelet

    def switches(self, now_ms: UnixMs) -> TopologySeen:
        """The leaf switches of the cluster."""
        common = self._switches
        return pack_switches(self.nodes.values(), level=common.level, places=common.places, at_ms=now_ms)


def _allocatable(node: NodeDescription, condition: NodeCondition, *, is_dead: bool) -> NodeDescription:
    usable = node.chips & ~(condition.unhealthy | condition.recovering)
    return msgspec.structs.replace(node, allocatable=usable.bit_count(), ready=node.ready and not is_dead)
