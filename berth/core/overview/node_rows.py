"""Rows of nodes: what the page shows of each, and which of them changed."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from berth.core.cluster.node_table import NodeTable
from berth.core.overview.numbers import Numbers
from berth.core.overview.owners import Owners
from berth.core.state.cell import State
from berth.schemas.facts import NodeHealth
from berth.schemas.page.view import NodeRow

NOT_READY: Final = 1
CORDONED: Final = 2
GONE: Final = 4
_COLUMNS: Final = (
    "present", "node_class", "superpod", "rack", "leaf", "chips", "used", "releasing", "unhealthy", "network",
    "withheld", "level", "chips_others",
)  # fmt: skip
_LEVELS: Final = {int(level): level.name.lower().replace("_", "-") for level in NodeHealth}


class ChangedRows:
    """Finds rows of the node table that changed, by comparison with a copy of their columns.

    Args:
        table: The nodes.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._revision = -1
        self._before: list[npt.NDArray[np.generic]] = []
        self._drained: dict[int, int] = {}

    def find(self) -> list[int]:
        """Rows that changed since the last call, ascending; at first all."""
        table = self._table
        size = len(table)
        if table.revision == self._revision and self._before and len(self._before[0]) == size:
            return []
        self._revision = table.revision
        now: list[npt.NDArray[np.generic]] = [getattr(table, name)[:size].copy() for name in _COLUMNS]
        known = len(self._before[0]) if self._before else 0
        differs = np.zeros(size, np.bool_)
        differs[known:] = True
        for old, new in zip(self._before, now, strict=False):
            differs[:known] |= old != new[:known]
        self._before = now
        if table.drained_ms != self._drained:
            drained = dict(table.drained_ms)
            rows = [row for row in {**self._drained, **drained} if self._drained.get(row) != drained.get(row)]
            differs[rows] = True
            self._drained = drained
        found: list[int] = np.flatnonzero(differs).tolist()
        return found


def is_shown(table: NodeTable, row: int) -> bool:
    """Whether a row is shown: the node is there, or a job still holds chips of it."""
    return bool(table.present[row]) or bool(table.used.item(row) | table.releasing.item(row))


def slots_of(table: NodeTable, row: int) -> int:
    """Chip slots of a node: one more than the highest chip number."""
    return int(table.chips.item(row) | table.used.item(row) | table.releasing.item(row)).bit_length()


def node_row(state: State, row: int, owners: Owners, numbers: Numbers) -> NodeRow:
    """State of a node.

    Args:
        state: The cell.
        row: The node.
        owners: Owners of its chips.
        numbers: Gives jobs their numbers.
    """
    table = state.table
    chips = table.chips.item(row)
    slots = slots_of(table, row)
    number_of, reserved, leaving, sharers = _owned(row, owners, numbers)
    shares = state.shares.nodes.get(row)
    return NodeRow(
        level=_LEVELS.get(table.level.item(row), "ok"),
        flags=_flags(table, row),
        drained_ms=table.drained_ms.get(row, 0),
        owners=[number_of.get(chip, 0) for chip in range(slots)] if number_of else [0] * slots,
        unhealthy=table.unhealthy.item(row) & chips,
        network_unhealthy=table.network.item(row) & chips,
        releasing=table.releasing.item(row) | leaving,
        withheld=table.withheld.item(row) & chips,
        shared=shares.mask if shares is not None else 0,
        reserved=reserved,
        absent=((1 << slots) - 1) & ~chips,
        sharers=sharers,
        unnamed=table.chips_others.item(row),
    )


def _flags(table: NodeTable, row: int) -> int:
    if not table.present[row]:
        return GONE
    key = table.classes[table.node_class.item(row)]
    return (0 if key.ready else NOT_READY) | (CORDONED if key.cordoned else 0)


def _owned(row: int, owners: Owners, numbers: Numbers) -> tuple[dict[int, int], int, int, list[tuple[int, list[int]]]]:
    """The owner of each chip, reserved chips, chips of jobs that leave, and chips with several owners.

    The owner of several is the one with the lowest number, those first that do not just have the chip reserved.
    """
    found: dict[int, set[tuple[bool, int]]] = {}
    reserved = leaving = 0
    for hold in owners.of_row(row).values():
        number = numbers.of(hold.job)
        reserved |= hold.reserved
        leaving |= hold.mask & ~hold.reserved if hold.is_leaving else 0
        for chip in _chips(hold.mask):
            found.setdefault(chip, set()).add((bool(hold.reserved >> chip & 1), number))
    several = [(chip, sorted({number for _, number in have})) for chip, have in sorted(found.items()) if len(have) > 1]
    sharers = [(chip, have) for chip, have in several if len(have) > 1]
    return {chip: min(have)[1] for chip, have in found.items()}, reserved, leaving, sharers


def _chips(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
