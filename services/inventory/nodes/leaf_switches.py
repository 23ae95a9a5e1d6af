"""Leaf switches from their ConfigMap: which value is in force, and the fact about it. Pure.

A new value does not take effect while it is invalid, or while it removes the leaf switch of running pods with chips.
Then the last valid value stays in force, also across a restart, and the fact states the reason.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from berth.core.cluster.node_packing import SWITCHES, unpack_nodes
from berth.formats.ascend.tor_config import (
    CONFIG_MAP,
    DOUBLE_LAYER,
    NAMESPACE,
    TOR_INFO,
    Server,
    Slot,
    TorConfig,
    TorConfigError,
    TorLeaf,
    read_tor_config,
)
from berth.formats.kubernetes.objects import ConfigMap
from berth.schemas.facts import Leaf, NodesSeen, TopologySeen
from berth.schemas.units import UnixMs
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.pod_rows import PodRow

PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SELECTOR: Final = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
_NAMED_MAX: Final = 3


class Switches:
    """Leaf switches in force, the reason why the newest value of the ConfigMap is not, and the published fact.

    ``reason`` states why the newest value is not in force, empty when it is; ``uid`` is that of the ConfigMap.

    Args:
        nodes: Nodes below the switches.
        pods_on: Pods that are bound to a node.
    """

    def __init__(self, nodes: Nodes, pods_on: Callable[[str], Iterable[PodRow]]) -> None:
        self._nodes = nodes
        self._pods_on = pods_on
        self.reason = ""
        self.uid = ""
        self._config = TorConfig()
        self._slots: dict[str, Slot] = {}
        self._newest: TorConfig | None = None
        """Valid value that is not in force yet."""
        self._newest_slots: dict[str, Slot] = {}
        self._wrong = ""
        self._changes = 0
        self._published: TopologySeen | None = None
        self._published_basis: tuple[int, int, str] | None = None
        """Inputs of the last fact, or of its absence."""

    def restore(self, published: TopologySeen | None, nodes: Iterable[NodesSeen]) -> None:
        """Restore the fact that an earlier run published last; its leaf switches stay in force until replaced.

        Args:
            published: The fact; one without addresses takes those of the nodes.
            nodes: The published facts about nodes.
        """
        self._published = published
        if published is not None and published.leaves:
            self._count(_config_of(published, nodes))

    def take(self, found: ConfigMap | None) -> None:
        """Take the current ConfigMap, None after its deletion; :meth:`settle` decides whether it takes effect."""
        self._wrong = ""
        self._newest = TorConfig()
        if found is not None:
            self.uid = found.metadata.uid
            try:
                self._newest = read_tor_config(found.data or {})
            except TorConfigError as error:
                self._newest = None
                self._wrong = str(error)
        self._newest_slots = self._newest.slots() if self._newest is not None else {}

    def settle(self) -> None:
        """Put the newest value in force unless there is a conflict. Nodes and pods must be known before."""
        reason = self._wrong or self._conflict()
        if reason:
            holds = "the last valid value stays in force" if self._config.leaves else "no switch is known"
            self.reason = f"{reason}; {holds}"
            return
        self.reason = ""
        if self._newest is not None:
            self._count(self._newest)
            self._newest = None

    def due(self, at_ms: UnixMs) -> TopologySeen | None:
        """Fact about the leaf switches; None when it is published already."""
        basis = (self._nodes.place_revision, self._changes, self.reason)
        if basis == self._published_basis:
            return None
        fact = self._fact(at_ms)
        published = self._published
        is_published = (
            not (fact.leaves or fact.reason) if published is None else published == _at(fact, published.at_ms)
        )
        if is_published:
            self._published_basis = basis
            return None
        return fact

    def note_published(self, fact: TopologySeen) -> None:
        """Note that a fact was published."""
        self._published = fact

    def _count(self, config: TorConfig) -> None:
        if config != self._config:
            self._config = config
            self._slots = config.slots()
            self._changes += 1
            self._nodes.place(self._slots)

    def _fact(self, at_ms: UnixMs) -> TopologySeen:
        node_at = self._nodes.placed()
        leaves = [
            Leaf(
                name=leaf.address,
                address=leaf.address,
                nodes=[node_at.get(server.address, "") for server in leaf.servers],
                positions=[server.position for server in leaf.servers],
                addresses=[server.address for server in leaf.servers],
            )
            for leaf in self._config.leaves
        ]
        return TopologySeen(
            kind=SWITCHES,
            leaves=leaves,
            level=self._config.level if leaves else "",
            at_ms=at_ms,
            places=self._config.places,
            reason=self.reason,
        )

    def _conflict(self) -> str:
        """Leaf switch that the newest value would remove from running pods, with the pods; empty without a conflict."""
        new, after = self._newest, self._newest_slots
        if new is None or new == self._config:
            return ""
        lost: dict[str, list[tuple[str, str]]] = {}
        for name, address in self._nodes.busy():
            slot = self._slots.get(address)
            if slot is not None and (address not in after or after[address].leaf != slot.leaf):
                lost.setdefault(slot.leaf, []).append((name, address))
        if not lost:
            return ""
        leaf = next(one.address for one in self._config.leaves if one.address in lost)
        others = [one.address for one in self._config.leaves if one.address in lost and one.address != leaf]
        rest = f"; leaf {others[0]!r}{' and others' if others[1:] else ''} too" if others else ""
        address = lost[leaf][0][1]
        return (
            f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {_loss(new, after.get(address), leaf, address)}: "
            f"expected no change while pods with chips run there, {self._pods(name for name, _ in lost[leaf])}{rest}"
        )

    def _pods(self, nodes: Iterable[str]) -> str:
        """Some of the pods with chips on nodes, with their jobs if known."""
        found = sorted(
            (row.namespace, row.name, row.identity.job if row.identity is not None else "", row.node)
            for node in nodes
            for row in self._pods_on(node)
            if row.is_live and row.asked
        )
        texts = [
            f"{namespace}/{name} {f'of job {job} ' if job else ''}on node {node}"
            for namespace, name, job, node in found[:_NAMED_MAX]
        ]
        return ", ".join(texts) + (" and others" if len(found) > _NAMED_MAX else "")


def _loss(new: TorConfig, slot: Slot | None, leaf: str, address: str) -> str:
    """What a new value has instead of a server below a leaf switch; ``slot`` is its port for the server, if any."""
    if not new.leaves:
        return f"it is gone, with leaf {leaf!r}"
    if all(one.address != leaf for one in new.leaves):
        return f"{TOR_INFO} server_list is without leaf {leaf!r}"
    if slot is None:
        return f"{TOR_INFO} server_list is without server {address!r} below leaf {leaf!r}"
    return f"{TOR_INFO} server_list has server {address!r} below leaf {slot.leaf!r} instead of leaf {leaf!r}"


def _config_of(published: TopologySeen, nodes: Iterable[NodesSeen]) -> TorConfig:
    """Leaf switches of a fact; servers without a known address are left out."""
    address_of: Mapping[str, str] = {}
    if not all(leaf.addresses or not leaf.nodes for leaf in published.leaves):
        address_of = {node.name: node.address for fact in nodes for node in unpack_nodes(fact)}
    leaves: list[TorLeaf] = []
    for leaf in published.leaves:
        addresses = leaf.addresses or [address_of.get(name, "") for name in leaf.nodes]
        positions = leaf.positions or range(len(addresses))
        servers = (Server(address, position) for address, position in zip(addresses, positions, strict=True) if address)
        leaves.append(TorLeaf(leaf.name, tuple(servers)))
    least = max((server.position + 1 for leaf in leaves for server in leaf.servers), default=1)
    return TorConfig(tuple(leaves), max(published.places, least), published.level or DOUBLE_LAYER)


def _at(fact: TopologySeen, at_ms: UnixMs) -> TopologySeen:
    return msgspec.structs.replace(fact, at_ms=at_ms)
