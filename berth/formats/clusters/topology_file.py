"""Topology files: a simulated cluster in YAML.

Example::

    apiVersion: berth/v1
    kind: Cluster
    nodes:
      - {product: module910bx8, count: 16, name: "a2-{index:03}", leaf: {size: 4}}
      - {product: superpod910a3x16, count: 8, name: "a3-{index}", superpod: {size: 4}}
      - {product: superpod950x8, count: 32, name: "a5-{index}", superpod: {size: 16}, rack: {size: 4}}
      - {product: "310p", name: infer, cpu: 64, memory: 256Gi, labels: {zone: b}, cordoned: true}
    switches: {level: double_layer, places: 4}
    faults:
      - {node: a2-003, chips: [3], kind: unhealthy}
      - {node: a2-004, level: sub-healthy, from: 10s, for: 20s}

``{index}`` in a name counts from ``first`` (0); ``{index:03}`` pads with zeros. ``leaf`` and ``superpod`` are the name
of one group, or groups of ``size`` nodes with a ``name`` that contains ``{index}``; without a name the groups are
numbered through the file. The position below a leaf switch, or in the SuperPoD of a node without a leaf, is the order
in the file. ``rack`` is the number of a rack inside the SuperPoD of the node, or racks of ``size`` nodes, numbered from
0 in each SuperPoD; products with racks have them by default. ``switches`` has the network level (``double_layer``, the
default, with a spine above the leaves, or ``single_layer``) and ``places``, the number of places below a leaf: at least
the nodes of the largest leaf, which is the default.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple, get_args

from berth.formats.ascend.tor_config import DOUBLE_LAYER, PLACES_MAX, SINGLE_LAYER
from berth.formats.kubernetes.node_place import SUPERPOD_LABEL
from berth.formats.manifests.pod_template import read_quantity
from berth.formats.quantities import NUMBER_MAX, QuantityError, duration_ms, rounded_up
from berth.formats.yaml_documents import read_documents
from berth.formats.yaml_tree import DocumentError, Tree, is_dns_name, nearest
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import NodeProduct
from berth.schemas.constraints import Taint, TaintEffect
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeDescription

NODES_MAX: Final = 200_000
"""Maximum number of nodes of a cluster."""
CHIPS_MAX: Final = 64
POSITION_MAX: Final = PLACES_MAX - 1
CPU_DEFAULT_MILLI: Final = 192_000
MEMORY_DEFAULT_MIB: Final = 1_536 * 1024
LABELS: Final = {"host-arch": "huawei-arm"}
"""Labels that every node has unless its entry sets others."""
CHIP_FAULTS: Final = ("unhealthy", "network-unhealthy", "recovering")
LEVELS: Final = {
    "sub-healthy": NodeHealth.SUB_HEALTHY,
    "no-new-work": NodeHealth.NO_NEW_WORK,
    "evict": NodeHealth.EVICT,
}
_MIB: Final = 1 << 20
_INDEX: Final = re.compile(r"\{index(?::0?([1-9]))?\}")
_NODE_FIELDS: Final = (
    "product", "count", "name", "first", "chips", "cpu", "memory", "labels", "taints", "cordoned", "ready", "leaf", "superpod",
    "rack",
)  # fmt: skip
_FAULT_FIELDS: Final = ("node", "chips", "kind", "level", "from", "for")


class TopologyError(DocumentError):
    """An invalid topology file."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A temporary fault of a node or of some of its chips.

    Attributes:
        node: Name of the node.
        kind: One of :data:`CHIP_FAULTS`; empty for a fault of the node itself.
        chips: Mask of the chips; 0 for a fault of the node itself.
        level: Level of the node; ``OK`` for a fault of chips.
        from_ms: Start, in milliseconds after the start of the cluster.
        until_ms: End, likewise; None for never.
    """

    node: str
    kind: str = ""
    chips: int = 0
    level: NodeHealth = NodeHealth.OK
    from_ms: int = 0
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Switches:
    """Common properties of the leaf switches.

    Attributes:
        level: ``single_layer`` or ``double_layer``.
        places: Maximum number of nodes below a leaf; 0: the nodes of the largest leaf.
    """

    level: str = DOUBLE_LAYER
    places: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A simulated cluster: nodes in the order of the file, faults, and common properties of the leaf switches."""

    nodes: list[NodeDescription]
    faults: list[Fault]
    switches: Switches = Switches()


def parse_cluster(text: str) -> Cluster:
    """Cluster of a topology file.

    Raises:
        TopologyError: It is not one YAML document of kind ``Cluster``; a field is missing, wrong or unknown; a node is
            repeated; a leaf has more nodes than places; or a fault names a node or chip that does not exist. The error
            has path, value and valid values.
    """
    documents = read_documents(text, TopologyError)
    if len(documents) != 1:
        raise TopologyError(document=0, path="", value=f"{len(documents)} documents", expected="one document")
    (document,) = documents
    document.only(("apiVersion", "kind", "nodes", "switches", "faults"))
    document.need("apiVersion", "berth/v1").choice(("berth/v1",))
    document.need("kind", "Cluster").choice(("Cluster",))
    entries = document.need("nodes", "a list of nodes")
    builder = _Builder()
    for entry in entries.items():
        builder.add(entry)
    if not builder.nodes:
        raise entries.wrong("at least one node")
    faults = [_fault(item, builder.nodes) for item in document.items_of("faults")]
    return Cluster(list(builder.nodes.values()), faults, _switches(document.find("switches"), builder.below))


