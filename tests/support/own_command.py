"""The command ``berth`` in the process of the test, on a cell in memory.

Call it outside an event loop, for it makes one.
"""

from collections.abc import Sequence

import pytest

from berth.cli.app import call
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer


class OwnCommand:
    """What calls the command.

    Args:
        monkeypatch: Puts the server in the place of NATS.
        capsys: Holds what is printed.
        server: The server.
        client: Class of the connection, for tests that answer a command.
        cell: Name of the cell.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        server: FakeServer,
        client: type[FakeBus] = FakeBus,
        cell: str = "cell",
    ) -> None:
        self._capsys = capsys
        self._server = server
        self._client = client
        self._cell = cell
        monkeypatch.setattr("berth.cli.cell.NatsBus", self)

    async def connect(self, servers: Sequence[str], cell: str, **options: object) -> FakeBus:
        """What commands call for a connection."""
        del servers, options  # memory has neither addresses nor rights
        return self._client(self._server, cell)

    def __call__(self, *words: str, with_cell: bool = True) -> tuple[int, str, str]:
        """Exit code of a command, and what it printed to stdout and to stderr."""
        self._capsys.readouterr()
        code = call([*words, "--cell", self._cell] if with_cell else [*words])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err
