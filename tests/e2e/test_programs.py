"""Programs against real processes: JSON in and out, events once each through kills, rights by identity."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import nats
import nats.aio.client
import pytest

from berth.client import Client
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.runtime.inboxes import inbox_of_person
from berth.runtime.keys.rights import Rights, rights_of_program
from berth.schemas.subjects import StreamName
from tests.support.nats_rights import PEOPLE, access_of_user, rights, server_lines
from tests.support.processes import ROOT, Service, services
from tests.support.programs import ask, events_in, job_file
from tests.support.waiting import until_true

CLUSTER: Final = ROOT / "docs" / "examples" / "cluster.yaml"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 0},
    "binder": {},
    "nodesim": {"topology_file": str(CLUSTER)},
    "api": {},
}
JOBS: Final = 30
PROGRAM: Final = "train-portal"
GUIDE: Final = ROOT / "docs" / "programs.md"


def a_short_job(number: int) -> dict[str, Any]:
    return job_file(f"job-{number}", uid=f"uid-{number}", product="module910bx8", chips=1 + number % 2, runFor="1s")


async def answers(bus: NatsBus, identity: str = "") -> None:
    """Wait until the service answers; the rights of a caller are what it offers last."""

    async def is_there() -> bool:
        try:
            await ask(bus, "rights", {}, identity=identity)
            return bool((await ask(bus, "nodes", {"limit": 1}, identity=identity))["nodes"])
        except TransientError:
            return False

    await until_true(is_there, deadline_s=20, what="an answer of the service")


async def submitted(bus: NatsBus, number: int) -> None:
    """Submit a job, again and again until it is known to be stored, as a careful program does."""

    async def is_stored() -> bool:
        try:
            reply = await ask(bus, "submit", {"job": a_short_job(number)})
        except TransientError:
            return False
        assert reply["ok"] or reply["code"] == "unavailable", reply
        return bool(reply["ok"])

    await until_true(is_stored, deadline_s=20, what=f"job {number} is stored")


async def all_followed(client: Client) -> list[str]:
    """Ids of all events, as a program gets them that follows jobs until the last one is over."""
    found: list[str] = []
    over: set[str] = set()
    async with aclosing(client.follow()) as events:
        async for one in events:
            found.append(one.event.id)
            over |= {one.event.uid} if one.event.final else set()
            if len(over) == JOBS:
                break
    return found


async def all_over(bus: NatsBus) -> None:
    async def are_over() -> bool:
        found = await events_in(bus)
        return len({event.uid for event in found if event.final}) == JOBS

    await until_true(are_over, deadline_s=40, what="the end of all jobs")


@pytest.mark.timeout(170)
async def test_every_event_is_stored_once_whatever_is_killed(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        made = stack.enter_context(services(tmp_path, own_server.url))
        running = made.cell(cell, SETTINGS)
        second = made.service("api", cell, label="-second")
        for service in (*running.values(), second):
            service.start()
        async with (
            await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus,
            await Client.connect(own_server.url, cell=cell) as client,
            asyncio.TaskGroup() as group,
        ):
            await answers(bus)
            following = group.create_task(all_followed(client))
            for number in range(JOBS):
                await submitted(bus, number)
                if number % 7 == 3:
                    victim = (running["api"], second, running["dispatcher"], running["api"])[number // 7 % 4]
                    await victim.kill()
                    victim.start()
            await all_over(bus)
            found = await events_in(bus)
            ids = [event.id for event in found]
            assert len(set(ids)) == len(ids)
            assert await following == [event.id for event in found]
            assert {event.id for event in found if event.phase == "accepted"} == {
                f"uid-{number}/0/0/accepted" for number in range(JOBS)
            }
            placed = {event.uid: event for event in found if event.phase == "placed"}
            assert all(event.ranks and event.ranks[0].chips for event in placed.values())
            await see_message_id(bus)
            await see_rebuilt(bus, [running["api"], second], {event.id: event for event in found})


async def see_message_id(bus: NatsBus) -> None:
    """Events have their id as a header, for consumers that use it."""
    stream = bus.subjects.stream(StreamName.EVENTS)
    last = msgspec.json.encode({"last_by_subj": bus.subjects.event_job("team", "job-0")})
    answer = msgspec.json.decode(await bus.request(f"$JS.API.STREAM.MSG.GET.{stream}", last, timeout_s=5))
    assert "Nats-Msg-Id: uid-0/" in msgspec.json.decode(f'"{answer["message"]["hdrs"]}"', type=bytes).decode()


async def see_rebuilt(bus: NatsBus, instances: list[Service], wanted: dict[str, object]) -> None:
    """Lose the stream: the service ends, and its next start stores the same events."""
    for service in instances:
        await service.stop()
    await bus.delete_stream(StreamName.EVENTS)
    instances[0].start()
    await answers(bus)
    assert {event.id: event for event in await events_in(bus)} == wanted


def rights_of_a_program(cell: str) -> Rights:
    """Rights as the guide gives them."""
    text = GUIDE.read_text("utf-8").partition("permissions: {")[2].partition("}")[0].replace("default", cell)
    found = {
        name: re.findall(r'"([^"]+)"', text.partition(f"{name}: [")[2].partition("]")[0]) for name in Rights._fields
    }
    return Rights(tuple(found["publish"]), tuple(found["subscribe"]))


@asynccontextmanager
async def plain_client(url: str) -> AsyncIterator[nats.aio.client.Client]:
    """A connection of the program that does not know Berth."""
    inbox = f"_INBOX.{PROGRAM}.r".encode()
    client = await nats.connect(url, user=PROGRAM, password=f"of-{PROGRAM}", inbox_prefix=inbox)
    try:
        yield client
    finally:
        await client.close()


async def have_the_server_write(url: str, bus: NatsBus, target: str) -> None:
    """Ask JetStream for an answer, and for the messages of a consumer, on a subject of a stream."""
    stream = bus.subjects.stream(StreamName.EVENTS)
    events = f"{bus.subjects.root}event.job.team-a.>"
    consumer = {"name": PROGRAM, "deliver_subject": target, "filter_subject": events, "ack_policy": "none"}
    create = msgspec.json.encode({"stream_name": stream, "config": consumer, "action": "create"})
    async with plain_client(url) as client:
        await client.publish(f"$JS.API.STREAM.INFO.{stream}", b"", reply=target)
        await client.publish(f"$JS.API.CONSUMER.CREATE.{stream}.{PROGRAM}.{events}", create, reply=target)
        await client.flush()


async def first_event(url: str, bus: NatsBus, namespace: str) -> dict[str, Any]:
    """Reply with the first event of a namespace to a client that does not know Berth, or with why there is none."""
    async with plain_client(url) as client:
        wanted = msgspec.json.encode({"namespace": namespace, "limit": 1})
        answer = await client.request(bus.subjects.api_as("events", PROGRAM), wanted, timeout=5)
        reply: dict[str, Any] = msgspec.json.decode(answer.data)
        return reply


@asynccontextmanager
async def guarded(folder: Path, cell: str) -> AsyncIterator[str]:
    """A cell with NATS users that have their rights, and a program with those of the guide; yields the URL of NATS."""
    more = server_lines({**rights(cell), PROGRAM: rights_of_a_program(cell)})
    grants = [{"identity": PROGRAM, "role": "submit", "namespaces": ["team-a"]}]
    async with EmbeddedServer(folder / "nats", more=more) as server:
        async with await NatsBus.connect(server.url, cell, name="all", access=access_of_user("all")) as bus:
            await bus.ensure_streams()
        with services(folder, server.url) as made:
            for name, settings in SETTINGS.items():
                secret = folder / f"{name}.secret"
                secret.write_text(f"of-{name}")
                own = {"cell": cell, "user": name, "password_file": str(secret), "makes_streams": False}
                service = made.service(name, cell, **settings, bus=own)
                service.env["BERTH_GRANTS"] = msgspec.json.encode(grants).decode()
                service.start()
            yield server.url


@pytest.mark.timeout(90)
async def test_a_program_has_the_rights_of_the_guide_and_no_others(tmp_path: Path) -> None:
    cell = "guarded"
    assert rights_of_a_program(cell) == rights_of_program(cell, PROGRAM, ["team-a"])
    async with guarded(tmp_path, cell) as url:
        access = access_of_user(PROGRAM)
        async with await NatsBus.connect(url, cell, name=PROGRAM, access=access) as bus:
            await answers(bus, PROGRAM)
            job = job_file("train", namespace="team-a", product="module910bx8", chips=8)
            seen = asyncio.Event()

            async def handle(_: bytes) -> None:
                seen.set()

            watching = await bus.serve(bus.subjects.event_job("team-a", "train"), handle)
            assert (await ask(bus, "submit", {"job": job}, identity=PROGRAM))["ok"]
            async with asyncio.timeout(20):
                await seen.wait()
            other = job_file("train", namespace="team-b", product="module910bx8", chips=8)
            assert (await ask(bus, "submit", {"job": other}, identity=PROGRAM))["code"] == "denied"
            await watching.stop()
            (first,) = (await first_event(url, bus, "team-a"))["events"]
            assert first["event"]["id"] == "u-1/0/0/accepted"
            for namespace in ("team-b", "*"):
                assert (await first_event(url, bus, namespace))["code"] == "denied"
        subjects = bus.subjects
        stream = subjects.stream(StreamName.EVENTS)
        for forbidden in (
            subjects.api("submit"),
            subjects.api_as("submit", "somebody"),
            subjects.api_as("events", "somebody"),
            f"$JS.API.STREAM.INFO.{stream}",
            f"$JS.API.STREAM.MSG.GET.{stream}",
            f"$JS.API.CONSUMER.CREATE.{stream}.{PROGRAM}.{subjects.root}event.job.team-a.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{PROGRAM}",
        ):
            async with await NatsBus.connect(url, cell, name=PROGRAM, access=access) as bus:
                with pytest.raises(TransientError):
                    await bus.request(forbidden, b"{}", timeout_s=1)
        await have_the_server_write(url, bus, subjects.intake_request("team-b", "x"))
        me, inbox = access_of_user(PEOPLE), inbox_of_person(PEOPLE)
        async with await NatsBus.connect(url, cell, name=PEOPLE, inbox=inbox, access=me) as bus:
            (intake,) = await bus.read(StreamName.INTAKE)
            assert PROGRAM.encode() in intake.data
