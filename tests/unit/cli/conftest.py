"""The commands on a cell that a module stores as its fixture ``cell``."""

import pytest

from tests.support.cells import Cell
from tests.support.own_command import OwnCommand


@pytest.fixture
def berth(cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> OwnCommand:
    """The command, with the cell of the module on its bus."""
    return OwnCommand(monkeypatch, capsys, cell.server)
