"""A whole cell in one process: its start and end, its death at any moment, and others that lead the same cell."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import ConflictError, TransientError
from berth.runtime.fault_points import BINDER_POINTS, POINTS
from berth.schemas.envelope import decode, encode
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.ledger import Epoch
from berth.schemas.status import LeaseHeld, Skip
from berth.schemas.subjects import StreamName
from tests.e2e.test_repair import deleted, have_read
from tests.support import command
from tests.support.answers import answers
from tests.support.cells import a_job
from tests.support.load import status, stored
from tests.support.probes import answer
from tests.support.processes import Service, Services, services
from tests.support.waiting import pause, until, until_true
from tests.support.watch import Watch, at_rest, verify

CLUSTER: Final = (
    "apiVersion: berth/v1\nkind: Cluster\nnodes:\n  - {product: module910bx8, count: 6, name: 'n-{index}'}\n"
)
KILLED: Final = -9
LEASELESS: Final = ("lease", "dead", "expire", "purge")
"""Points that are not reached here: no lease, no rubbish, nothing old."""
STRIKES: Final = [
    *(f"{point}:2" for point in POINTS if point.partition(".")[0] not in {*LEASELESS, "epoch"}),
    *(f"{point}:1" for point in POINTS if point.startswith("epoch")),
    *(f"{point}:2" for point in BINDER_POINTS if point.startswith("outcome")),
    "",
    "",
]
"""Where the process dies; empty: from outside, at some moment."""
BETWEEN_S: Final = 0.05
ANSWER_S: Final = 20
"""A leader on a busy machine answers late and leads all the same; of one that is killed the server says so at once."""


class Client:
    """Asks for jobs that run for a moment, whatever dies."""

    def __init__(self, bus: NatsBus) -> None:
        self.acked: list[tuple[int, JobRequest | JobCancel | None]] = []
        self._bus = bus
        self._is_stopping = False

    async def run(self) -> None:
        while not self._is_stopping:
            number = len(self.acked)
            job = a_job(f"job-{number}", chips=(1, 2, 4, 8)[number % 4], replicas=1 + number % 2, run_ms=200)
            subject = self._bus.subjects.intake_request(job.namespace, job.name)
            self.acked.append((await stored(self._bus, subject, encode(job)), job))
            await pause(BETWEEN_S)

    def stop(self) -> None:
        self._is_stopping = True

    async def all_over(self) -> None:
        """Wait until every job that was accepted has run."""

        async def is_over() -> bool:
            found = [await status(self._bus, job.name) for _, job in self.acked if isinstance(job, JobRequest)]
            return all(one is not None and one.phase == "succeeded" for one in found)

        await until_true(is_over, deadline_s=60, what="all jobs to have run")


def a_cell(
    made: Services, cell: str, folder: Path, *, label: str = "", has_cluster: bool = True, snapshot_records: int = 10
) -> tuple[Service, int]:
    """A cell in one process that is not started, and the port of its probes."""
    topology = folder / "cluster.yaml"
    topology.write_text(CLUSTER)
    (port,) = free_ports(1)
    settings: dict[str, object] = {
        "grace_s": 10,
        "probes": {"port": port},
        "dispatcher": {
            "tick_s": 0.1,
            "snapshot_records": snapshot_records,
            "snapshot_synced_s": 0,
            "lease_s": 1,
            "heartbeat_answer_s": ANSWER_S,
        },
    }
    if has_cluster:
        settings["nodesim"] = {"topology_file": str(topology), "terminating_s": 0.1, "tick_s": 0.05}
    return made.service("cell", cell, label=label, **settings), port


async def shows(port: int, text: str) -> None:
    """Wait for what ``/readyz`` answers."""
    async with aiohttp.ClientSession() as session:

        async def is_shown() -> bool:
            return text in (await answer(session, port, "readyz"))[1]

        await until_true(is_shown, deadline_s=30, what=f"/readyz: {text}")


@asynccontextmanager
async def watching(url: str, cell: str) -> AsyncIterator[Watch]:
    async with await NatsBus.connect(url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        watch = Watch(bus)
        watch.start()
        yield watch
        await watch.stop()


async def ran(bus: NatsBus, name: str) -> None:
    """A job is asked for, and runs to its end."""
    job = a_job(name, chips=8, run_ms=100)
    await bus.publish(bus.subjects.intake_request(job.namespace, job.name), encode(job))

    async def is_over() -> bool:
        found = await status(bus, name)
        return found is not None and found.phase == "succeeded"

    await until_true(is_over, deadline_s=30, what=f"{name} to have run")


async def answer_as(bus: NatsBus, names: set[str]) -> None:
    """Wait until exactly these answer as processes of the cell."""
    what = f"answers of {names}"
    found = await answers(bus, lambda seen: {one.name for one in seen} >= names, deadline_s=20, what=what)
    assert {one.name for one in found} == names


@pytest.mark.timeout(60)
async def test_it_runs_jobs_without_a_lease_and_ends_with_0(nats_server: str, cell: str, tmp_path: Path) -> None:
    with services(tmp_path, nats_server) as made:
        one, port = a_cell(made, cell, tmp_path)
        one.start()
        await shows(port, "ok")
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            await ran(bus, "a")
            assert await bus.last(StreamName.LEASE, bus.subjects.lease("dispatcher")) is None
            await answer_as(bus, {"berth-api", "berth-binder", "berth-dispatcher", "berth-nodesim"})
        await one.stop()


@pytest.mark.timeout(30)
async def test_a_wrong_setting_ends_it_with_2_and_is_named(nats_server: str, cell: str, tmp_path: Path) -> None:
    with services(tmp_path, nats_server) as made:
        wrong = made.service("cell", cell, binder={"gangs_at_once": 0})
        wrong.start()
        assert await wrong.ended() == 2
        assert "setting binder.gangs_at_once is 0: " in wrong.log()
        assert "Traceback" not in wrong.log()


@pytest.mark.timeout(240)
async def test_no_job_is_lost_and_no_chip_given_twice_wherever_it_dies(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        one, _ = a_cell(made, cell, tmp_path)
        async with watching(nats_server, cell) as watch, asyncio.TaskGroup() as group:
            client = Client(watch.bus)
            group.create_task(client.run())
            for strike in STRIKES:
                placed = len(watch.history)
                one.start(fault_point=strike)
                if not strike:
                    await until(lambda: len(watch.history) > placed + 3, deadline_s=30, what="it to decide")  # noqa: B023  # waited for here
                    await one.kill()
                assert await one.ended(deadline_s=40) == KILLED, f"{strike}: {one.log()}"
            one.start()
            client.stop()
            await client.all_over()
            await at_rest(watch)
            await one.stop()
            await verify(watch, client.acked)
    assert len(client.acked) > len(STRIKES)


@pytest.mark.timeout(120)
async def test_of_two_the_second_waits_says_why_and_goes_on_when_the_first_is_killed(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        first, port_of_first = a_cell(made, cell, tmp_path)
        second, port_of_second = a_cell(made, cell, tmp_path, label="second", has_cluster=False)
        async with watching(nats_server, cell) as watch:
            first.start()
            await shows(port_of_first, "ok")
            second.start()
            await shows(port_of_second, "dispatcher: another dispatcher leads this cell: ")
            assert "does not lead" in second.log()
            await ran(watch.bus, "a")
            await first.kill()
            await shows(port_of_second, "ok")
            first.start()
            await shows(port_of_first, "dispatcher: another dispatcher leads this cell: ")
            await ran(watch.bus, "b")
            await second.stop()
            await shows(port_of_first, "ok")
            await ran(watch.bus, "c")
            await first.stop()
            await verify(watch, [])
            assert watch.fold.epoch == 3


@pytest.mark.timeout(120)
async def test_two_that_start_together_come_to_one_leader(nats_server: str, cell: str, tmp_path: Path) -> None:
    with services(tmp_path, nats_server) as made:
        first, port_of_first = a_cell(made, cell, tmp_path)
        second, port_of_second = a_cell(made, cell, tmp_path, label="second", has_cluster=False)
        async with watching(nats_server, cell) as watch, aiohttp.ClientSession() as session:
            client = Client(watch.bus)
            async with asyncio.TaskGroup() as group:
                group.create_task(client.run())
                for _ in range(3):
                    first.start()
                    second.start()

                    async def one_leads() -> bool:
                        texts = [(await answer(session, port, "readyz"))[1] for port in (port_of_first, port_of_second)]
                        return texts.count("ok") == 1 and sum("leads this cell" in text for text in texts) == 1

                    await until_true(one_leads, deadline_s=30, what="one to lead, and the other to say so")
                    await first.kill()
                    await second.kill()
                first.start()
                client.stop()
            await client.all_over()
            await at_rest(watch)
            await first.stop()
            await verify(watch, client.acked)


@pytest.mark.timeout(120)
async def test_a_dispatcher_with_a_lease_and_one_process_give_way_to_each_other(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        one, port = a_cell(made, cell, tmp_path)
        (other_port,) = free_ports(1)
        other = made.service(
            "dispatcher", cell, lease_s=1, tick_s=0.1, heartbeat_answer_s=ANSWER_S, probes={"port": other_port}
        )
        async with watching(nats_server, cell) as watch:
            one.start()
            await shows(port, "ok")
            other.start()
            await shows(other_port, "ok")  # a standby is ready
            await ran(watch.bus, "a")
            assert watch.fold.epoch == 1
            await one.kill()
            await until(lambda: watch.fold.epoch == 2, deadline_s=20, what="the standby to lead")
            one.start()
            await shows(port, "dispatcher: ")
            await shows(port, " holds the lease of this cell")
            await ran(watch.bus, "b")
            assert watch.fold.epoch == 2
            await other.kill()
            await shows(port, "ok")
            await ran(watch.bus, "c")
            await one.stop()
            await verify(watch, [])
            assert watch.fold.epoch == 3


@pytest.mark.timeout(60)
async def test_it_gives_way_to_whoever_takes_the_lease(nats_server: str, cell: str, tmp_path: Path) -> None:
    with services(tmp_path, nats_server) as made:
        one, port = a_cell(made, cell, tmp_path)
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            one.start()
            await shows(port, "ok")
            lease = bus.subjects.lease("dispatcher")
            # So long that it does not expire before the end of the leadership is seen.
            held = await bus.publish(lease, encode(LeaseHeld("other", 0, 0)), expected_subject_seq=0, ttl_s=60)
            await shows(port, "dispatcher: other holds the lease of this cell")
            with pytest.raises(TransientError, match="no responders"):
                await bus.request(bus.subjects.heartbeat_question("dispatcher"), b"", timeout_s=20)
            await bus.publish(lease, encode(LeaseHeld("", 0, 0)), expected_subject_seq=held, ttl_s=1)
            await shows(port, "ok")
            await ran(bus, "a")
            await one.stop()


async def spoiled(bus: NatsBus) -> int:
    """Append what is no message to the ledger; returns its sequence."""
    while True:
        try:
            return await bus.append(b"\xff no message", expected_seq=(await bus.state(StreamName.LEDGER)).last_seq)
        except ConflictError:
            continue


@pytest.mark.timeout(120)
async def test_it_gives_way_to_a_repair_and_goes_on_behind_it(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    """The real command; first a message that later records follow is deleted, for which nobody need give way, then the
    last one."""
    with services(tmp_path, own_server.url) as made:
        one, port = a_cell(made, cell, tmp_path, snapshot_records=1_000)
        async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
            one.start()
            await shows(port, "ok")
            for number, followed in enumerate((True, False)):
                sequence = await spoiled(bus)
                if followed:
                    await ran(bus, f"before-{number}")
                await have_read(bus, sequence, readers=2)
                await deleted(bus, sequence)
                code, out, err = await command.berth("repair", "--yes", url=own_server.url, cell=cell)
                assert code == 0, out + err
                await ran(bus, f"after-{number}")
            skips = [decode(stored.data, Skip) for stored in await bus.read(StreamName.SKIPS)]
            assert [skip.was_void for skip in skips] == [True, False]
            epochs = [
                decode(stored.data, Epoch)
                for stored in await bus.read(StreamName.LEDGER)
                if Epoch.KIND.encode() in stored.data
            ]
            assert [one.holder == "berth repair" for one in epochs] == [False, True, False]
            await shows(port, "ok")
            await one.stop()
