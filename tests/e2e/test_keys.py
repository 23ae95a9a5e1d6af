"""A cell on three NATS servers with TLS and keys of ``berth keys``: services, people, programs, and who is denied."""

import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from berth.client import Client, UnavailableError
from berth.lab.cells.fleet import DEMO_CLUSTER
from berth.lab.commands.scenario import Play
from berth.lab.commands.stage import CellStage
from berth.lab.commands.story import Story
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.access import Access, access_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.config import BusConfig
from berth.runtime.inboxes import inbox_of_person
from berth.schemas.subjects import StreamName
from tests.support.certificates import authority, certificate
from tests.support.command import berth
from tests.support.nats_cluster import EmbeddedCluster
from tests.support.probes import answer
from tests.support.processes import _STARTED, Service, Services, services
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(240)
CELL: Final = "locked"
STARTS_MAX: Final = 5
"""A service is started again so often, as a supervisor does."""
MANIFEST: Final = {
    "apiVersion": "berth/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {"product": "module910bx8", "chips": 8, "runFor": "10m"},
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 1},
    "scorer": {"shards": 1},
    "binder": {},
    "api": {"grants": [{"identity": "portal", "role": "submit", "namespaces": ["default"]}]},
    "nodesim": {"topology_file": str(DEMO_CLUSTER)},
}


