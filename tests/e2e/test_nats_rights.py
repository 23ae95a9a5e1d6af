"""The rights that the page about trust gives to each service are enough, and do not reach to the ledger of others."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from berth.cli.recordings.replay import replay_file
from berth.core.requests.dead_reasons import INTERNAL
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.backups.backup import backup
from berth.runtime.backups.restore import restore
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.cell_status.gathering import gather_status
from berth.runtime.clock import SystemClock
from berth.runtime.dead_letters.letters import read_letters
from berth.runtime.dead_letters.purges import purge
from berth.runtime.dead_letters.replays import replay
from berth.runtime.dead_letters.writing import dead_letter
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.fsck.cell_check import check_cell
from berth.runtime.fsck.cell_repair import carry_out, plan_of
from berth.runtime.inboxes import inbox_of_person
from berth.runtime.keys.rights import SERVICES
from berth.runtime.recording import record
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.chained_records import append_broken
from tests.support.load import give_jobs, status
from tests.support.nats_rights import PEOPLE, access_of_user, rights, server_lines, users_of_page
from tests.support.processes import ROOT, services
from tests.support.waiting import pause, until

CLUSTER: Final = ROOT / "docs" / "examples" / "cluster.yaml"
CELL: Final = "guarded"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 1},
    "scorer": {"shards": 1},
    "binder": {},
    "nodesim": {"topology_file": str(CLUSTER)},
}


async def phase(bus: NatsBus, job: str) -> str:
    """How far a job is; nothing while the services have not made the stream of statuses yet."""
    try:
        found = await status(bus, job)
    except TransientError:
        return ""
    return found.phase if found is not None else ""


@pytest.mark.timeout(60)
async def test_services_with_these_rights_place_a_job_and_people_may_record_it(tmp_path: Path) -> None:
    assert set(SETTINGS) <= set(rights(CELL))
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(users_of_page(CELL))) as server:
        with ExitStack() as stack:
            made = stack.enter_context(services(tmp_path, server.url))
            running = []
            own_bus = {"cell": CELL, "makes_streams": False}
            for name, settings in SETTINGS.items():
                secret = tmp_path / f"{name}.secret"
                secret.write_text(f"of-{name}")
                running.append(
                    made.service(
                        name, CELL, label="", **settings, bus={**own_bus, "user": name, "password_file": str(secret)}
                    )
                )
            for service in running:
                service.start()
            async with await person(server, "streams") as bus:
                await bus.ensure_streams()
            async with await person(server, PEOPLE) as bus:
                await give_jobs(bus, a_job("small", chips=8))
                while await phase(bus, "small") != "running":
                    assert not bus.lost.done(), bus.lost.result().reason
                    assert all(service.is_running for service in running), [service.log() for service in running]
                    await pause(0.05)
                wish = DrainSeen("node", "n1", since_ms=1, by="ops", at_ms=1)
                await bus.publish(bus.subjects.fact_drain("node", "n1"), encode(wish))
                given = ApprovalSeen("CardUnhealthy", "leaf-0", until_ms=1, by="ops", at_ms=1)
                await bus.publish(bus.subjects.fact_approval("CardUnhealthy", "leaf-0"), encode(given))
                await bus.publish(bus.subjects.fact_queue("team"), encode(QueueSeen(Queue("team"), by="ops")))
                made_of_it = await record(bus, SystemClock(), tmp_path / "guarded.rec", anonymise=True)
                assert made_of_it.end.records
                outcome = replay_file(tmp_path / "guarded.rec", SystemClock())
                assert outcome.is_identical, outcome.lines
            for service in reversed(running):
                await service.stop()


async def test_a_service_that_goes_beyond_its_rights_ends(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(users_of_page(CELL))) as server:
        for name in ("scorer", "binder", "nodesim", PEOPLE):
            async with await (person(server, name) if name == PEOPLE else service(server, name)) as bus:
                await bus.send(bus.subjects.ledger, b"a chip for me")
                await until(bus.lost.done, deadline_s=10, what="the word of the server")
                assert bus.subjects.ledger in bus.lost.result().reason


def person(server: EmbeddedServer, user: str) -> Any:  # noqa: ANN401  # an async context manager that is awaited first
    """A connection as the command makes it, with the rights of a user."""
    inbox = inbox_of_person(user)
    return NatsBus.connect(server.url, CELL, name=PEOPLE, inbox=inbox, access=access_of_user(user))


def service(server: EmbeddedServer, name: str) -> Any:  # noqa: ANN401  # as above
    """A connection as a service makes it."""
    return NatsBus.connect(server.url, CELL, name=name, access=access_of_user(name))


async def test_commands_work_with_these_rights(tmp_path: Path) -> None:
    clock = SystemClock()
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(users_of_page(CELL))) as server:
        async with await service(server, "all") as bus:
            await bus.ensure_streams()
            await append_broken(bus)
            await bus.publish(bus.subjects.snapshot_chunk(1, 0), b"\xff damaged")
            await bus.publish(bus.subjects.snapshot_end(1), b"\xff damaged")
            ghost = JobStatus("default", "ghost", "uid", "placed", 1, 1)
            await bus.publish(bus.subjects.status("default", "ghost"), encode(ghost))
        async with await person(server, "who-fscks") as bus:
            found = await check_cell(bus, clock)
            assert [one.code for one in found.findings] == ["broken-record", "damaged-snapshot"]
        async with await person(server, "who-repairs") as bus:
            changed = []
            while not (plan := await plan_of(bus, clock, by="me")).is_empty:
                await carry_out(bus, clock, plan, by="me")
                changed.append((len(plan.found.skips), len(plan.snapshots), len(plan.statuses or ())))
            assert changed == [(1, 1, 0), (0, 0, 1)]
        async with await person(server, "who-fscks") as bus:
            assert (await check_cell(bus, clock)).findings == []
        async with await person(server, "who-backups") as bus:
            written = await backup(bus, clock, tmp_path / "backup")
            assert written.checked.counts["SKIPS"] == 1
        async with await person(server, "who-deads") as bus:
            stored = Stored(bus.subjects.intake_request("default", "j"), 1, encode(a_job("j")), 5)
            await dead_letter(bus, clock, StreamName.INTAKE, stored, "an error of Berth", code=INTERNAL)
            done = await replay(bus, clock, "intake:1", by="me")
            assert done.sequence == (await bus.state(StreamName.INTAKE)).last_seq
            await purge(bus, clock, (await read_letters(bus)).letters, by="me")
        async with await person(server, PEOPLE) as bus:
            assert (await gather_status(bus, clock)).dead_letters.open == 0
            assert not bus.lost.done()
        async with await person(server, "who-restores") as bus:
            await restore(bus, clock, tmp_path / "backup", replace=True)
        async with await person(server, "who-fscks") as bus:
            after = await check_cell(bus, clock)
            assert (after.findings, after.ledger_seq) == ([], 2), "what was skipped, and the epoch of the repair"
            assert [one.count for one in after.checked if one.what == "skips"] == [1]


async def test_other_users_may_neither_repair_nor_restore(tmp_path: Path) -> None:
    clock = SystemClock()
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(users_of_page(CELL))) as server:
        async with await service(server, "all") as bus:
            await bus.ensure_streams()
            await append_broken(bus)
        async with await person(server, PEOPLE) as bus:
            plan = await plan_of(bus, clock, by="me")
            with pytest.raises((TransientError, FatalError)):
                await carry_out(bus, clock, plan, by="me")
            await until(bus.lost.done, deadline_s=10, what="the word of the server")
            assert bus.subjects.lease("dispatcher") in bus.lost.result().reason
        async with await person(server, PEOPLE) as bus:
            assert (await bus.state(StreamName.SKIPS)).last_seq == 0


async def test_a_service_reads_its_streams_and_asks_for_no_others(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(users_of_page(CELL))) as server:
        async with await person(server, "streams") as bus:
            await bus.ensure_streams()
        for name in SERVICES:
            may = rights(CELL)[name].publish
            async with await service(server, name) as bus:
                await bus.ensure_streams(waits_for=list(StreamName))
                for stream in StreamName:
                    if f"$JS.API.STREAM.MSG.GET.{bus.subjects.stream(stream)}" in may:
                        await bus.read(stream)
                        await bus.last(stream, bus.subjects.ledger)
                assert not bus.lost.done(), name


async def test_a_dispatcher_forgets_what_is_over_and_makes_the_stream_of_leases_again(tmp_path: Path) -> None:
    others = set(StreamName) - {StreamName.LEASE}
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(users_of_page(CELL))) as server:
        async with await person(server, "streams") as bus:
            await bus.ensure_streams()
        async with await service(server, "dispatcher") as bus:
            for number in range(3):
                await bus.publish(bus.subjects.status("default", f"j{number}"), b"x")
                await bus.publish(bus.subjects.fact_timer, b"x")
                await bus.append(b"x", expected_seq=number)
            for stream in (StreamName.STATUS, StreamName.LATEST):
                await bus.raise_floor(stream, 2)
                await bus.purge(stream, keep_from_seq=2)
            await bus.purge(StreamName.LEDGER, keep_from_seq=2)
            await bus.purge(StreamName.SNAPSHOT, subject=bus.subjects.snapshot_all(1))
            await bus.delete_stream(StreamName.LEASE)
            await bus.ensure_streams(waits_for=others)
            assert (await bus.state(StreamName.LEASE)).last_seq == 0
            assert [(await bus.state(one)).first_seq for one in (StreamName.STATUS, StreamName.LEDGER)] == [2, 2]
            assert not bus.lost.done()
