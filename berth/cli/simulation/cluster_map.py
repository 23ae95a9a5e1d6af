"""Map of a cluster at one time: one row per leaf switch, one cell per node, coloured by its chips in use.

Import it as :mod:`berth.cli.simulation.drawing`.
"""

from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from berth.cli.simulation.drawing import styled, title_of
from berth.cli.simulation.palette import FAINT, WIDE, Look
from berth.core.simulation.statistics import OUT
from berth.core.simulation.timeline import Timeline

_WIDE: Final = 32
"""Maximum number of nodes in a row; those of a larger leaf, or of none, continue in the next row."""
_TALL: Final = 24
"""Rows of a block; blocks are side by side."""
_NARROW: Final = 16
"""Minimum width in cells, which the scale below them needs."""
_GAP: Final = 0.1
"""Between cells; in cells."""
_CELL_IN: Final = 0.2
_WIDTH_IN: Final = 12.0
"""Most; cells shrink to it."""
_NAMED_BLOCKS: Final = 3
"""With more blocks, rows have no names."""
_NAME_CELLS: Final = 6
"""Room for the name of a row."""
_NAME_LETTERS: Final = 14
_OUT_COLOUR: Final = "#8c8c8c"


class Cells(NamedTuple):
    """Positions of the nodes of a map.

    Attributes:
        row: Row of each node, in the order of the course.
        column: Column of each.
        names: Row, first column and name of each leaf.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    names: list[tuple[int, int, str]]


def cells_of(leaves: list[str], nodes: int) -> Cells:
    """Positions of nodes that are ordered by leaf switch; ``leaves`` is the leaf of each, or empty."""
    lines: list[tuple[str, int]] = []
    for name, members in groupby(leaves or [""] * nodes):
        count = len(list(members))
        lines += [(name if not start else "", min(_WIDE, count - start)) for start in range(0, count, _WIDE)]
    blocks = -(-len(lines) // _TALL)
    tall = -(-len(lines) // max(1, blocks))
    margin = _NAME_CELLS if blocks <= _NAMED_BLOCKS and any(leaves) else 1
    wide = max((count for _, count in lines), default=1) + margin
    rows: list[int] = []
    columns: list[int] = []
    names: list[tuple[int, int, str]] = []
    for number, (name, count) in enumerate(lines):
        row, first = number % tall, number // tall * wide + margin
        rows += [row] * count
        columns += range(first, first + count)
        if name and margin > 1:
            names.append((row, first, name if len(name) <= _NAME_LETTERS else f"..{name[2 - _NAME_LETTERS :]}"))
    return Cells(np.array(rows, np.int64), np.array(columns, np.int64), names)


class ClusterMap:
    """The map of a course at a frame; the course has nodes and frames.

    Args:
        timeline: The course.
        look: Its colours; the map is as wide as its nodes need, in any window.
    """

    def __init__(self, timeline: Timeline, look: Look = WIDE) -> None:
        self._course = timeline
        self._look = look
        self._cells = cells_of(timeline.leaves, len(timeline.nodes))
        self._most = max(1, *timeline.node_chips)
        tall, wide = int(self._cells.row.max()) + 1, max(_NARROW, int(self._cells.column.max()) + 2)
        cell_in = min(_CELL_IN, _WIDTH_IN / wide)
        with styled(look):
            self.figure = Figure(figsize=(max(4.5, cell_in * wide), 1.25 + cell_in * tall), layout="constrained")
            axes = self.figure.subplots()
            colours = colormaps["YlGnBu"].resampled(self._most + 1).with_extremes(over=_OUT_COLOUR)
            self._squares = PolyCollection(
                _squares(self._cells),
                cmap=colours,
                norm=Normalize(-0.5, self._most + 0.5),
                edgecolor=look.shade(FAINT),
                linewidth=0.4,
            )
            axes.add_collection(self._squares)
            axes.set(xlim=(0, wide), ylim=(tall, 0))
            for row, first, name in self._cells.names:
                axes.text(first - 0.3, row + 0.5, name, ha="right", va="center", fontsize=7)
            axes.set_aspect("equal")
            axes.set_axis_off()
            self.figure.colorbar(
                self._squares,
                ax=axes,
                location="bottom",
                label="chips in use on a node",
                ticks=range(0, self._most + 1, -(-self._most // 8)),
                aspect=40,
                fraction=0.05,
                pad=0.02,
            )

    def show(self, index: int, words: str) -> Figure:
        """The whole map at a frame; ``words`` is its time."""
        self._colour(index)
        with styled(self._look):
            title = f"{title_of(self._course)}, {words}"
            self.figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
            if OUT in self._course.frames[index].used:
                out = Patch(facecolor=_OUT_COLOUR)
                self.figure.legend([out], ["takes no work"], loc="outside lower right", fontsize="small")
        return self.figure

    def _colour(self, index: int) -> None:
        """Colour the cells as in a frame."""
        used = np.frombuffer(self._course.frames[index].used, np.uint8).astype(np.float64)
        self._squares.set_array(np.where(used == OUT, self._most + 1, np.minimum(used, self._most)))


def _squares(cells: Cells) -> list[NDArray[np.float64]]:
    """Corners of each cell, with a gap between neighbours."""
    corners = np.array([(_GAP, _GAP), (1, _GAP), (1, 1), (_GAP, 1)])
    return [corners + place for place in np.stack([cells.column, cells.row], axis=1)]
