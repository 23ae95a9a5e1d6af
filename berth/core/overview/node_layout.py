"""Layout: which nodes are shown, where they are, and in which order."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from berth.core.cluster.node_table import NodeTable
from berth.core.overview.node_rows import is_shown, slots_of
from berth.schemas.page.view import Layout, NodePlace

_PARTS: Final = re.compile(r"([0-9]+)")
_Key = tuple[tuple[int, int | str], ...]
_Order = tuple[tuple[bool, _Key], ...]


class Where(NamedTuple):
    """Place of a node; empty where it has none."""

    superpod: str
    rack: str
    leaf: str
    name: str
    product: str
    chips: int


def where(table: NodeTable, row: int) -> Where | None:
    """Place of a node; None for one that is not shown."""
    if not is_shown(table, row):
        return None
    rack, leaf = table.rack.item(row), table.leaf.item(row)
    return Where(
        table.superpod_at(row),
        table.racks[rack] if rack >= 0 else "",
        table.leaves[leaf] if leaf >= 0 else "",
        table.names[row],
        table.product(row),
        slots_of(table, row),
    )


class NodeLayout:
    """Layout of the nodes that are shown.

    Args:
        places: Places by row of the node table.
        before: A layout that may have some of them already.

    Attributes:
        rows: Rows of the node table, in the order of the page.
        index_of: Index in ``rows`` of each.
        layout: As the page gets it.
    """

    def __init__(self, places: Mapping[int, Where], before: "NodeLayout | None" = None) -> None:
        self.places = dict(places)
        known: Mapping[Where, _Order] = before.orders if before is not None else {}
        self.orders: dict[Where, _Order] = {
            place: known[place] if place in known else _order(place) for place in places.values()
        }
        """Sort key of each place: most of the work."""
        self.rows = sorted(places, key=lambda row: self.orders[places[row]])
        self.index_of = {row: index for index, row in enumerate(self.rows)}
        found = [places[row] for row in self.rows]
        superpods, racks = _table(one.superpod for one in found), _table(one.rack for one in found)
        leaves, products = _table(one.leaf for one in found), _table(one.product for one in found)
        self.layout = Layout(
            superpods=list(superpods),
            racks=list(racks),
            leaves=list(leaves),
            products=list(products),
            nodes=[
                NodePlace(
                    one.name,
                    products.get(one.product, -1),
                    superpods.get(one.superpod, -1),
                    racks.get(one.rack, -1),
                    leaves.get(one.leaf, -1),
                    one.chips,
                )
                for one in found
            ],
        )

    def is_moved(self, row: int, place: Where | None) -> bool:
        """Whether a row is elsewhere than in this layout."""
        return self.places.get(row) != place


def _table(names: Iterable[str]) -> dict[str, int]:
    """Index of each name, in the natural order of names; without the empty one."""
    return {name: index for index, name in enumerate(sorted({name for name in names if name}, key=_natural))}


def _order(place: Where) -> _Order:
    """Sort key: by SuperPoD, rack, leaf switch and name; nodes without one behind those with one."""
    return tuple((not name, _natural(name)) for name in (place.superpod, place.rack, place.leaf, place.name))


def _natural(name: str) -> _Key:
    """Sort key in which ``node-9`` comes before ``node-10``; different names have different keys."""
    parts = [(0, int(part)) if part.isdecimal() else (1, part) for part in _PARTS.split(name) if part]
    return (*parts, (2, name))
