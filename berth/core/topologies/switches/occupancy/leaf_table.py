"""Leaf switches (ToR) of a cell as a grid of places: one row per leaf, one column per entry of the leaf's node list.

A *cell* is the number of a place: ``leaf * width + place``. Leaves and places keep the order of their source, which
decides ties between equal leaves.

Source: docs/reference/switches.md, "Topology" and "Partitions of idle nodes".
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from berth.core.cluster.node_table import NodeTable
from berth.schemas.envelope import DecodeError
from berth.schemas.facts import Leaf, TopologySeen

SINGLE_LAYER: Final = "single_layer"
_POSITION_MAX: Final = (1 << 15) - 1

Grid = npt.NDArray[np.bool_]
"""One bool per place: (leaves, width)."""
Cells = npt.NDArray[np.int32]


class LeafTable:
    """Leaf switches of a topology fact; empty if no topology is known.

    Args:
        leaves: Leaves in the order of their source, valid for :func:`check_topology`.
        places: Most nodes below a leaf; 0 means the length of the longest list.
        is_single_layer: There is no spine above the leaves.
    """

    def __init__(self, leaves: Sequence[Leaf] = (), *, places: int = 0, is_single_layer: bool = False) -> None:
        self.names: list[str] = [leaf.name for leaf in leaves]
        self.index: dict[str, int] = {name: index for index, name in enumerate(self.names)}
        self.width = max((len(leaf.nodes) for leaf in leaves), default=0)
        self.places = places or self.width
        self.is_single_layer = is_single_layer
        self.cell_of: dict[str, int] = {}
        """Cell of each known node."""
        self.slices: Cells = np.zeros((len(leaves), self.width), np.int32)
        """Position of each place: (leaves, width)."""
        self.listed: Grid = np.zeros((len(leaves), self.width), np.bool_)
        """Places that the lists contain; other entries of the grid are padding. Shape (leaves, width)."""
        self.node_names: list[str] = [""] * (len(leaves) * self.width)
        """Node at each cell; empty if there is none."""
        for number, leaf in enumerate(leaves):
            count = len(leaf.nodes)
            self.slices[number, :count] = leaf.positions or range(count)
            self.listed[number, :count] = True
            at = number * self.width
            self.node_names[at : at + count] = leaf.nodes
            self.cell_of.update({name: at + place for place, name in enumerate(leaf.nodes) if name})
        self._rows: Cells = np.full(len(self.node_names), -1, np.int32)
        self._rows_known = -1

    def __len__(self) -> int:
        return len(self.names)

    def leaf_of(self, node: str) -> int:
        """Index of the leaf above a node; -1 if it is not known."""
        cell = self.cell_of.get(node, -1)
        return cell // self.width if cell >= 0 else -1

    def rows(self, table: NodeTable) -> Cells:
        """Row of the node at each cell: ``int32[leaves * width]``; -1 if there is none."""
        if self._rows_known != len(table):
            row_of = table.row_of
            self._rows = np.fromiter((row_of.get(name, -1) for name in self.node_names), np.int32, len(self.node_names))
            self._rows_known = len(table)
        return self._rows

    def usable(self, table: NodeTable, fits: npt.NDArray[np.bool_]) -> Grid:
        """Places whose nodes fit.

        Args:
            table: The nodes.
            fits: ``bool[rows]``, one entry per row of the table.

        Returns:
            ``bool[leaves, width]``.
        """
        rows = self.rows(table)
        if not len(fits):
            return np.zeros_like(self.listed)
        found: Grid = (fits[rows] & (rows >= 0)).reshape(self.listed.shape)
        return found


def leaf_table(fact: TopologySeen) -> LeafTable:
    """Leaf switches of a valid fact."""
    return LeafTable(fact.leaves, places=fact.places, is_single_layer=fact.level == SINGLE_LAYER)


def check_topology(fact: TopologySeen) -> None:
    """Validate a topology fact.

    Raises:
        DecodeError: A leaf or a node occurs twice, a position occurs twice below a leaf or is out of range, a list has
            another length than the list of nodes, a leaf has more nodes than ``places``, or ``places`` is out of range.
    """
    above: dict[str, str] = {}
    seen: dict[str, None] = {}
    if not 0 <= fact.places <= _POSITION_MAX + 1:
        raise DecodeError(
            _error_text("places", fact.places, f"the most nodes below a leaf, at most {_POSITION_MAX + 1}, or 0"),
            kind=TopologySeen.KIND,
        )
    for number, leaf in enumerate(fact.leaves):
        at = f"leaves[{number}]"
        if not leaf.name or leaf.name in seen:
            raise DecodeError(
                _error_text(f"{at}.name", repr(leaf.name), "a name that no other leaf has"), kind=TopologySeen.KIND
            )
        seen[leaf.name] = None
        _check_leaf(leaf, at, fact.places)
        for place, node in enumerate(leaf.nodes):
            if node and node in above:
                raise DecodeError(
                    _error_text(
                        f"{at}.nodes[{place}]", repr(node), f"a node that is not below leaf {above[node]} as well"
                    ),
                    kind=TopologySeen.KIND,
                )
            above[node] = leaf.name


def _check_leaf(leaf: Leaf, at: str, places: int) -> None:
    """Validate the lists of a leaf.

    Raises:
        DecodeError: See :func:`check_topology`.
    """
    count = len(leaf.nodes)
    if places and count > places:
        raise DecodeError(
            _error_text(f"{at}.nodes", f"{count} nodes", f"at most {places} (places)"), kind=TopologySeen.KIND
        )
    if leaf.addresses and len(leaf.addresses) != count:
        raise DecodeError(
            _error_text(f"{at}.addresses", f"{len(leaf.addresses)} addresses", f"{count}, one a node"),
            kind=TopologySeen.KIND,
        )
    if leaf.positions and len(leaf.positions) != count:
        raise DecodeError(
            _error_text(f"{at}.positions", f"{len(leaf.positions)} positions", f"{count}, one a node"),
            kind=TopologySeen.KIND,
        )
    bound = places or _POSITION_MAX + 1
    taken: set[int] = set()
    for place, position in enumerate(leaf.positions):
        if not 0 <= position < bound or position in taken:
            raise DecodeError(
                _error_text(f"{at}.positions[{place}]", position, f"a number of its own from 0 to {bound - 1}"),
                kind=TopologySeen.KIND,
            )
        taken.add(position)


def _error_text(field: str, value: object, expected: str) -> str:
    return f"{field} is {value}: expected {expected}"
