"""How full a cell is: chips of its nodes by what they are for, of the whole cell and by place."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.cluster.node_table import NodeTable
from berth.schemas.facts import NodeHealth
from berth.schemas.programs.lists import PlaceUse

_PARTS: Final = ("used", "free", "unhealthy", "drained")
_Counts = npt.NDArray[np.int64]


class CellUse(NamedTuple):
    """Chips of a cell. Places are by name; nodes without such a place are in none.

    Attributes:
        total: The whole cell.
        products: By product, also those of nodes that have none.
        leaves: By leaf switch.
        superpods: By SuperPoD.
    """

    total: PlaceUse
    products: list[PlaceUse]
    leaves: list[PlaceUse]
    superpods: list[PlaceUse]


def cell_use(table: NodeTable, now_ms: int) -> CellUse:
    """Chips of the nodes that are there.

    Each chip counts once: for those who have it, else as what keeps new work from it, else as free.

    Args:
        table: The nodes.
        now_ms: The time: drains that begin later do not count.
    """
    rows = np.flatnonzero(table.present[: len(table)])
    counts = _counts(table, rows, now_ms)
    products = list(dict.fromkeys(key.product for key in table.classes))
    product_of = np.array([products.index(key.product) for key in table.classes] or [0], np.int64)
    (total,) = _uses([""], np.zeros(len(rows), np.int64), counts) or [PlaceUse()]
    return CellUse(
        total,
        _uses(products, product_of[table.node_class[rows]], counts),
        _uses(table.leaves, table.leaf[rows].astype(np.int64), counts),
        _uses(table.superpods, table.superpod[rows].astype(np.int64), counts),
    )


def is_whole_free(place: PlaceUse) -> bool:
    """Whether all nodes of a place are free and take new work."""
    return place.nodes == place.nodes_free


def _counts(table: NodeTable, rows: npt.NDArray[np.int64], now_ms: int) -> dict[str, _Counts]:
    """What each row adds to each field."""
    ready = np.array([key.ready for key in table.classes] or [True], np.bool_)[table.node_class[rows]]
    cordoned = np.array([key.cordoned for key in table.classes] or [False], np.bool_)[table.node_class[rows]]
    drained = np.zeros(len(table), np.bool_)
    drained[table.drained_rows(now_ms)] = True
    is_broken = ~ready | (table.level[rows] >= NodeHealth.NO_NEW_WORK)
    is_left = cordoned | drained[rows]
    chips = table.chips[rows]
    used = (table.used[rows] | table.releasing[rows]) & chips
    free = table.free[rows] & chips & ~used
    none = np.uint64(0)
    all_of = np.where(is_broken, chips, none)
    unhealthy = (table.unhealthy[rows] & chips | all_of) & ~used
    left = np.where(is_left, chips, none) & ~used & ~unhealthy
    free &= ~unhealthy & ~left
    takes_work = ~(is_broken | is_left)
    found = {
        "nodes": np.ones(len(rows), np.int64),
        "nodes_ready": takes_work.astype(np.int64),
        "nodes_free": (takes_work & (chips != none) & (free == chips)).astype(np.int64),
        "chips": _bits(chips),
        "used": _bits(used),
        "free": _bits(free),
        "unhealthy": _bits(unhealthy),
        "drained": _bits(left),
    }
    # chips that pods of others have, and nobody knows which: any of those that are free
    unnamed = np.minimum(np.maximum(table.chips_others[rows], 0), found["free"])
    found["used"], found["free"] = found["used"] + unnamed, found["free"] - unnamed
    found["nodes_free"] = np.where(unnamed > 0, 0, found["nodes_free"])
    found["withheld"] = found["chips"] - sum(found[part] for part in _PARTS)
    return found


def _bits(masks: npt.NDArray[np.uint64]) -> _Counts:
    return np.bitwise_count(masks).astype(np.int64)


def _uses(names: Sequence[str], place_of: _Counts, counts: dict[str, _Counts]) -> list[PlaceUse]:
    """Sums by place, by name; places without a node are left out.

    Args:
        names: Of the places.
        place_of: ``int64[rows]``, index of the place of each row; -1 for none.
        counts: Of each row.
    """
    has_place = place_of >= 0
    at = place_of[has_place]
    sums = {
        field: np.bincount(at, weights=values[has_place], minlength=len(names)).astype(np.int64).tolist()
        for field, values in counts.items()
    }
    found = [
        PlaceUse(name=name, **{field: values[index] for field, values in sums.items()})
        for index, name in enumerate(names)
        if sums["nodes"][index]
    ]
    return sorted(found, key=attrgetter("name"))
