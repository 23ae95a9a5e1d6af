"""A command that goes on tells users that NATS is gone, and goes on when it is back."""

from pathlib import Path
from typing import Final

from berth.cli.link import BACK, LOST
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.status import JobStatus, Phase
from tests.support.live_command import Live, live

CELL: Final = "outage"


async def publish(url: str, phase: Phase) -> None:
    status = JobStatus("ml", "train", "u1", phase=phase, since_ms=1, at_ms=1, sentence="no node has 8 free chips")
    async with await NatsBus.connect(url, CELL, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await bus.publish(bus.subjects.status("ml", "train"), encode(status))


async def error_line(command: Live) -> str:
    assert command.process.stderr is not None
    return (await command.process.stderr.readline()).decode().strip()


async def test_a_list_in_a_pipe_tells_it_once_and_goes_on(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        await publish(server.url, "waiting")
        async with live("jobs", "--watch", url=server.url, cell=CELL) as listing:
            await listing.lines(2)
            await server.kill()
            assert await error_line(listing) == LOST
            await server.restart()
            assert await error_line(listing) == BACK
            await publish(server.url, "running")
            assert (await listing.lines(1))[0].endswith("ml/train is running: no node has 8 free chips")
            assert await listing.interrupted() == 130


async def test_a_terminal_shows_it_until_the_server_is_back(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        await publish(server.url, "waiting")
        for words, first in ((("jobs", "--watch"), "waiting"), (("wait", "ml/train", "--for", "finished"), "waiting")):
            async with live(*words, url=server.url, cell=CELL, on_terminal=True) as command:
                await command.shows(first)
                await server.kill()
                await command.shows(LOST[:40])
                await server.restart()
                await publish(server.url, "waiting")
                assert await command.interrupted() == 130
                assert BACK not in command.out, "the line is gone instead"
