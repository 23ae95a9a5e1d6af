"""Streams, a backup and a recording of one cell of release 0.4: ten jobs that run, one that waits, one snapshot.

The backup has version 1 as the streams have: the command that made it came after 0.4 and before 0.5.0.
"""

import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName, Subjects
from tests.support.fake_server import FakeServer

CELL: Final = "upgraded"
_FOLDER: Final = Path(__file__).parent / "v0.4"
BACKUP: Final = _FOLDER / "cell.backup"
RECORDING: Final = _FOLDER / "cell.berthlog"
_STREAMS: Final = _FOLDER / "cell.streams"


class OldStream(NamedTuple):
    """A stream as the server had it.

    Attributes:
        name: Which one.
        config: Its settings, without the metadata of the server.
        messages: Sequence, subject and bytes.
    """

    name: StreamName
    config: dict[str, Any]
    messages: list[tuple[int, str, bytes]]


def old_streams() -> list[OldStream]:
    """All streams, mirrors after their origins."""
    content = msgspec.msgpack.decode(zlib.decompress(_STREAMS.read_bytes()))
    return [OldStream(StreamName(name), config, messages) for name, config, messages in content]


def in_memory(server: FakeServer, *, is_marked: bool = False) -> None:
    """Let a server have the streams.

    Args:
        server: The server.
        is_marked: As if they were of this release: what is in them tells.
    """
    specs = {spec.name: spec for spec in Subjects(CELL).streams()}
    for one in old_streams():
        name = Subjects(CELL).stream(one.name)
        server.make(name, specs[one.name])
        server.streams[name].is_older = not is_marked
        for sequence, subject, data in one.messages:
            server.streams[name].put(Stored(subject, sequence, data, server.clock.now_ms()), None)


async def on_server(bus: NatsBus) -> None:
    """Let a real server have the streams."""
    for one in old_streams():
        await bus.request(f"$JS.API.STREAM.CREATE.{one.config['name']}", msgspec.json.encode(one.config), timeout_s=5)
        for _, subject, data in one.messages if one.name is not StreamName.LATEST else ():
            await bus.publish(subject, data)
    head = (await bus.state(StreamName.FACTS)).last_seq
    await bus.wait_mirror(StreamName.LATEST, at_least=head, timeout_s=30)