class _Group(NamedTuple):
    """Place of a node: its leaf switch, its SuperPoD, its rack in the SuperPoD, and its index there."""

    leaf: str
    superpod: str
    rack: str
    number: int


class _Builder:
    """Nodes read so far, and the numbers of groups and positions in use."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeDescription] = {}
        self.below: dict[str, int] = {}
        """Number of nodes of each leaf."""
        self._inside: dict[str, int] = {}
        """Number of nodes of each SuperPoD."""
        self._numbered = {"leaf": 0, "superpod": 0}

    def add(self, entry: Tree) -> None:
        """Read one entry of the list of nodes."""
        entry.only(_NODE_FIELDS)
        pattern = _node(entry)
        count = entry.find("count")
        total = 1 if count is None else count.whole(least=1, most=NODES_MAX)
        if len(self.nodes) + total > NODES_MAX:
            raise entry.wrong(f"at most {NODES_MAX} nodes in the cluster")
        names = _names(entry, pattern.product, total)
        leaves = self._groups(entry, "leaf", total, "leaf-{index}")
        superpods = self._groups(entry, "superpod", total, "{index}")
        if NODE_PRODUCTS[pattern.product].in_superpod and not superpods[0]:
            entry.need("superpod", f"a SuperPoD, to which nodes of {pattern.product} belong")
        rack_of = _racks(entry, NODE_PRODUCTS[pattern.product], has_superpod=bool(superpods[0]))
        for name, leaf, superpod in zip(names, leaves, superpods, strict=True):
            if name in self.nodes:
                raise (entry.find("name") or entry).wrong(f"another name: node {name!r} is given twice")
            index = self._inside.get(superpod, 0)
            if superpod:
                self._inside[superpod] = index + 1
            group = _Group(leaf, superpod, rack_of(index) if superpod else "", min(index, POSITION_MAX))
            self.nodes[name] = self._placed(entry, pattern, name, group)

    def _placed(self, entry: Tree, pattern: NodeDescription, name: str, group: _Group) -> NodeDescription:
        leaf, superpod, position = group.leaf, group.superpod, group.number
        if leaf:
            position = self.below.get(leaf, 0)
            if position > POSITION_MAX:
                raise entry.wrong(f"at most {POSITION_MAX + 1} nodes below leaf switch {leaf!r}")
            self.below[leaf] = position + 1
        number = len(self.nodes) + 1
        return NodeDescription(
            name=name,
            product=pattern.product,
            resource=pattern.resource,
            chips=pattern.chips,
            allocatable=pattern.allocatable,
            cpu_milli=pattern.cpu_milli,
            memory_mib=pattern.memory_mib,
            labels={SUPERPOD_LABEL: superpod, **pattern.labels} if superpod else pattern.labels,
            taints=pattern.taints,
            cordoned=pattern.cordoned,
            ready=pattern.ready,
            superpod=superpod,
            rack=group.rack,
            leaf=leaf,
            position=position,
            address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        )

    def _groups(self, entry: Tree, key: str, total: int, default: str) -> list[str]:
        """Group name of each node of the entry; empty names without a group."""
        place = entry.find(key)
        if place is None:
            return [""] * total
        if not isinstance(place.value, dict):
            return [place.dns_name()] * total
        place.only(("size", "name", "first"))
        size = place.need("size", f"the number of nodes of each {key}").whole(least=1, most=NODES_MAX)
        count = -(-total // size)
        name = place.find("name")
        if name is None:
            first = self._numbered[key]
            self._numbered[key] += count
            names = [_filled(default, first + index) for index in range(count)]
        else:
            names = _numbered_names(name, _first(place), count)
        return [names[index // size] for index in range(total)]


def _racks(entry: Tree, product: NodeProduct, *, has_superpod: bool) -> Callable[[int], str]:
    """Rack of a node by its index in its SuperPoD; empty names without racks."""
    place = entry.find("rack")
    size = product.rack_nodes
    if place is not None:
        if not has_superpod:
            raise place.wrong("nothing here, or a superpod: racks are parts of SuperPoDs")
        if not isinstance(place.value, dict):
            number = str(place.whole(least=0, most=NUMBER_MAX))
            return lambda _: number
        place.only(("size",))
        size = place.need("size", "the number of nodes of each rack").whole(least=1, most=NODES_MAX)
    return lambda index: str(index // size) if size else ""


def _node(entry: Tree) -> NodeDescription:
    """Fields that all nodes of an entry share."""
    product = NODE_PRODUCTS[entry.need("product", nearest("", NODE_PRODUCTS)).choice(NODE_PRODUCTS)]
    chips = entry.find("chips")
    count = product.chips if chips is None else chips.whole(least=1, most=CHIPS_MAX)
    cordoned = entry.find("cordoned")
    ready = entry.find("ready")
    return NodeDescription(
        name="",
        product=product.name,
        resource=product.resource,
        chips=(1 << count) - 1,
        allocatable=count,
        cpu_milli=_amount(entry.find("cpu"), Fraction(1, 1000), CPU_DEFAULT_MILLI),
        memory_mib=_amount(entry.find("memory"), Fraction(_MIB), MEMORY_DEFAULT_MIB),
        labels={**LABELS, **product.labels, **entry.strings_of("labels")},
        taints=[_taint(item) for item in entry.items_of("taints")],
        cordoned=cordoned is not None and cordoned.flag(),
        ready=ready is None or ready.flag(),
    )


def _amount(place: Tree | None, unit: Fraction, default: int) -> int:
    if place is None:
        return default
    try:
        return rounded_up(read_quantity(place), unit=unit)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def _taint(item: Tree) -> Taint:
    item.only(("key", "value", "effect"))
    value = item.find("value")
    effect = item.find("effect")
    return Taint(
        key=item.need("key", "the taint's key").text(),
        value="" if value is None else value.text(),
        effect="NoSchedule" if effect is None else effect.choice(get_args(TaintEffect)),  # type: ignore[arg-type]  # one of its words
    )


def _first(place: Tree) -> int:
    first = place.find("first")
    return 0 if first is None else first.whole(least=0, most=NODES_MAX)


def _names(entry: Tree, product: str, total: int) -> list[str]:
    name = entry.find("name")
    if name is None:
        return [_filled(f"{product}-{{index}}", _first(entry) + index) for index in range(total)]
    return _numbered_names(name, _first(entry), total)


def _numbered_names(place: Tree, first: int, count: int) -> list[str]:
    """Names from a pattern; a pattern without ``{index}`` yields one name."""
    pattern = place.text('a name; "{index}" in it counts')
    if count > 1 and not _INDEX.search(pattern):
        raise place.wrong(f'a name with "{{index}}" in it, because there are {count}')
    names = [_filled(pattern, first + index) for index in range(count)]
    for name in names:
        if not is_dns_name(name):
            raise place.wrong("an RFC 1123 name: lower-case letters, digits, inner '-' and '.', and \"{index}\"")
    return names


def _filled(pattern: str, index: int) -> str:
    return _INDEX.sub(lambda match: f"{index:0{match[1] or 1}}", pattern)


def _switches(place: Tree | None, below: dict[str, int]) -> Switches:
    if place is None:
        return Switches()
    place.only(("level", "places"))
    if not below:
        raise place.wrong("nothing here, or nodes below leaf switches: no node of the file has a leaf")
    level, places = place.find("level"), place.find("places")
    count = 0
    if places is not None:
        count = places.whole(least=1, most=PLACES_MAX)
        fullest = max(below, key=lambda leaf: below[leaf])
        if count < below[fullest]:
            raise places.wrong(f"at least {below[fullest]}: so many nodes are below leaf switch {fullest!r}")
    return Switches(DOUBLE_LAYER if level is None else level.choice((SINGLE_LAYER, DOUBLE_LAYER)), count)


def _fault(item: Tree, nodes: dict[str, NodeDescription]) -> Fault:
    item.only(_FAULT_FIELDS)
    place = item.need("node", "the name of a node")
    node = nodes.get(place.text())
    if node is None:
        raise place.wrong("the name of a node in this file")
    from_ms = _moment(item, "from") or 0
    lasts_ms = _moment(item, "for")
    until_ms = None if lasts_ms is None else from_ms + lasts_ms
    level = item.find("level")
    if level is None:
        kind = item.need("kind", "a kind, or a level of the node instead").choice(CHIP_FAULTS)
        return Fault(node=node.name, kind=kind, chips=_chips(item, node), from_ms=from_ms, until_ms=until_ms)
    for key in ("kind", "chips"):
        other = item.find(key)
        if other is not None:
            raise other.wrong("nothing here: a level is a fault of the whole node")
    return Fault(node=node.name, level=LEVELS[level.choice(LEVELS)], from_ms=from_ms, until_ms=until_ms)


def _chips(item: Tree, node: NodeDescription) -> int:
    count = node.chips.bit_length()
    places = item.need("chips", "a list of chips").items()
    if not places:
        raise item.need("chips", "").wrong("at least one chip")
    mask = 0
    for place in places:
        mask |= 1 << place.whole(least=0, most=count - 1)
    return mask


def _moment(item: Tree, key: str) -> int | None:
    place = item.find(key)
    if place is None:
        return None
    try:
        return duration_ms(place.value)
    except QuantityError as error:
        raise place.wrong(error.expected) from error
