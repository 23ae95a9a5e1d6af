"""The cluster of a history: its nodes, their health and leaf switches, and the facts that tell of them."""

import random
from collections.abc import Iterator

import msgspec

from berth.core.cluster.domains import domains, leaving
from berth.core.cluster.node_packing import SWITCHES, pack_health, pack_nodes, pack_switches
from berth.schemas.facts import Leaf, NodeHealth, TopologySeen
from berth.schemas.fault_facts import DrainKind, DrainSeen
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from tests.fuzz.families import base_node, changed_node
from tests.fuzz.steps import Way

Told = Iterator[tuple[str, Message]]
"""Facts, each behind the end of its subject."""


class Ground:
    """What is, and what the facts have said of it.

    Args:
        way: How the cell is.
    """

    def __init__(self, way: Way) -> None:
        self._way = way
        self._base = [base_node(number, way.families, way.groups, way.traits) for number in range(way.nodes)]
        self.nodes: dict[str, NodeDescription] = {}
        """Nodes by name, as the facts say."""
        self._domains: dict[str, list[str]] = {}
        self._health: dict[str, dict[str, NodeCondition]] = {}
        self.has_topology = False
        self.drains: dict[tuple[DrainKind, str], int] = {}
        """What is drained, and from when on."""

    @property
    def names(self) -> list[str]:
        """All nodes that were ever there."""
        return [node.name for node in self._base]

    def conditions(self) -> dict[str, NodeCondition]:
        """What the facts say of the health of nodes: that of a node's own domain counts."""
        return {
            name: said[name]
            for domain, names in self._domains.items()
            for said in [self._health.get(domain, {})]
            for name in names
            if name in said
        }

    def begin(self) -> Told:
        """All nodes come, and leaf switches where there are any."""
        yield from self._become({node.name: node for node in self._base})
        if "leaves" in self._way.traits:
            yield from self.topology(random.Random(0))  # noqa: S311  # the plain one

    def _become(self, nodes: dict[str, NodeDescription]) -> Told:
        """Facts of the domains that differ; a node that changes its domain leaves the old one first."""
        old, self.nodes = self.nodes, nodes
        now = domains(nodes.values())
        for domain, names in leaving(self._domains, now).items():
            yield f"node.{domain}", pack_nodes(domain, [nodes[name] for name in names], at_ms=1)
            self._domains[domain] = names
        for domain, names in now.items():
            if self._domains.get(domain) != names or any(old.get(name) != nodes[name] for name in names):
                yield f"node.{domain}", pack_nodes(domain, [nodes[name] for name in names], at_ms=1)
        self._domains = now

    def node(self, number: int, two: int, chance: random.Random) -> Told:
        """A node goes, comes back, or is otherwise than it was."""
        base = self._base[number % len(self._base)]
        nodes = dict(self.nodes)
        known = nodes.get(base.name)
        if known is None:
            nodes[base.name] = base
        elif two % 5 == 0:
            del nodes[base.name]
        elif two % 5 == 1:
            nodes[base.name] = base
        else:
            nodes[base.name] = changed_node(known, chance, self._way.traits)
        yield from self._become(nodes)

    def health(self, number: int, two: int, chance: random.Random) -> Told:
        """Somebody says how healthy the nodes of a domain are."""
        known = sorted(self._domains)
        if not known:
            return
        domain = known[number % len(known)]
        names = [name for name in self._domains[domain] if chance.random() < 0.8]
        if chance.random() < 0.2:
            names.append(chance.choice(self.names))
        said = {name: self._condition(name, chance) for name in names} if two % 4 else {}
        self._health[domain] = said
        yield f"health.{domain}", pack_health(domain, said.values(), at_ms=1)

    def well(self) -> Told:
        """All nodes are well, and somebody says so."""
        for domain, names in self._domains.items():
            self._health[domain] = {name: NodeCondition(name) for name in names}
            yield f"health.{domain}", pack_health(domain, self._health[domain].values(), at_ms=1)

    def say(self, condition: NodeCondition) -> Told:
        """Somebody says how healthy one node is; what was said of the others stays."""
        for domain, names in self._domains.items():
            if condition.name in names:
                self._health[domain] = self._health.get(domain, {}) | {condition.name: condition}
                yield f"health.{domain}", pack_health(domain, self._health[domain].values(), at_ms=1)

    def become(self, name: str, *, gone: bool = False, ready: bool = True) -> Told:
        """A node goes, is not ready, or is as it was at the beginning."""
        nodes = dict(self.nodes)
        nodes.pop(name, None)
        if not gone:
            base = next(node for node in self._base if node.name == name)
            nodes[name] = msgspec.structs.replace(base, ready=ready)
        yield from self._become(nodes)

    def _condition(self, name: str, chance: random.Random) -> NodeCondition:
        traits = self._way.traits
        if chance.random() < 0.4:
            return NodeCondition(name)
        level = NodeHealth.OK
        if "levels-of-health" in traits:
            level = chance.choice(list(NodeHealth))
        sub_healthy = _mask(chance) if "faults" in traits and chance.random() < 0.3 else 0
        if sub_healthy:  # so the health service says it
            level = max(level, NodeHealth.SUB_HEALTHY)
        return NodeCondition(
            name,
            unhealthy=_mask(chance) if "unhealthy" in traits else 0,
            recovering=_mask(chance) if "unhealthy" in traits and chance.random() < 0.3 else 0,
            network_unhealthy=_mask(chance) if "network" in traits else 0,
            level=level,
            network_known="network-lost" not in traits or chance.random() < 0.7,
            withheld=_mask(chance) if "withheld" in traits else 0,
            sub_healthy=sub_healthy,
        )

    def drain(self, number: int, two: int, now_ms: int, chance: random.Random) -> Told:
        """Somebody drains a node or a place, now, soon or for longer, or withdraws that."""
        drained = sorted(self.drains)
        if drained and two % 2:
            kind, name = drained[number % len(drained)]
            del self.drains[kind, name]
            yield f"drain.{kind}.{name}", DrainSeen(kind, name, gone=True, at_ms=now_ms)
            return
        places: list[tuple[DrainKind, str]] = [("node", name) for name in self.names]
        places += [("leaf", leaf) for leaf in sorted({node.leaf for node in self._base if node.leaf})]
        places += [("superpod", one) for one in sorted({node.superpod for node in self._base if node.superpod})]
        kind, name = places[number % len(places)]
        since_ms = max(1, now_ms + chance.choice((-5, 0, 0, 3, 20, 500, 2_000, 5_000)))
        self.drains[kind, name] = since_ms
        yield f"drain.{kind}.{name}", DrainSeen(kind, name, since_ms, chance.choice((0, 10)), at_ms=now_ms)

    def topology(self, chance: random.Random) -> Told:
        """Leaf switches as the nodes stand, or as a source has them that knows less, more or otherwise."""
        plain = not self.has_topology
        self.has_topology = True
        level = "" if plain else chance.choice(("", "double_layer", "single_layer"))
        fact = pack_switches(self.nodes.values(), level=level)
        leaves = list(fact.leaves)
        if not plain:
            leaves = _otherwise(leaves, self.names, chance)
        longest = max((len(leaf.nodes) for leaf in leaves), default=0)
        places = 0
        if not plain and chance.random() < 0.5:
            places = longest + chance.choice((0, 1, 2))
        if places:
            leaves = [msgspec.structs.replace(leaf, positions=list(range(len(leaf.nodes)))) for leaf in leaves]
        leaves = [msgspec.structs.replace(leaf, positions=_apart(leaf.positions)) for leaf in leaves]
        yield f"topology.{SWITCHES}", TopologySeen(SWITCHES, leaves, level=level, places=places, at_ms=1)