class Place:
    """Keys, certificates and servers of a cell."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys"
        self.ca = authority(folder)
        own, key = certificate(folder, "server", self.ca, names="DNS:nats-0.nats")
        between, between_key = certificate(folder, "route", self.ca)
        self.cluster = EmbeddedCluster(
            folder / "nats",
            more=f'include ./access.conf\ntls {{ cert_file: "{own}", key_file: "{key}" }}',
            between=f'tls {{ cert_file: "{between}", key_file: "{between_key}", ca_file: "{self.ca}" }}',
        )

    def publish_access(self) -> None:
        """Copy the part of the configuration that the keys made to each server."""
        for server in self.cluster.servers:
            server.root.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.keys / "access.conf", server.root / "access.conf")

    def settings(self, user: str, *, replicas: int = 1) -> BusConfig:
        return BusConfig(
            url=self.cluster.url,
            cell=CELL,
            replicas=3 if replicas == 3 else 1,
            makes_streams=False,
            creds_file=self.keys / "creds" / f"{user}.creds",
            tls_ca_file=self.ca,
            tls_hostname="nats-0.nats",
        )

    def access(self, user: str) -> Access:
        return access_of(self.settings(user))

    def environment(self, user: str) -> list[str]:
        """Settings of the command for a user."""
        return [
            f"BERTH_BUS__CREDS_FILE={self.keys / 'creds' / f'{user}.creds'}",
            f"BERTH_BUS__TLS_CA_FILE={self.ca}",
            "BERTH_BUS__TLS_HOSTNAME=nats-0.nats",
        ]

    @asynccontextmanager
    async def bus(self, user: str) -> AsyncIterator[NatsBus]:
        async with await NatsBus.connect(
            self.cluster.url.split(","),
            CELL,
            name=user,
            inbox=inbox_of_person(user) if user == "berth" else "",
            access=self.access(user),
            timeout_s=20,
        ) as bus:
            yield bus


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Place]:
    """A cluster that lets in whom ``berth keys`` made."""
    place = Place(folder)
    for words in (
        ("init", str(place.keys), "--cell", CELL),
        ("add", str(place.keys), "nodesim", "--kind", "service"),
        ("add", str(place.keys), "gateway", "--kind", "service"),
        ("add", str(place.keys), "cell", "--kind", "service"),
        ("add", str(place.keys), "portal", "--namespace", "default", "--expires-in", "1d"),
        ("add", str(place.keys), "plug-in", "--kind", "agent", "--node", "n1"),
    ):
        code, _, err = await berth("keys", *words)
        assert code == 0, err
    place.publish_access()
    async with place.cluster:
        yield place


async def apply_streams(place: Place) -> None:
    """Make the streams of the cell, as at an installation."""
    words = ("streams", "apply", "--replicas", "3", "--json")
    code, out, err = await berth(*words, url=place.cluster.url, cell=CELL, settings=place.environment("streams"))
    assert code == 0, err
    assert [(row["exists"], row["replicas"]) for row in msgspec.json.decode(out)] == [(True, 3)] * len(StreamName)


def works(service: Service) -> bool:
    """Whether a service has said since its last start that it works."""
    return service.is_running and _STARTED[service.name] in service.whole_log().rpartition("--- start ")[2]


async def run_the_demo(place: Place) -> None:
    """All jobs of ``berth demo`` end as they should."""
    story, clock = Story(), SystemClock()
    async with place.bus("berth") as bus:
        await Play(bus, clock, CellStage(bus, clock, story), story).run(lambda _: None)
    assert [tale for tale in story.tales if not tale.is_well] == []
    fates = Counter(tale.fate for tale in story.tales)
    assert fates["succeeded"] > 40, fates
    assert min(fates["cancelled"], fates["rejected"], fates["too large"]) > 0, fates


async def in_one_process(place: Place, made: Services) -> None:
    """The same cell in one process, whose one user has the rights of all services, places another job."""
    probes, page = free_ports(2)
    one = made.service(
        "cell",
        CELL,
        bus=_table(place.settings("cell", replicas=3)),
        probes={"port": probes},
        api=SETTINGS["api"],
        gateway={"access": "open", "port": page},
        nodesim=SETTINGS["nodesim"],
    )
    one.start()
    async with aiohttp.ClientSession() as session:

        async def is_ready() -> bool:
            assert one.is_running, one.log()
            return (await answer(session, probes, "readyz"))[0] == HTTPStatus.OK

        await until_true(is_ready, deadline_s=60, what="all services of the process are ready")
    async with await Client.connect(
        place.cluster.url, cell=CELL, identity="portal", access=place.access("portal"), timeout_s=30
    ) as client:
        await client.submit(MANIFEST | {"metadata": {"name": "train-2"}}, uid="u2")
        assert (await client.wait("train-2", "placed", timeout_s=60)).ranks
    assert "not permitted" not in one.log()
    await one.stop()


async def test_a_cell_of_three_servers_runs_the_demo_and_strangers_end_with_2(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        await apply_streams(place)
        with services(tmp_path, place.cluster.url) as made:
            running = [
                made.service(name, CELL, **settings, bus=_table(place.settings(name, replicas=3)))
                for name, settings in SETTINGS.items()
            ]
            for service in running:
                service.start()
            async with await Client.connect(
                place.cluster.url, cell=CELL, identity="portal", access=place.access("portal"), timeout_s=30
            ) as client:

                async def submitted() -> bool:
                    for service in running:
                        if not service.is_running:  # new streams of a busy cluster have no leader yet: it ends with 1
                            assert (service.returncode, service.starts < STARTS_MAX) == (1, True), service.log()
                            service.start()
                    if not all(map(works, running)):  # until then any of them may end, and nobody would start it again
                        return False
                    try:
                        await client.submit(MANIFEST, uid="u1")
                    except UnavailableError:
                        return False
                    return True

                await until_true(submitted, deadline_s=60, what="the cell is up")
                placed = await client.wait("train", "placed", timeout_s=60)
                assert placed.ranks, placed
            code, out, err = await berth(
                "jobs", "-o", "json", url=place.cluster.url, cell=CELL, settings=place.environment("berth")
            )
            assert code == 0, err
            assert [row["name"] for row in msgspec.json.decode(out)] == ["train"]
            code, _, err = await berth(
                "cancel", "train", url=place.cluster.url, cell=CELL, settings=place.environment("berth")
            )
            assert code == 0, err
            await run_the_demo(place)
            for service in reversed(running):
                await service.stop()

            await in_one_process(place, made)

        # A key of another folder, and no credentials at all.
        code, _, err = await berth("keys", "init", str(tmp_path / "other"), "--cell", CELL)
        assert code == 0, err
        with services(tmp_path, place.cluster.url) as made:
            wrong = msgspec.structs.replace(
                place.settings("scorer"), creds_file=tmp_path / "other" / "creds" / "scorer.creds"
            )
            stranger = made.service("scorer", CELL, label="-stranger", bus=_table(wrong))
            stranger.start()
            assert await stranger.ended() == 2
            assert "authorization failed" in stranger.log()
        stranger_settings = [*place.environment("berth")[1:], f"BERTH_BUS__CREDS_FILE={wrong.creds_file}"]
        code, _, err = await berth("jobs", url=place.cluster.url, cell=CELL, settings=stranger_settings)
        assert (code, "rejects the connection" in err) == (2, True), err
        code, _, err = await berth("jobs", url=place.cluster.url, cell=CELL, settings=place.environment("berth")[:2])
        assert (code, "certificate of the server is not trusted" in err) == (2, True), err


async def test_a_revoked_user_is_let_in_no_more_and_its_successor_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        async with place.bus("portal") as bus:
            assert bus.payload_limit_bytes == (1 << 20) * 9 // 10, "the bound of a program, below that of the server"
            code, out, err = await berth("keys", "revoke", str(place.keys), "portal")
            assert code == 0, err
            assert "reload" in out
            shutil.copy(place.keys / "access.conf", tmp_path / "access.conf")
            (tmp_path / "portal.creds").write_text("")
            place.publish_access()
            for server in place.cluster.servers:
                server.reload()
            await until(bus.lost.done, deadline_s=20, what="the server ends the connection of a revoked user")
        code, _, err = await berth("keys", "add", str(place.keys), "portal")
        assert code == 0, err
        async with place.bus("portal") as bus:
            assert bus.connected


def _table(config: BusConfig) -> dict[str, object]:
    """Settings as a table of TOML."""
    found: dict[str, object] = msgspec.to_builtins(config, enc_hook=str)
    return {key: value for key, value in found.items() if value not in {None, ""}}
