"""Ranges of a stream: all of it, in order, by a reader that is gone afterwards."""

from collections.abc import Sequence
from typing import Any

import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.subjects import StreamName
from tests.support.fake_bus import FakeBus, FakeFollower
from tests.support.stored_cells import grown


class Watched(FakeBus):
    """A client that remembers which streams were followed, and how."""

    def __init__(self, bus: FakeBus) -> None:
        super().__init__(bus.server, bus.subjects.cell)
        self.followed: list[StreamName] = []

    def follow(self, stream: StreamName, **how: Any) -> FakeFollower:  # noqa: ANN401  # as there
        self.followed.append(stream)
        return super().follow(stream, **how)


async def read(bus: FakeBus, stream: StreamName, start: int, end: int) -> list[Stored]:
    found: Sequence[Stored] = [stored async for piece in pieces(bus, stream, start, end) for stored in piece]
    return list(found)


@pytest.mark.parametrize("stream", [StreamName.LEDGER, StreamName.FACTS])
async def test_a_range_is_read_by_one_follower_of_its_stream(stream: StreamName) -> None:
    cell = await grown("one", "two")
    bus = Watched(cell.user)
    before = len(cell.server.followers)
    state = await bus.state(stream)
    found = await read(bus, stream, 2, state.last_seq)
    assert [stored.sequence for stored in found] == list(range(2, state.last_seq + 1))
    assert bus.followed == [stream], "skips that are written later do not matter to it"
    assert len(cell.server.followers) == before
    await cell.close()


async def test_a_range_beyond_the_end_is_not_kept() -> None:
    cell = await grown("one")
    state = await cell.user.state(StreamName.LEDGER)
    with pytest.raises(NotKeptError):
        await read(cell.user, StreamName.LEDGER, 1, state.last_seq + 1)
    await cell.close()
