"""Nodes as facts: their descriptions by topology, less the CPU and memory that other pods use. Pure.

Descriptions are compared, so that a heartbeat of a node changes nothing.

Longer than 400 lines because a node has one description, from its object, its reports, its place and its pods.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from berth.core.cluster.domains import domains, leaving
from berth.core.cluster.node_packing import pack_nodes, unpack_nodes
from berth.formats.ascend.bind_annotations import LABEL_CHIP_NAME, NodeCard, physical_ids
from berth.formats.ascend.pod_annotations import BASE_DEVICE_INFOS
from berth.formats.ascend.tor_config import Slot
from berth.formats.kubernetes.nodes import NodeReading, read_node
from berth.formats.kubernetes.objects import Node
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.columns import unpack_names
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen, is_repeat
from berth.schemas.nodes import NodeDescription
from berth.schemas.units import UnixMs
from berth.services.inventory.nodes.conditions import Conditions
from berth.services.inventory.nodes.device_places import DevicePlaces
from berth.services.inventory.nodes.free_chips import SHARES, Unreported, free_chips, unreported_by_resource
from berth.services.inventory.nodes.moves import Moves
from berth.services.inventory.nodes.uses import Use, Uses


class Named(NamedTuple):
    """Chips that an annotation names.

    Attributes:
        chips: Bitmap of the chips that the node has, by physical id.
        unknown: Bitmap of the ids, as written in the annotation, that the node does not have.
    """

    chips: int
    unknown: int


class Free(NamedTuple):
    """Capacity of schedulable, ready nodes, less what their pods use.

    ``unreported`` has the nodes that would have free chips of a resource, by its name.
    """

    chips: dict[str, int]
    cpu_milli: int
    memory_mib: int
    unreported: dict[str, list[Unreported]]


class Naming(NamedTuple):
    """What decides which chips the ids of pods name on a node.

    Attributes:
        mask: Bitmap of its chips; None for an unknown node.
        ids: Physical ids by device ids; None where these do not differ.
    """

    mask: int | None
    ids: Mapping[int, int] | None


class Due(NamedTuple):
    """Facts to publish: all of ``leaving`` before any of ``rest``, because a node may be in one domain only."""

    leaving: list[NodesSeen]
    rest: list[NodesSeen]


class Nodes:
    """Nodes of the cluster, and the facts published about them.

    ``reasons`` holds the errors of each node's object, by name.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, tuple[str, ...]] = {}
        self._plain: dict[str, NodeDescription] = {}
        self._ids: dict[str, dict[int, int]] = {}
        """Physical ids by device ids, for nodes where these differ. A deleted node's ids are kept: its pods may still
        exist."""
        self._devices = DevicePlaces()
        self._conditions = Conditions()
        self._uses = Uses()
        self.is_short = False
        """More chips than published are counted nowhere else."""
        self._place_revision = 0
        self._slots: dict[str, Slot] = {}
        """Ports below leaf switches, by InternalIP."""
        self._placed: dict[str, NodeDescription] = {}
        self._domains: dict[str, list[str]] = {}
        self._domain_of: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._stale: set[str] = set()
        self._published: dict[str, NodesSeen] = {}
        self._published_names: dict[str, list[str]] = {}
        self._address_reasons: dict[str, str] = {}
        self._moves = Moves()
        self._may_leave = True
        """Nodes may be in other domains than published."""

    @property
    def is_changed(self) -> bool:
        """Whether anything changed since the last :meth:`due`."""
        return bool(self._dirty)

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self._plain)

    @property
    def domain_of(self) -> Mapping[str, str]:
        """Domain of each node."""
        self._settle()
        return self._domain_of

    @property
    def needs_devices(self) -> bool:
        """Whether the reports of device plug-ins are needed: only they state the place of some node."""
        return self._devices.is_needed

    def note_device_report(self, name: str, text: str | None) -> None:
        """Take the report of a node's device plug-in, also before the node itself; None: the report was deleted."""
        if text is None:
            self._devices.drop(name)
        elif (reading := self._devices.note_report(name, text)) is not None:
            self._take(name, reading)

    def mask(self, name: str) -> int | None:
        """Bitmap of the chips of a node; None when the node is unknown."""
        node = self._plain.get(name)
        return None if node is None else node.chips

    def naming(self, name: str) -> Naming:
        """What decides which chips the ids of pods name on a node."""
        return Naming(self.mask(name), self._ids.get(name))

    def named(self, name: str, ids: int, *, physical: bool) -> Named:
        """Chips that a bitmap of ids names on a node. On an unknown node each id names a chip.

        Args:
            name: The node.
            ids: Bitmap of the ids.
            physical: They are physical ids even where the device plug-in uses others.
        """
        mapped = None if physical else self._ids.get(name)
        found = ids if mapped is None else _translated(ids, mapped)
        mask = self.mask(name)
        known = found if mask is None else found & mask
        if mapped is None:
            return Named(known, found & ~known)
        return Named(known, ids & ~sum(1 << device for device, chip in mapped.items() if known >> chip & 1))

    def whole_chips(self, name: str, asked: int) -> int:
        """Chips of a node for a number that a pod asks for: of shared chips it asks for parts."""
        node = self._plain.get(name)
        parts = SHARES if node is not None and node.labels.get(LABEL_SOFT_SHARE) == "true" else 1
        return -(-asked // parts)

    def note_health(self, seen: HealthSeen) -> bool:
        """Take the health of nodes; returns whether anything changed.

        Raises:
            ValueError: The fact is damaged.
            IndexError: The fact is damaged.
        """
        return self._conditions.note(seen)

    def address_reasons(self) -> dict[str, str]:
        """Nodes that share an InternalIP with another node, and the message about it."""
        return self._address_reasons

    def replace(self, nodes: Iterable[Node]) -> set[str]:
        """Take a full list; nodes that are not in it are gone. Returns the names of nodes whose chips changed."""
        listed = list(nodes)
        names = {node.metadata.name for node in listed}
        self._devices.keep(names)
        changed = {name for name in sorted(self._plain.keys() - names) if self.remove(name)}
        return changed | {node.metadata.name for node in listed if self.put(node)}

    def put(self, node: Node) -> bool:
        """Take the current state of a node; returns whether its chips changed."""
        reading = self._devices.complete(read_node(node))
        is_renumbered = self._renumber(node, reading.node)
        return self._take(node.metadata.name, reading) or is_renumbered

    def _renumber(self, node: Node, plain: NodeDescription) -> bool:
        """Note the ids that annotations use for the chips of a node; returns whether they changed."""
        meta = node.metadata
        card = NodeCard(
            meta.name,
            base_device_infos=meta.annotation(BASE_DEVICE_INFOS),
            chip_name=meta.label(LABEL_CHIP_NAME),
        )
        before = self._ids.pop(meta.name, None)
        if card.has_device_ids:
            ids = physical_ids(card, plain.resource, plain.chips)
            if len(ids) < plain.chips.bit_count() or any(device != chip for device, chip in ids.items()):
                self._ids[meta.name] = ids
        if self._ids.get(meta.name) == before:
            return False
        self._dirty.add(meta.name)
        return True

    def _take(self, name: str, reading: NodeReading) -> bool:
        before = self._plain.get(name)
        if self.reasons.get(name, ()) != reading.reasons:
            self._dirty.add(name)
            self.reasons.pop(name, None)
            if reading.reasons:
                self.reasons[name] = reading.reasons
        if before == reading.node:
            return False
        self._plain[name] = reading.node
        self._dirty.add(name)
        return before is None or _named(before) != _named(reading.node)

    def remove(self, name: str) -> bool:
        """Drop a node; returns whether it was known."""
        self.reasons.pop(name, None)
        self._devices.leave(name)
        self._dirty.add(name)
        return self._plain.pop(name, None) is not None

    def use(self, before: Use | None, after: Use | None) -> None:
        """Note that a pod's use of resources changed; None for no use."""
        self._dirty.update(self._uses.note(before, after))
        self.is_short |= after is not None and after.unnamed > (before.unnamed if before is not None else 0)

    def free(self, held: Callable[[str], int] = lambda _: 0) -> Free:
        """Free capacity for new work; pods of all schedulers count. Unhealthy nodes and chips provide none.

        Args:
            held: Bitmap of the chips of a node that its pods hold.
        """
        self._settle()
        chips: dict[str, int] = {}
        cpu = memory = 0
        lacking: dict[tuple[str, str], dict[str, int]] = {}
        for node in self._plain.values():
            condition = self._conditions.of(self._domain_of.get(node.name, ""), node.name)
            is_barred = condition is not None and condition.level >= NodeHealth.NO_NEW_WORK
            load = self._uses.load(node.name)
            if condition is not None and condition.reason and node.resource and node.ready and not node.cordoned:
                count = free_chips(node, condition, load[0], held)
                lacking.setdefault((node.resource, condition.reason), {})[node.name] = count
            if node.ready and not node.cordoned and not is_barred:
                if node.resource:
                    count = free_chips(node, condition, load[0], held)
                    chips[node.resource] = chips.get(node.resource, 0) + count
                cpu += max(node.cpu_milli - load[1], 0)
                memory += max(node.memory_mib - load[2], 0)
        return Free(chips, cpu, memory, unreported_by_resource(lacking))

    def place(self, slots: dict[str, Slot]) -> None:
        """Take the current ports below leaf switches, by InternalIP."""
        if slots != self._slots:
            self._slots = slots
            self._dirty.update(self._plain)

    @property
    def place_revision(self) -> int:
        """Number of changes of a node's port below the leaf switches, and of nodes that came or went."""
        self._settle()
        return self._place_revision

    def placed(self) -> dict[str, str]:
        """Nodes that have a port below a leaf switch, by InternalIP."""
        self._settle()
        return {node.address: name for name, node in self._placed.items() if node.leaf}

    def busy(self) -> list[tuple[str, str]]:
        """Nodes with running pods that have chips, of any scheduler, with their InternalIPs; sorted."""
        return sorted((name, self._plain[name].address) for name in self._uses.busy() if name in self._plain)

    def moves(self) -> dict[str, str]:
        """Nodes whose SuperPoD or rack changed under running pods with chips, with a message for each."""
        self._settle()
        return self._moves.sentences(self._uses.is_busy)

    def restore(self, published: Iterable[NodesSeen]) -> None:
        """Restore the facts that earlier runs published last."""
        for fact in published:
            self.note_published(fact)
            nodes = unpack_nodes(fact) if fact.superpods else []
            self._devices.restore(nodes)
            self._moves.restore(nodes)

    def due(self, at_ms: UnixMs) -> Due:
        """Facts that differ from the published ones."""
        self._settle()
        self.is_short = False
        parts = leaving(self._published_names, self._domains) if self._may_leave else {}
        self._may_leave = bool(parts)
        first: dict[str, NodesSeen] = {}
        for domain, names in parts.items():
            stay = set(names)
            rows = [node for node in unpack_nodes(self._published[domain]) if node.name in stay]
            moving = [name for name in self._published_names[domain] if name not in stay and name in self._domain_of]
            first[domain] = msgspec.structs.replace(pack_nodes(domain, rows, at_ms=at_ms), moving=moving)
        rest: list[NodesSeen] = []
        for domain in sorted(self._stale | (parts.keys() & self._domains.keys())):
            fact = pack_nodes(domain, [self._placed[name] for name in self._domains.get(domain, ())], at_ms=at_ms)
            known = first.get(domain) or self._published.get(domain)
            if known is not None:
                known = msgspec.structs.replace(known, moving=[])
            if fact.names and not is_repeat(known, fact):
                rest.append(fact)
            elif domain not in first:
                self._stale.discard(domain)
        return Due(list(first.values()), rest)

    def note_published(self, fact: NodesSeen) -> None:
        """Note that a fact was published."""
        if fact.names:
            self._published[fact.domain] = fact
            names = unpack_names(fact.names)
            self._may_leave = self._may_leave or names != self._published_names.get(fact.domain)
            self._published_names[fact.domain] = names
        else:
            self._published.pop(fact.domain, None)
            self._published_names.pop(fact.domain, None)

    def _settle(self) -> None:
        """Update the descriptions of changed nodes (leaf switch, free CPU and memory), and assign nodes to domains."""
        if not self._dirty:
            return
        shared = self._shared_addresses()
        self._dirty.update(shared.keys() ^ self._address_reasons.keys())
        self._address_reasons = shared
        moved = False
        for name in sorted(self._dirty):
            plain = self._plain.get(name)
            before = self._placed.get(name)
            if plain is None:
                moved = self._placed.pop(name, None) is not None or moved
                self._place_revision += before is not None
                continue
            after = self._placed[name] = self._in_place(plain)
            moved = moved or before is None or (before.superpod, before.leaf) != (after.superpod, after.leaf)
            self._place_revision += before is None or _place(before) != _place(after)
            is_busy = self._uses.is_busy(name)
            if before is None:
                self._moves.begin(after, is_busy=is_busy)
            elif is_busy:
                self._moves.note(before, after)
        if moved:
            self._sort()
        self._stale.update(self._domain_of[name] for name in self._dirty if name in self._domain_of)
        self._dirty.clear()

    def _sort(self) -> None:
        before = self._domains
        self._may_leave = True
        self._domains = domains(self._placed.values())
        self._domain_of = {name: domain for domain, names in self._domains.items() for name in names}
        self._stale.update(domain for domain, names in self._domains.items() if before.get(domain) != names)

    def _in_place(self, plain: NodeDescription) -> NodeDescription:
        slot = None if plain.name in self._address_reasons else self._slots.get(plain.address)
        chips, cpu, memory = self._uses.uncounted(plain.name)
        return msgspec.structs.replace(
            plain,
            leaf=slot.leaf if slot is not None else "",
            position=slot.position if slot is not None else plain.position,
            cpu_milli=max(plain.cpu_milli - cpu, 0),
            memory_mib=max(plain.memory_mib - memory, 0),
            cpu_others=min(cpu, plain.cpu_milli),
            memory_others=min(memory, plain.memory_mib),
            chips_others=min(chips, plain.chips.bit_count()),
            is_unsettled=self._uses.is_unsettled(plain.name),
        )

    def _shared_addresses(self) -> dict[str, str]:
        by_address: dict[str, list[str]] = {}
        for node in self._plain.values():
            if node.address:
                by_address.setdefault(node.address, []).append(node.name)
        return {
            name: (
                f"node {name}: status.addresses InternalIP is {address!r}, as on {_others(names, name)}: "
                "expected an address of its own; without one its place below a switch is not known"
            )
            for address, names in by_address.items()
            if len(names) > 1
            for name in names
        }


def _translated(ids: int, mapped: Mapping[int, int]) -> int:
    """Bitmap of the chips for a bitmap of ids; ids without a chip are dropped."""
    return sum(1 << chip for device, chip in mapped.items() if ids >> device & 1)


def _place(node: NodeDescription) -> tuple[str, int, str]:
    return (node.leaf, node.position, node.address)


def _others(names: list[str], name: str) -> str:
    return ", ".join(sorted(other for other in names if other != name))


def _named(node: NodeDescription) -> tuple[int, str, str]:
    """What decides which chips the annotations of pods name, and how many of them."""
    return node.chips, node.resource, node.labels.get(LABEL_SOFT_SHARE, "")
