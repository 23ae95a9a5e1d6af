"""The dispatcher dies before and after each of its writes, again and again, while clients go on."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from berth.cli.recordings.replay import replay_file
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.fault_points import POINTS
from berth.runtime.recording import record
from berth.schemas.subjects import StreamName
from tests.support.load import Load
from tests.support.processes import Service, Services, services
from tests.support.waiting import until
from tests.support.watch import Watch, verify

KILLED: Final = -9
UNREACHED: Final = 1
COUNTS: Final = {
    "lease": (1, 2, 3),
    "epoch": (1, 1, 1, 1),
    "snapshot": (1, 2, 3, 5),
    "purge": (1, 2, 3),
    "dead": (1, 2, 3),
    "append": (1, 2, 3, 7),
    "fact": (1, 3, 11, 25),
    "status": (1, 3, 11, 25),
    "expire": (1, 2, 3),
}
"""At which passings of a point to die. The second lease is a renewal; a second epoch would need a second reign."""
CELLS: Final = 6
SHARDS: Final = (0, 0, 0, 0, 1, 2)
TRIMMED: Final = (1, 4)
"""Cells where old facts are dropped during the storm, so that starts need LATEST and ledgers are pruned. Their server
is left alone: an observer that is cut off misses what is pruned meanwhile."""
BLOWS: Final = (12, 24, 36)
"""After so many deaths of dispatchers the server of the other cells dies too."""
FACTS_KEPT_BYTES: Final = 8_000


def strikes() -> list[str]:
    """All points with their counts, so mixed that each cell gets many points."""
    return [
        f"{point}:{counts[turn]}"
        for turn in range(4)
        for point in POINTS
        if turn < len(counts := COUNTS[point.partition(".")[0]])
    ]


class Storm:
    """One cell in the storm."""

    def __init__(self, number: int, made: Services, points: list[str]) -> None:
        self.cell = f"storm-{number}"
        self.points = points
        self.killed: Counter[str] = Counter()
        self.is_trimmed = number in TRIMMED
        self.seed = number
        self.unreached = 0
        """Starts that found no server."""
        shards = SHARDS[number]
        self.dispatcher = made.service(
            "dispatcher",
            self.cell,
            shards=shards,
            lease_s=1,
            snapshot_records=10,
            snapshot_synced_s=0,
            intake_batch_max=8,
            tick_s=0.1,
            gather_timeout_s=0.5,
            expire_after_s=3,
            expire_every_s=0.2,
            decisions={"round_gangs_max": 4, "shard_retry_ms": 100, "tombstone_after_ms": 300},
        )
        self.scorers: list[Service] = [
            made.service("scorer", self.cell, label=str(shard), shard=shard, shards=shards) for shard in range(shards)
        ]

    async def run(self, url: str, file: Path) -> None:
        async with await NatsBus.connect(url, self.cell, name="storm", inbox="_INBOX.person.storm") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            load = Load(watch, seed=self.seed)
            for scorer in self.scorers:
                scorer.start()
            async with asyncio.TaskGroup() as group:
                working = group.create_task(load.run())
                await self._strike(bus, watch)
                load.stop()
                await working
            for service in (self.dispatcher, *self.scorers):
                if not service.is_running:
                    service.start()
            await load.settle()
            for service in (self.dispatcher, *self.scorers):
                await service.stop()
            await verify(watch, load.acked)
            await watch.stop()
            await record(bus, SystemClock(), file)
            again = replay_file(file, SystemClock())
            assert again.is_identical, again
            assert again.replayed.digest == again.replayed.recorded_digest
            assert again.replayed.placed > 0 or self.is_trimmed
            if self.is_trimmed:
                assert (await bus.state(StreamName.LEDGER)).first_seq > 1, "the ledger was not pruned"
        assert self.dispatcher.starts == len(self.points) + self.unreached + 1

    async def _strike(self, bus: NatsBus, watch: Watch) -> None:
        for number, point in enumerate(self.points):
            self.dispatcher.start(fault_point=point)
            while (code := await self.dispatcher.ended()) == UNREACHED and not self.is_trimmed:
                self.unreached += 1
                self.dispatcher.start(fault_point=point)
            assert code == KILLED, self.dispatcher.log()
            self.killed[point.partition(":")[0]] += 1
            if self.is_trimmed and number % 2:
                await watch.reach_heads()
                await bus.ensure_streams(max_bytes={StreamName.FACTS: FACTS_KEPT_BYTES})
            if self.scorers and number % 4 == 1:
                await self.scorers[0].kill()
                self.scorers[0].start()


async def strike_server(server: EmbeddedServer, storms: list[Storm], blows: list[int]) -> None:
    """Kill the server now and then, until as often as it is to be."""
    for blow in BLOWS:
        await until(
            lambda: sum(storm.killed.total() for storm in storms) >= blow,  # noqa: B023  # waited for here
            deadline_s=150,
            what=f"{blow} deaths",
        )
        await server.restart()
        blows.append(blow)


@pytest.mark.timeout(200)
async def test_no_job_is_lost_and_none_placed_twice_wherever_the_dispatcher_dies(
    own_server: EmbeddedServer, tmp_path: Path
) -> None:
    points = strikes()
    blows: list[int] = []
    async with EmbeddedServer(tmp_path / "calm") as calm:
        with services(tmp_path, own_server.url) as made, services(tmp_path, calm.url) as made_calm:
            storms = [
                Storm(number, made_calm if number in TRIMMED else made, points[number::CELLS])
                for number in range(CELLS)
            ]
            async with asyncio.TaskGroup() as group:
                for storm in storms:
                    url = calm.url if storm.is_trimmed else own_server.url
                    group.create_task(storm.run(url, tmp_path / f"{storm.cell}.berthlog"), name=storm.cell)
                group.create_task(strike_server(own_server, storms, blows), name="server")
    killed = sum((storm.killed for storm in storms), Counter[str]())
    assert killed.total() == len(points) >= 50
    assert set(killed) == set(POINTS)
    assert len(blows) == len(BLOWS)
