"""``compose.yaml`` at work: three NATS nodes and the services place jobs, also after a node has died.

Excluded: the image and the containers themselves, which need a container engine.
"""

import asyncio
import secrets
from collections import Counter
from pathlib import Path

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import StreamState
from berth.runtime.errors import TransientError
from berth.schemas.envelope import decode
from berth.schemas.intake import JobRequest
from berth.schemas.simulation import SimCounts
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.compose import ROOT, Composed, composed
from tests.support.load import give_jobs, status
from tests.support.waiting import SLACK, pause, until

FILE = (ROOT / "compose.yaml").read_text("utf-8")
HAS_PLACE = {"running", "succeeded"}


class Discovered(msgspec.Struct):
    """Answer to ``$SRV.PING``."""

    name: str
    metadata: dict[str, str]


async def discovered(client: Client, count: int) -> Counter[tuple[str, str]]:
    """Name and cell of all processes that answer; waits for ``count``."""
    found: list[Discovered] = []

    async def take(message: Msg) -> None:
        found.append(msgspec.json.decode(message.data, type=Discovered))

    inbox = f"_INBOX.person.test.r.{secrets.token_hex(8)}"
    await client.subscribe(inbox, cb=take)
    await client.publish("$SRV.PING", b"", reply=inbox)
    await until(lambda: len(found) >= count, deadline_s=10, what=f"{count} answers to $SRV.PING")
    return Counter((one.name, one.metadata["cell"]) for one in found)


async def placed(bus: NatsBus, jobs: list[JobRequest], *, deadline_s: float) -> None:
    """Wait until all jobs have a place and their pods run there.

    Args:
        bus: The cell.
        jobs: The jobs.
        deadline_s: How long it may take on a free machine.

    Raises:
        AssertionError: They have not in time; names what became of them.
    """
    phases: dict[str, str] = {}
    try:
        async with asyncio.timeout(SLACK * deadline_s):
            while len(phases) < len(jobs) or not set(phases.values()) <= HAS_PLACE:
                for job in jobs:
                    try:
                        found = await status(bus, job.name)
                    except TransientError:
                        break
                    phases[job.name] = found.phase if found is not None else ""
                await pause(0.05)
    except TimeoutError as error:
        raise AssertionError(f"not placed within {SLACK * deadline_s} s: {phases}") from error


async def ledger_state(bus: NatsBus) -> StreamState:
    while True:
        try:
            return await bus.state(StreamName.LEDGER)
        except TransientError:
            await pause(0.1)


def services_of(running: Composed) -> Counter[str]:
    """How many processes of each service the file wants, by the name under which they answer."""
    ours = [process.planned for process in running.processes.values() if process.planned.is_ours]
    return Counter(f"berth-{one.command[2].rpartition('.')[2]}" for one in ours)


@pytest.mark.timeout(200)
async def test_the_cell_of_the_compose_file_places_jobs_and_goes_on_without_a_nats_node(
    tmp_path: Path, cell: str
) -> None:
    text = FILE.replace("BERTH_BUS__CELL: demo\n", f"BERTH_BUS__CELL: {cell}\n")
    assert text != FILE
    async with composed(text, tmp_path, deadline_s=60) as running:
        urls = running.processes["dispatcher"].planned.environment["BERTH_BUS__URL"].split(",")
        client = await nats.connect(urls, name="test")
        async with await NatsBus.connect(urls, cell, name="test", inbox="_INBOX.person.test") as bus:
            wanted = services_of(running)
            assert wanted["berth-scorer"] == 2
            found = await discovered(client, wanted.total())
            assert found == {(name, cell): count for name, count in wanted.items()}

            before = [a_job(f"before-{number}", chips=8) for number in range(4)]
            await give_jobs(bus, *before)
            await placed(bus, before, deadline_s=20)
            # On a busy machine a service may start before the servers answer; compose starts it again.
            starts = {name: process.restarts for name, process in running.processes.items()}

            ledger = await client.jetstream().stream_info(bus.subjects.stream(StreamName.LEDGER))
            assert ledger.config.num_replicas == 3
            assert ledger.cluster is not None
            leader = ledger.cluster.leader
            assert leader is not None
            head = (await ledger_state(bus)).last_seq
            running.processes[leader].kill()  # the node's name in NATS is its name in the file

            after = [a_job(f"after-{number}", chips=4) for number in range(4)]
            await give_jobs(bus, *after)
            await placed(bus, [*before, *after], deadline_s=60)
            assert (await ledger_state(bus)).last_seq > head
            counts = decode(await bus.request(bus.subjects.sim("counts"), b"", timeout_s=SLACK * 5), SimCounts)
            assert (counts.pods_bound, counts.double_allocations) == (len(before) + len(after), 0)
        await client.close()
        restarts = {name: process.restarts for name, process in running.processes.items()}
        assert restarts == starts, running.logs()
        ours = [process for process in running.processes.values() if process.planned.is_ours]
        assert [await process.stop() for process in reversed(ours)] == [0] * len(ours), running.logs()
