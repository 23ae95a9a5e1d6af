"""Map of a cluster at a moment: a row a leaf switch, a cell a node, coloured by its chips in use.

Cells are drawn once, and coloured anew for each frame. Import it as :mod:`berth.cli.drawing`.
"""

from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from berth.cli.drawing import rendered, styled, title_of
from berth.core.course import Course
from berth.core.figures import OUT

_WIDE: Final = 32
"""Most nodes in a row; those of a larger leaf, or of none, go on in the next."""
_TALL: Final = 24
"""Rows of a block; blocks stand side by side."""
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
    """Where the nodes of a map are.

    Attributes:
        row: Row of each node, in the order of the course.
        column: Column of each.
        names: Row, first column and name of each leaf.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    names: list[tuple[int, int, str]]


def cells_of(leaves: list[str], nodes: int) -> Cells:
    """Where nodes are put, which come by leaf switch; ``leaves`` is the leaf of each, or empty."""
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
    """The map of a course, one frame at a time; the course has nodes and frames."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._cells = cells_of(course.leaves, len(course.nodes))
        self._most = max(1, *course.node_chips)
        tall, wide = int(self._cells.row.max()) + 1, int(self._cells.column.max()) + 2
        self._shape = (tall, wide)
        cell_in = min(_CELL_IN, _WIDTH_IN / wide)
        with styled():
            self.figure = Figure(figsize=(max(4.5, cell_in * wide), 1.3 + cell_in * tall), layout="constrained")
            axes = self.figure.subplots()
            colours = colormaps["YlGnBu"].resampled(self._most + 1).with_extremes(over=_OUT_COLOUR, bad="#ffffff00")
            self._mesh = axes.pcolormesh(
                np.full(self._shape, np.nan), cmap=colours, vmin=-0.5, vmax=self._most + 0.5, edgecolors="#ffffff"
            )
            for row, first, name in self._cells.names:
                axes.text(first - 0.3, row + 0.5, name, ha="right", va="center", fontsize=7)
            axes.set_aspect("equal")
            axes.invert_yaxis()
            axes.set_axis_off()
            self._title = axes.set_title(title_of(course), fontsize="medium", loc="left")
            step = -(-self._most // 8)
            self.figure.colorbar(
                self._mesh,
                ax=axes,
                location="bottom",
                label="chips in use on a node",
                ticks=range(0, self._most + 1, step),
                aspect=40,
                fraction=0.05,
                pad=0.02,
            )
            out = Patch(facecolor=_OUT_COLOUR)
            self.figure.legend([out], ["takes no work"], loc="outside lower right", fontsize="small")

    def show(self, index: int, words: str) -> Figure:
        """Colour the cells as in a frame; ``words`` say when it was."""
        used = np.frombuffer(self._course.frames[index].used, np.uint8).astype(np.float64)
        grid = np.full(self._shape, np.nan)
        grid[self._cells.row, self._cells.column] = np.where(used == OUT, self._most + 1, np.minimum(used, self._most))
        self._mesh.set_array(grid)
        self._title.set_text(f"{title_of(self._course)}, {words}")
        return self.figure

    def png(self, index: int, words: str) -> bytes:
        """A frame as PNG; all frames of a course have the same size."""
        data = rendered(self.show(index, words), "png")
        self.figure.set_layout_engine("none")
        return data
