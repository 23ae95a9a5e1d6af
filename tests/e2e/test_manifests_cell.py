"""Manifests for production at work: NATS with users and TLS on three nodes, two dispatchers and two scorers place jobs.

Excluded: the image and the containers, and the services that need an API server.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import pytest

from berth.runtime.bus.access import Access
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import FatalError, TransientError, UntrustedError
from berth.runtime.inboxes import inbox_of_person
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job, a_node
from tests.support.certificates import authority, documented_secret
from tests.support.compose import Composed
from tests.support.kustomize import render
from tests.support.load import give_health, give_jobs, give_nodes, status
from tests.support.nats_rights import PEOPLE
from tests.support.pod_processes import cell_at_work, planned_pods
from tests.support.pods import pods_of
from tests.support.processes import ROOT
from tests.support.waiting import SLACK, pause

USERS: Final = ("inventory", "health", "dispatcher", "scorer", "binder", "summary", "api", PEOPLE, "streams", "route")
# Digits first and an exponent within: NATS would read it as a number if it could.
PASSWORDS: Final = {user: f"1e{number}ab" for number, user in enumerate(USERS)}
WORKLOADS: Final = ("nats", "dispatcher", "scorer")
CELL: Final = "default"


def trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca)


async def placed(bus: NatsBus, *names: str) -> None:
    for name in names:
        while True:
            try:
                found = await status(bus, name)
            except TransientError:
                found = None
            if found is not None and found.phase == "placed":
                break
            await pause(0.05)


async def shards_of(running: Composed) -> list[str]:
    logs = [process.log() for name, process in running.processes.items() if name.startswith("scorer-")]
    return [line for log in logs for line in log.splitlines() if '"event":"ready"' in line.replace(" ", "")]


@pytest.mark.timeout(150)
async def test_the_cell_of_the_manifests_places_jobs_and_goes_on_without_one_of_each(tmp_path: Path) -> None:
    objects = render(ROOT / "k8s" / "overlays" / "prod")
    tls = documented_secret(tmp_path, also="IP:127.0.0.1")  # each pod has that address here
    secrets = {"berth-nats": PASSWORDS, "berth-nats-tls": tls}
    pods = [pod for name in WORKLOADS for pod in pods_of(objects, name, secrets=secrets)]

    def access(user: str) -> Access:
        return Access(user=user, password=PASSWORDS[user], tls=trusting(tls["ca.crt"]), needs_tls=True)

    first = pods_of(objects, "dispatcher", secrets=secrets, first=True)[0]
    *planned, applies = planned_pods([*pods, first], tmp_path, domains={"nats": "nats"})
    assert [one.name for one in planned if not one.is_ours] == ["nats-0", "nats-1", "nats-2"]
    async with asyncio.timeout(SLACK * 140), cell_at_work(planned, applies, tmp_path, deadline_s=60) as running:
        dispatchers = [one for one in planned if one.name.startswith("dispatcher")]
        urls = dispatchers[0].environment["BERTH_BUS__URL"].split(",")
        with pytest.raises(FatalError, match="authorization failed"):
            await NatsBus.connect(urls, CELL, name=PEOPLE, access=access("scorer")._replace(user=PEOPLE))
        other = authority(tmp_path, "other").read_text()
        with pytest.raises(UntrustedError):
            await NatsBus.connect(urls, CELL, name=PEOPLE, access=access(PEOPLE)._replace(tls=trusting(other)))
        ready = await shards_of(running)
        assert sorted(line.partition('"shard":')[2].split(",")[0].strip(" }") for line in ready) == ["0", "1"], ready
        async with (
            await NatsBus.connect(urls, CELL, name="inventory", access=access("inventory")) as inventory,
            await NatsBus.connect(urls, CELL, name="health", access=access("health")) as health,
            await NatsBus.connect(urls, CELL, name=PEOPLE, inbox=inbox_of_person(PEOPLE), access=access(PEOPLE)) as me,
        ):
            nodes = [a_node(f"n{number}", leaf=f"leaf{number}") for number in range(4)]
            await give_nodes(inventory, nodes)
            await give_health(health, nodes)
            await give_jobs(me, a_job("first", chips=8), a_job("second", chips=8))
            await placed(me, "first", "second")
            assert (await me.state(StreamName.LEDGER)).last_seq > 1

            running.processes["nats-0"].kill()
            running.processes[dispatchers[0].name].kill()
            await give_jobs(me, a_job("third", chips=8))
            await placed(me, "third")
        ours = [one for one in running.processes.values() if one.planned.is_ours and one.planned != dispatchers[0]]
        assert [await one.stop() for one in ours] == [0] * len(ours), running.logs()
        assert running.restarted() == ""
