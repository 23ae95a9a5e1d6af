"""Adds nodes to the facts of a recording, or removes some.

Added nodes are copies of the most common kind of node, or of another that is named. They are below new leaf switches
and in new SuperPoDs, each as large as the largest existing one. Nodes are removed by name, or from the end of the order
of names.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from berth.core.cluster.node_packing import SWITCHES, pack_health, pack_nodes, unpack_health, unpack_nodes
from berth.core.simulation.planned_cluster import TimedFact, facts_of
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import HealthSeen, Leaf, NodesSeen, TopologySeen
from berth.schemas.nodes import NodeDescription
from berth.schemas.subjects import Subjects
from berth.schemas.workload import ClusterPlan

PREFIX: Final = "added"
"""Prefix of the names of added nodes and leaves."""


class UnknownNodeError(ValueError):
    """The recording does not have a node.

    Attributes:
        node: Its name.
    """

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node!r} is in no fact of the recording")
        self.node = node


def nodes_of(facts: Sequence[TimedFact]) -> list[NodeDescription]:
    """The last description of each node in the facts, by name."""
    found: dict[str, NodeDescription] = {}
    for fact in facts:
        envelope = open_envelope(fact.data)
        if envelope.kind == NodesSeen.KIND:
            found.update((node.name, node) for node in unpack_nodes(body_of(envelope, NodesSeen)))
    return [found[name] for name in sorted(found)]


def without_nodes(facts: Sequence[TimedFact], names: Collection[str]) -> list[TimedFact]:
    """Facts without some nodes; their places below leaf switches become empty.

    Raises:
        UnknownNodeError: There is no such node.
    """
    known = {node.name for node in nodes_of(facts)}
    for name in sorted(names):
        if name not in known:
            raise UnknownNodeError(name)
    gone = frozenset(names)
    return [fact._replace(data=_without(fact.data, gone)) for fact in facts]


def last_names(facts: Sequence[TimedFact], count: int) -> list[str]:
    """The last ``count`` nodes by name, or all of them if there are fewer."""
    return [node.name for node in nodes_of(facts)][-count:] if count else []


def model_of(nodes: Sequence[NodeDescription], like: str) -> NodeDescription:
    """The node that is copied: the first of the most common kind.

    Args:
        nodes: All nodes, by name.
        like: Name of a node, which is copied itself, or a product, of which nodes are; empty for all.

    Raises:
        UnknownNodeError: There is no such node.
    """
    chosen = [node for node in nodes if like in {"", node.product, node.name}]
    named = [node for node in chosen if node.name == like]
    if not chosen:
        raise UnknownNodeError(like)
    kinds = Counter(_kind(node) for node in chosen)
    common = max(kinds.values())
    return named[0] if named else next(node for node in chosen if kinds[_kind(node)] == common)


def with_nodes(facts: Sequence[TimedFact], count: int, *, cell: str, like: str) -> list[TimedFact]:
    """Facts with ``count`` more nodes from the first moment on.

    Raises:
        UnknownNodeError: There is no node to copy.
    """
    nodes = nodes_of(facts)
    added = _copies(nodes, count, model_of(nodes, like))
    added_facts = facts_of(ClusterPlan(name=PREFIX, nodes=added), subjects=Subjects(cell), at_ms=0)
    leaves = [leaf for _, message in added_facts if isinstance(message, TopologySeen) for leaf in message.leaves]
    first = [
        TimedFact(0, subject, encode(message))
        for subject, message in added_facts
        if not isinstance(message, TopologySeen)
    ]
    rest = [fact._replace(data=_with_leaves(fact.data, leaves)) for fact in facts]
    return [*first, *rest]


def _copies(nodes: Sequence[NodeDescription], count: int, model: NodeDescription) -> list[NodeDescription]:
    per_leaf = _largest([node.leaf for node in nodes])
    per_superpod = _largest([node.superpod for node in nodes])
    numbers = [int(node.superpod) for node in nodes if node.superpod.isdecimal()]
    first = max(numbers, default=-1) + 1
    digits = max(3, len(str(count - 1)))
    return [
        msgspec.structs.replace(
            model,
            name=f"{PREFIX}-{number:0{digits}}",
            leaf=f"{PREFIX}-leaf-{number // per_leaf:02}" if model.leaf else "",
            superpod=str(first + number // per_superpod) if model.superpod else "",
            position=number % (per_leaf if model.leaf else per_superpod),
            rack=str(number % per_superpod // _rack_nodes(nodes)) if model.rack else "",
            address="",
            cordoned=False,
            ready=True,
        )
        for number in range(count)
    ]


def _kind(node: NodeDescription) -> tuple[str, str, int]:
    return (node.product, node.resource, node.allocatable)


def _largest(groups: Sequence[str]) -> int:
    """Size of the largest group; 1 without groups."""
    counts = Counter(group for group in groups if group)
    return max(counts.values(), default=1)


def _rack_nodes(nodes: Sequence[NodeDescription]) -> int:
    return _largest([f"{node.superpod}/{node.rack}" for node in nodes if node.rack])


def _without(data: bytes, gone: frozenset[str]) -> bytes:
    envelope = open_envelope(data)
    if envelope.kind == NodesSeen.KIND:
        seen = body_of(envelope, NodesSeen)
        nodes = [node for node in unpack_nodes(seen) if node.name not in gone]
        return encode(pack_nodes(seen.domain, nodes, at_ms=seen.at_ms))
    if envelope.kind == HealthSeen.KIND:
        health = body_of(envelope, HealthSeen)
        left = [condition for condition in unpack_health(health) if condition.name not in gone]
        return encode(pack_health(health.domain, left, source=health.source, at_ms=health.at_ms))
    if envelope.kind == TopologySeen.KIND:
        topology = body_of(envelope, TopologySeen)
        return encode(
            msgspec.structs.replace(
                topology,
                leaves=[
                    msgspec.structs.replace(leaf, nodes=["" if node in gone else node for node in leaf.nodes])
                    for leaf in topology.leaves
                ],
            )
        )
    return data


def _with_leaves(data: bytes, leaves: list[Leaf]) -> bytes:
    envelope = open_envelope(data)
    if envelope.kind != TopologySeen.KIND:
        return data
    topology = body_of(envelope, TopologySeen)
    if topology.kind != SWITCHES or not topology.leaves:
        return data
    return encode(msgspec.structs.replace(topology, leaves=[*topology.leaves, *leaves]))
