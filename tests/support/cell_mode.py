"""Mode of the cells that tests start as a whole: a process for each service, or one process for all of them."""

from dataclasses import dataclass
from typing import Final


@dataclass
class CellMode:
    """Mode of all cells of this run of tests.

    Attributes:
        is_one: All services of a cell are one process, also those that commands start; set by ``--cells one``.
        is_joined: The services of this test's cells are one process, because the test is not about processes. One
            process takes a quarter of the CPU time that six take to start.
    """

    is_one: bool = False
    is_joined: bool = False

    @property
    def shares_process(self) -> bool:
        """Whether the services of a cell that a test makes are one process."""
        return self.is_one or self.is_joined


CELLS: Final = CellMode()
