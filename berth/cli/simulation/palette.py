"""Looks of charts: colours and widths, for light and dark pages, wide and narrow ones.

Colours of lines are far apart for people without red or green cones too; lines also differ in their dashes.
All of them have a contrast of at least 3 to 1 to the ground, except those of ordered bands, which have an outline.
"""

from typing import Final, NamedTuple

INK: Final = "#1b1b1b"
GROUND: Final = "#ffffff"
FAINT: Final = "#5c5c5c"
GRID: Final = "#e0e0e0"
USE: Final = "#8494a4"
BLUE: Final = "#2079fc"
RED: Final = "#8f0c00"
GREEN: Final = "#00a36f"
PINK: Final = "#a9008d"
GOLD: Final = "#b18e1b"
VIOLET: Final = "#1700ed"
LINES: Final = (BLUE, RED, GREEN, GOLD, PINK, VIOLET, INK)
"""Of lines, in order."""
BANDS: Final = ("#deebf7", "#9ecae1", "#4292c6", "#08306b")
"""Of ordered bands, least first."""
_WIDE_IN: Final = 10.0
"""Width of a wide figure; inches."""
_NARROW_IN: Final = 3.9
"""Width of a figure for a phone."""
DARK: Final = {
    INK: "#e6e6e6",
    GROUND: "#16181b",
    FAINT: "#a8adb3",
    GRID: "#33373c",
    USE: "#6b7b8b",
    BLUE: "#5782e2",
    RED: "#e81200",
    GREEN: "#58f388",
    PINK: "#d12978",
    GOLD: "#fed700",
    VIOLET: "#861dfe",
    BANDS[0]: "#22384d",
    BANDS[1]: "#2f6da3",
    BANDS[2]: "#6baed6",
    BANDS[3]: "#deebf7",
}
"""Each colour on a dark page."""


class Look(NamedTuple):
    """For which page a figure is drawn.

    Attributes:
        is_narrow: For a phone: panels are below one another.
        is_dark: On a dark ground.
    """

    is_narrow: bool = False
    is_dark: bool = False

    @property
    def width_in(self) -> float:
        """Width of the figure."""
        return _NARROW_IN if self.is_narrow else _WIDE_IN

    @property
    def letters(self) -> int:
        """Letters that have room in a line."""
        return 44 if self.is_narrow else 120

    def shade(self, colour: str) -> str:
        """A colour of the palette on this ground; another colour stays."""
        return DARK.get(colour, colour) if self.is_dark else colour


WIDE: Final = Look()
"""As files are drawn."""


def variable(colour: str) -> str:
    """Name of the CSS variable of a colour."""
    return f"--c{colour[1:]}"


def css(look: Look) -> str:
    """Declarations of all variables."""
    return " ".join(f"{variable(colour)}: {look.shade(colour)};" for colour in DARK)
