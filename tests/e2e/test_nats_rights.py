"""The rights that the page for operators gives to each service are enough, and do not reach to the ledger of others."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.cli.recordings.replay import replay_file
from berth.runtime.bus.access import Access
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.local.nats_server import EmbeddedServer
from berth.runtime.recording import record
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen
from tests.support.cells import a_job
from tests.support.load import give_jobs, status
from tests.support.nats_rights import PEOPLE, rights
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


def server_lines() -> str:
    users = [
        {"user": name, "password": f"of-{name}", "permissions": {**may, "allow_responses": True}}
        for name, may in rights(CELL).items()
    ]
    return f"authorization {msgspec.json.encode({'users': users}).decode()}"


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
    async with EmbeddedServer(tmp_path / "nats", more=server_lines()) as server:
        with ExitStack() as stack:
            made = stack.enter_context(services(tmp_path, server.url))
            running = []
            for name, settings in SETTINGS.items():
                secret = tmp_path / f"{name}.secret"
                secret.write_text(f"of-{name}")
                running.append(
                    made.service(
                        name, CELL, label="", **settings, bus={"cell": CELL, "user": name, "password_file": str(secret)}
                    )
                )
            for service in running:
                service.start()
            me = Access(user=PEOPLE, password=f"of-{PEOPLE}")
            async with await NatsBus.connect(server.url, CELL, name=PEOPLE, access=me) as bus:
                await give_jobs(bus, a_job("small", chips=8))
                while await phase(bus, "small") != "running":
                    assert not bus.lost.done(), bus.lost.result().reason
                    assert all(service.is_running for service in running), [service.log() for service in running]
                    await pause(0.05)
                wish = DrainSeen("node", "n1", since_ms=1, by="ops", at_ms=1)
                await bus.publish(bus.subjects.fact_drain("node", "n1"), encode(wish))
                given = ApprovalSeen("CardUnhealthy", "leaf-0", until_ms=1, by="ops", at_ms=1)
                await bus.publish(bus.subjects.fact_approval("CardUnhealthy", "leaf-0"), encode(given))
                made_of_it = await record(bus, SystemClock(), tmp_path / "guarded.rec", anonymise=True)
                assert made_of_it.end.records
                outcome = replay_file(tmp_path / "guarded.rec", SystemClock())
                assert outcome.is_identical, outcome.lines
            for service in reversed(running):
                await service.stop()


async def test_a_service_that_goes_beyond_its_rights_ends(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", more=server_lines()) as server:
        for name in ("scorer", "binder", "nodesim", PEOPLE):
            who = Access(user=name, password=f"of-{name}")
            async with await NatsBus.connect(server.url, CELL, name=name, access=who) as bus:
                await bus.send(bus.subjects.ledger, b"a chip for me")
                await until(bus.lost.done, deadline_s=10, what="the word of the server")
                assert bus.subjects.ledger in bus.lost.result().reason
