"""Nodes of histories: products, and where they stand."""

import random
from typing import Any, Final

import msgspec

from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import LABEL_CHIP_MEMORY, LABEL_SOFT_SHARE
from berth.schemas.constraints import Taint
from berth.schemas.nodes import NodeDescription
from tests.support.cells import a_node

LEVELS: Final = (
    '{"default": {"level1": {"label": "rack", "reservedNode": 1}, "level2": {"label": "row"}},'
    ' "other": {"level1": {"label": "rack"}}}'
)
"""Setting ``resource_levels`` of cells with trees."""
SUPERPODS: Final = ("0", "3", "12", "x")
"""Names of SuperPoDs; their order is not that of their letters."""
ZONES: Final = ("red", "blue")
TREE: Final = "huawei.com/topotree"
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "cpu": (192_000, 192_000, 192_000, 16_000),
    "memory": (1_500_000, 1_500_000, 1_500_000, 64_000),
    "superpod": (*SUPERPODS[:3], ""),
    "leaf": ("leaf0", "leaf1", "leaf2", ""),
    "rack": ("0", "1", "7", ""),
    "position": (0, 1, 2, 3, 4, 5),
}
_FIELDS: Final = {"cordon": "cordoned", "cpu": "cpu_milli", "memory": "memory_mib"}
"""Fields that are called otherwise than the way in which they change."""


_OFTEN: Final[dict[str, int]] = {"soft-share": 5, "module910bx8": 4, "310p-duo": 2}
FAMILIES: Final = tuple(
    name
    for name, product in sorted(NODE_PRODUCTS.items())
    for _ in range(_OFTEN.get(name, 2 if product.in_superpod else 1))
)
"""Products of nodes, some more than once: those with rules of their own are common."""
_SHARED_CHIPS: Final = (0x3, 0xF)
"""Chips of a node that shares them: few, so that they become full."""


def node_name(number: int) -> str:
    """Name of a node; the order of names is not that of numbers."""
    return f"n{number * 7 % 24:02}"


def base_node(number: int, families: tuple[str, ...], groups: int, traits: tuple[str, ...]) -> NodeDescription:
    """A node as it is at the beginning."""
    product = families[number % len(families)]
    place = number // len(families)
    labels = dict(NODE_PRODUCTS[product].labels)
    if "selectors" in traits:
        labels["zone"] = ZONES[number % 2]
    if "trees" in traits:
        labels |= {"rack": f"r{place // 2}", "row": f"w{place // 4}"}
    if "constraints" in traits:
        labels = {"zone": ZONES[number * 2 // 3 % 2], "rack": f"r{number // 3}"} | labels
    in_superpod = NODE_PRODUCTS[product].in_superpod
    node = a_node(
        node_name(number),
        product,
        labels=labels,
        leaf=f"leaf{place % groups}" if "leaves" in traits else "",
        position=place // groups,
        superpod=SUPERPODS[place % groups] if in_superpod else "",
        rack=str(place // groups // 2) if in_superpod else "",
        taints=[Taint("team", "a")] if "selectors" in traits and number == 1 else [],
    )
    if product != "soft-share":
        return node
    chips = _SHARED_CHIPS[number % len(_SHARED_CHIPS)]
    return msgspec.structs.replace(node, chips=chips, allocatable=chips.bit_count())


def changed_node(node: NodeDescription, chance: random.Random, traits: tuple[str, ...]) -> NodeDescription:
    """The node with something else about it."""
    replace = msgspec.structs.replace
    ways = ["cordon", "ready", "cpu", "memory", "chips", "allocatable", "zone"]
    if node.superpod or node.leaf or "superpods-change" in traits:
        ways += ["superpod", "leaf", "rack", "position"] * 2
    if "trees" in traits:
        ways += ["tree"] * 2
    if "share-labels" in traits and LABEL_CHIP_MEMORY in node.labels:
        ways += ["share"] * 4
    way = chance.choice(ways)
    if way == "chips":
        return _with_chips(node, chance)
    if way in {"zone", "tree", "share"}:
        return _with_labels(node, chance, traits)
    return replace(node, **{_FIELDS.get(way, way): _changed(node, way, chance)})


def _changed(node: NodeDescription, way: str, chance: random.Random) -> Any:  # noqa: ANN401  # of the field's type
    """Another value of a field."""
    match way:
        case "cordon":
            return not node.cordoned
        case "ready":
            return not node.ready
        case "allocatable":
            return max(0, node.allocatable + chance.choice((-2, -1, 1, 2)))
        case _:
            return chance.choice(_VALUES[way])


def _with_chips(node: NodeDescription, chance: random.Random) -> NodeDescription:
    bits = NODE_PRODUCTS[node.product].chips
    mask = (1 << bits) - 1
    chips = chance.choice((mask, mask, mask & ~1, mask >> 1, mask & 0x5555, mask << 1 | 1))
    return msgspec.structs.replace(node, chips=chips, allocatable=chips.bit_count())


def _with_labels(node: NodeDescription, chance: random.Random, traits: tuple[str, ...]) -> NodeDescription:
    labels = dict(node.labels)
    if "share-labels" in traits and LABEL_CHIP_MEMORY in labels and chance.random() < 0.8:
        if chance.random() < 0.5:
            labels[LABEL_SOFT_SHARE] = "false" if labels.get(LABEL_SOFT_SHARE) == "true" else "true"
        else:
            labels[LABEL_CHIP_MEMORY] = chance.choice(("64G", "8G", "16G", "much"))
    elif "trees" in traits and chance.random() < 0.7:
        labels["rack"] = f"r{chance.randint(0, 2)}"
        labels["row"] = f"w{chance.randint(0, 1)}"
        labels[TREE] = chance.choice(("default", "default", "other", "unknown"))
        if chance.random() < 0.2:
            del labels["row"]
    else:
        labels["zone"] = chance.choice(ZONES)
        if "constraints" in traits and chance.random() < 0.3:
            del labels["zone"]
    return msgspec.structs.replace(node, labels=labels)
