"""The server of a local cell is started again however often it ended, unless it ends again and again at once."""

from pathlib import Path

import pytest

from berth.lab.cells.fleet import DEMO_CLUSTER, Fleet
from berth.lab.cells.processes import RESTARTS_MAX, GivenUpError
from berth.runtime.errors import FatalError
from tests.support.clock import ManualClock


class Server:
    """A server that runs until it is told to end, or does not start."""

    def __init__(self, root: Path) -> None:
        self.log_path = root / "nats-server.log"
        self.pid: int | None = 1
        self.starts = 0
        self.fails = False

    async def start(self) -> None:
        self.starts += 1
        if self.fails:
            raise FatalError("nats-server ended with 1: no room")
        self.pid = self.starts


def a_fleet(tmp_path: Path) -> tuple[Fleet, Server, ManualClock, list[str]]:
    lines: list[str] = []
    fleet = Fleet(tmp_path, topology=DEMO_CLUSTER, shards=0, print_progress=lines.append, cell="default")
    server, clock = Server(tmp_path), ManualClock()
    fleet.server = server  # type: ignore[assignment]  # all of a server that a fleet watches
    fleet._clock = clock
    return fleet, server, clock, lines


async def test_ends_that_are_far_apart_never_end_the_cell(tmp_path: Path) -> None:
    fleet, server, clock, lines = a_fleet(tmp_path)
    for number in range(5 * RESTARTS_MAX):
        clock.advance(31)
        server.pid = None
        await fleet._restart_server_if_ended()
        clock.advance(0.25)
        await fleet._restart_server_if_ended()
        assert server.pid is not None
        assert server.starts == number + 1
    assert set(lines) == {"nats-server ended; it is started again in 0.25 s"}


async def test_a_server_that_ends_again_and_again_at_once_ends_the_cell(tmp_path: Path) -> None:
    fleet, server, clock, lines = a_fleet(tmp_path)

    async def end_again_and_again() -> None:
        for _ in range(100):
            server.pid = None
            await fleet._restart_server_if_ended()
            clock.advance(1)

    with pytest.raises(GivenUpError, match="nats-server ended, 6 times in a row; its log is /"):
        await end_again_and_again()
    assert server.starts == RESTARTS_MAX
    assert lines[-1] == "nats-server ended; it is started again in 4 s", "ever longer pauses"


async def test_a_server_that_does_not_start_is_tried_again(tmp_path: Path) -> None:
    fleet, server, clock, _ = a_fleet(tmp_path)
    server.pid, server.fails = None, True
    await fleet._restart_server_if_ended()
    clock.advance(1)
    await fleet._restart_server_if_ended()
    assert server.starts == 1
    server.fails = False
    clock.advance(1)
    await fleet._restart_server_if_ended()
    assert server.pid is not None
    server.pid, server.fails = None, True

    async def look_again_and_again() -> None:
        for _ in range(100):
            await fleet._restart_server_if_ended()
            clock.advance(1)

    with pytest.raises(GivenUpError, match="no room, 6 times in a row"):
        await look_again_and_again()
