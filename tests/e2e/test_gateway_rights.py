"""A gateway with exactly the rights of the page about trust works on a NATS that asks for passwords."""

import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import DeniedError
from berth.schemas.subjects import StreamName
from tests.support.nats_rights import access_of_user, rights, server_lines
from tests.support.processes import services
from tests.support.waiting import until, until_true

CELL: Final = "guarded"
USER: Final = "gateway"
PORTAL: Final = "of-portal"
ALL: Final = access_of_user("all")
JOB: Final = {
    "apiVersion": "berth/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a"},
    "spec": {"product": "module910bx8", "chips": 8},
}


@pytest.mark.timeout(120)
async def test_it_submits_reads_and_follows_with_these_rights(tmp_path: Path) -> None:
    port, extender = free_ports(2)
    grant = {"identity": "portal", "role": "operate", "namespaces": ["*"]}
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(rights(CELL))) as server:
        async with await NatsBus.connect(server.url, CELL, name="all", access=ALL) as bus:
            await bus.ensure_streams()
        with ExitStack() as stack:
            made = stack.enter_context(services(tmp_path, server.url))
            running = []
            for name, settings in (
                (
                    USER,
                    {
                        "port": port,
                        "tokens": [{"identity": "portal", "sha256": hashlib.sha256(PORTAL.encode()).hexdigest()}],
                        "extender": {"port": extender, "access": "network"},
                    },
                ),
                ("dispatcher", {"shards": 1}),
                ("api", {"grants": [grant]}),
            ):
                secret = tmp_path / f"{name}.secret"
                secret.write_text(f"of-{name}")
                bus_table = {"cell": CELL, "user": name, "password_file": str(secret), "makes_streams": False}
                running.append(made.service(name, CELL, label="", bus=bus_table, **settings))
                running[-1].start()
            headers = {"Authorization": f"Bearer {PORTAL}"}
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:

                async def is_submitted() -> bool:
                    assert all(one.is_running for one in running), [one.log() for one in running]
                    try:
                        async with session.post("/api/v1/jobs", json=JOB) as answer:
                            return answer.status in {200, 201}
                    except aiohttp.ClientConnectorError:
                        return False

                await until_true(is_submitted, deadline_s=60, what="a job is submitted")

                async def waits() -> bool:
                    async with session.get("/api/v1/jobs/team-a/train") as answer:
                        return answer.status == 200 and (await answer.json())["phase"] == "waiting"

                await until_true(waits, deadline_s=30, what="the job waits")
                for path, body, status in (
                    ("/api/v1/approvals", {"kind": "CardUnhealthy"}, 202),
                    ("/api/v1/drains", {"kind": "node", "name": "n1"}, 404),  # the cell has no nodes
                ):
                    async with session.post(path, json=body) as answer:
                        assert answer.status == status, await answer.text()
                for path in (
                    "/api/v1/jobs/team-a/train/explain",
                    "/api/v1/jobs",
                    "/api/v1/nodes",
                    "/api/v1/faults",
                    "/api/v1/me",
                    "/api/v1/view",
                    "/api/v1/view/hour",
                    "/api/v1/queues",
                    "/api/v1/cell",
                    "/api/v1/dead",
                ):

                    async def is_read(path: str = path) -> bool:
                        async with session.get(path) as answer:
                            assert answer.status in {200, 503}, (path, await answer.text())
                            return answer.status == 200  # 503 while it reads what is stored

                    await until_true(is_read, deadline_s=40, what=f"{path} is answered")
            call = {"Pod": {"metadata": {"name": "p", "namespace": "team-a", "uid": "u"}}, "NodeNames": ["a"]}
            async with aiohttp.ClientSession(f"http://127.0.0.1:{extender}") as session:

                async def is_told() -> bool:
                    async with session.post("/filter", json=call) as answer:
                        return answer.status == 200 and (await answer.json())["NodeNames"] == []

                await until_true(is_told, deadline_s=30, what="the extender knows all pods")
            assert all(one.is_running for one in running), [one.log() for one in running]
            for service in reversed(running):
                await service.stop()


async def test_it_may_read_all_that_it_needs_and_nothing_is_stored_for_it(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", more=server_lines(rights(CELL))) as server:
        async with await NatsBus.connect(server.url, CELL, name="all", access=ALL) as bus:
            await bus.ensure_streams()
        me = access_of_user(USER)
        async with await NatsBus.connect(server.url, CELL, name=USER, access=me) as bus:
            for stream in StreamName:
                await bus.state(stream)
                if stream not in {StreamName.INTAKE, StreamName.SUMMARY}:
                    await bus.read(stream)
            assert not bus.lost.done()
        for subject in (
            "ledger",
            "intake.request.a.b",
            "fact.drain.node.n1",
            "dead.facts.1",
            "status.a.b",
            "event.job.a.b",
        ):
            async with await NatsBus.connect(server.url, CELL, name=USER, access=me) as bus:
                await bus.send(f"{bus.subjects.root}{subject}", b"")
                await until(bus.lost.done, deadline_s=20, what=f"the gateway is denied {subject}")
                assert isinstance(bus.lost.result(), DeniedError)
                assert subject in bus.lost.result().reason
