"""Jobs come and go: what a cell keeps of those that are over does not grow with their number."""

import asyncio
from collections import Counter

import msgspec

from berth.schemas.envelope import decode
from berth.schemas.status import SnapshotEnd
from tests.sim.cell import NAME, CellSettings
from tests.sim.loop import SimLoop
from tests.sim.story import Event, Story
from tests.sim.world import World

GENERATIONS = 5
FACTS_OF_CLUSTER = 10
JOBS = 3
KEPT_S = 20
GONE_S = 25
"""Longer than streams keep anything, as in a real cell."""
LIFE_S = 45.0
"""Longer than all that is kept of a job, from its start on."""


def kept_by(world: World) -> Counter[str]:
    """Messages by stream, and bytes of the newest snapshot."""
    server = world.cell.server
    found: Counter[str] = Counter()
    for name in server.streams:
        messages = server.stream(name).messages.values()
        stream = name.removesuffix(f"_{NAME}")
        found[stream] = len(messages)
        ends = [decode(one.data, SnapshotEnd) for one in messages if one.subject.endswith(".end")]
        if ends:
            found["bytes of a snapshot"] = max(ends, key=lambda end: end.ledger_seq).bytes_total
    return found


async def live(world: World, cells: list[Counter[str]]) -> None:
    await world.begin()
    await asyncio.sleep(2)
    for name, stream in world.cell.server.streams.items():
        if stream.spec.max_age_s:
            world.cell.server.streams[name].spec = msgspec.structs.replace(stream.spec, max_age_s=KEPT_S)
    for generation in range(GENERATIONS):
        for _ in range(JOBS):
            world.act(Event(0, "job", one=1))
        await asyncio.sleep(LIFE_S / 2)
        for number in range(JOBS):
            world.act(Event(0, "end", one=generation * JOBS + number))
        await asyncio.sleep(LIFE_S)
        cells.append(kept_by(world))


def test_a_cell_keeps_nothing_of_old_jobs() -> None:
    story = Story(0, CellSettings(dispatchers=2, decisions={"tombstone_after_ms": 2000}, snapshot_records=10), ())
    loop = SimLoop(7, callbacks_max=5_000_000)
    world = World(loop, 7, story)
    world.cell.server.gone_s = GONE_S
    cells: list[Counter[str]] = []
    try:
        loop.run_until_complete(live(world, cells))
    finally:
        for process in list(world.cell.processes.values()):
            process.die("the end")
        loop.kill(loop.main)
        loop.bury()
        loop.close()
    assert world.jobs == GENERATIONS * JOBS
    assert world.observer.records, "nothing was decided"
    assert max(cell["LATEST"] for cell in cells) < 3 * JOBS + FACTS_OF_CLUSTER, "facts of old jobs stay"
    first, last = cells[1], cells[-1]
    assert last["LATEST"] == first["LATEST"]
    assert [last[stream] for stream in ("FACTS", "STATUS", "INTAKE", "SUMMARY", "DEAD")] == [0] * 5
    assert last["LEDGER"] <= 10
    assert last["SNAPSHOT"] <= 8
    # Numbers of records and facts take a byte more from time to time.
    assert abs(last["bytes of a snapshot"] - first["bytes of a snapshot"]) < 16
