"""Faulty nodes, from health facts and the resources of nodes. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.chips.picking import ids_of
from berth.core.cluster.node_packing import unpack_health
from berth.formats.ascend.fault_counters import FaultyDevice, FaultyNode, NodeState
from berth.formats.ascend.pod_annotations import chip_names
from berth.formats.kubernetes.objects import Node
from berth.products.resources import is_chips
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.nodes import NodeCondition

_UNKNOWN: Final = "npu"
"""Kind of the chips of a node that is not listed."""


class FaultyNodes:
    """Faulty nodes of the cluster."""

    def __init__(self) -> None:
        self._resources: dict[str, str] = {}
        """Resource of the chips of each node."""
        self._conditions: dict[str, dict[str, NodeCondition]] = {}
        """Faulty nodes by domain and name."""
        self._listed: dict[str, FaultyNode] = {}

    def set_node(self, node: Node) -> None:
        """Take the current state of a node."""
        self._resources[node.metadata.name] = _resource(node)

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Forget all other nodes."""
        known = frozenset(names)
        self._resources = {name: kind for name, kind in self._resources.items() if name in known}

    def drop_node(self, name: str) -> None:
        """Take the deletion of a node."""
        self._resources.pop(name, None)

    def set_health(self, fact: HealthSeen) -> None:
        """Take the newest health of a domain.

        Raises:
            ValueError: A column is damaged.
            IndexError: An index is outside its table.
        """
        self._conditions[fact.domain] = {one.name: one for one in unpack_health(fact) if _state(one) is not None}

    def found(self) -> list[FaultyNode]:
        """Faulty nodes by name. The time of a report alone changes nothing: it is that of the first with its faults."""
        now = {name: one for domain in self._conditions.values() for name, one in domain.items()}
        fresh = {name: self._faulty(one) for name, one in sorted(now.items())}
        self._listed = {name: self._same(node) for name, node in fresh.items()}
        return list(self._listed.values())

    def _same(self, node: FaultyNode) -> FaultyNode:
        before = self._listed.get(node.name)
        is_same = before is not None and msgspec.structs.replace(node, update_s=before.update_s) == before
        return before if before is not None and is_same else node

    def _faulty(self, one: NodeCondition) -> FaultyNode:
        resource = self._resources.get(one.name, _UNKNOWN)
        unhealthy, network = _names(resource, one.unhealthy), _names(resource, one.network_unhealthy)
        devices = [FaultyDevice("CardUnhealthy", name) for name in unhealthy]
        devices += [FaultyDevice("CardNetworkUnhealthy", name) for name in network]
        state = _state(one) or "NodeUnhealthy"
        return FaultyNode(devices, one.name, unhealthy, network, state, one.updated_ms // 1000)


def _state(one: NodeCondition) -> NodeState | None:
    """What is worst about a node; None if it is not faulty. Sub-health and refused new work are no fault."""
    if one.level is NodeHealth.EVICT:
        return "NodeUnhealthy"
    if one.unhealthy:
        return "CardUnhealthy"
    return "CardNetworkUnhealthy" if one.network_unhealthy else None


def _names(resource: str, chips: int) -> list[str]:
    return chip_names(resource, ids_of(chips)).split(",") if chips else []


def _resource(node: Node) -> str:
    """Resource of whole chips that a node offers."""
    offered = sorted(node.status.capacity or node.status.allocatable or ())
    kinds = [name for name in offered if is_chips(name)]
    return next(iter(kinds), _UNKNOWN)