def _mask(chance: random.Random) -> int:
    return chance.choice((0, 1, 3, 0x10, 0x0F, 0xF0, 0x11 * chance.randint(0, 15), 0xFFFF))


def _apart(positions: list[int]) -> list[int]:
    """Positions of which each is there once."""
    return positions if len(set(positions)) == len(positions) else list(range(len(positions)))


def _otherwise(leaves: list[Leaf], names: list[str], chance: random.Random) -> list[Leaf]:
    """Leaves in a changed form: in another order, with one place less, none at all, or with an unknown node."""
    replace = msgspec.structs.replace
    match chance.choice(("order", "less", "none", "more", "positions", "same", "all")):
        case "order":
            chance.shuffle(leaves)
        case "less":
            return [
                replace(leaf, nodes=leaf.nodes[1:], positions=leaf.positions[1:], addresses=[])
                if chance.random() < 0.5
                else leaf
                for leaf in leaves
            ]
        case "none":
            return []
        case "more":
            leaves.append(Leaf("leaf9", "", ["unknown", ""], [0, 1]))
        case "positions":
            return [replace(leaf, positions=[2 * place for place in range(len(leaf.nodes))]) for leaf in leaves]
        case "all":
            half = len(names) // 2
            return [Leaf("leaf8", "", names[:half]), Leaf("leaf7", "", names[half:])]
        case _:
            pass
    return leaves
