"""A local cell is ready once its dispatcher leads, and its scorers, its API and its cluster answer."""

from pathlib import Path

import pytest

from berth.lab.cells.fleet import DEMO_CLUSTER, Fleet
from berth.runtime.bus.process_stats import ProcessReport, ProcessStats
from tests.support.fake_bus import FakeBus, FakeServer

SCORERS = [ProcessStats("berth-scorer", f"s{shard}", data=ProcessReport()) for shard in range(2)]
API = ProcessStats("berth-api", "a", data=ProcessReport())
STARTING = ProcessReport("the events of what is stored are stored")


@pytest.mark.parametrize(
    ("processes", "is_ready"),
    [
        ([*SCORERS, API], True),
        (SCORERS, False),
        ([*SCORERS, ProcessStats("berth-api", "a", data=STARTING)], False),
        ([*SCORERS, ProcessStats("berth-api", "a")], False),
        ([SCORERS[0], API], False),
        ([SCORERS[0], ProcessStats("berth-scorer", "s1", data=STARTING), API], False),
    ],
    ids=["all", "no api", "an api that starts", "an api that says nothing", "one scorer", "a scorer that starts"],
)
async def test_a_cell_is_ready_once_all_its_processes_say_so(
    tmp_path: Path, processes: list[ProcessStats], *, is_ready: bool
) -> None:
    fleet = Fleet(tmp_path, topology=DEMO_CLUSTER, shards=2, print_progress=lambda _: None, cell="default")
    server = FakeServer()
    server.processes = processes
    async with FakeBus(server, "default") as bus:
        await bus.ensure_streams()
        await bus.append(b"an epoch", expected_seq=0)
        served = await bus.serve(bus.subjects.sim("counts"), counts)
        assert await fleet._is_ready(bus) is is_ready
        await served.stop()


async def counts(_: bytes) -> bytes:
    return b"{}"
