"""Mode of the cells that tests start as a whole: a process for each service, or one process for all of them."""

from dataclasses import dataclass
from typing import Final


@dataclass
class CellMode:
    """Mode of all cells of this run of tests.

    Attributes:
        is_one: All services of a cell are one process; set by the option ``--cells one``.
    """

    is_one: bool = False


CELLS: Final = CellMode()
