"""The client in Python against real processes: a job from its submission to its end, with and without asyncio."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from berth.client import (
    Access,
    Client,
    ConnectionLostError,
    JobFile,
    JobMetadata,
    JobSpec,
    RequestError,
    StoredEvent,
    sync,
)
from berth.lab.servers.nats_server import EmbeddedServer
from berth.schemas.subjects import token
from tests.e2e.test_programs import PROGRAM, SETTINGS, guarded
from tests.support.processes import Service, services
from tests.support.waiting import block

PHASES: Final = ["accepted", "placed", "succeeded"]


def a_job(name: str, run_for: str = "1s") -> JobFile:
    return JobFile(
        metadata=JobMetadata(name=name, namespace="team-a"),
        spec=JobSpec(product="module910bx8", replicas=2, chips=8, run_for=run_for),
    )


async def until_final(events: AsyncIterator[StoredEvent]) -> list[StoredEvent]:
    """Events up to the last of a job."""
    found: list[StoredEvent] = []
    async with asyncio.timeout(60):
        async for one in events:
            found.append(one)
            if one.event.final:
                break
    return found


def see_story(found: list[StoredEvent], uid: str) -> None:
    assert {one.event.uid for one in found} == {uid}
    assert [one.event.phase for one in found if one.event.phase in PHASES] == PHASES
    (placed,) = [one.event for one in found if one.event.phase == "placed"]
    assert [(rank.rank, len(rank.chips)) for rank in placed.ranks] == [(0, 8), (1, 8)]


@contextmanager
def a_cell(folder: Path, url: str, cell: str) -> Iterator[Service]:
    """The processes of a cell without authentication; the service for programs is given."""
    with ExitStack() as stack:
        made = stack.enter_context(services(folder, url))
        running = made.cell(cell, SETTINGS)
        for service in running.values():
            service.start()
        yield running["api"]


async def start_again(service: Service) -> None:
    """Start a service again whenever it ends."""
    while True:
        await service.ended(deadline_s=170)
        service.start()


@pytest.mark.timeout(170)
async def test_a_job_is_submitted_and_followed_through_a_kill_of_nats(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    with a_cell(tmp_path, own_server.url, cell) as api:
        async with await Client.connect(own_server.url, cell=cell, timeout_s=60) as client:
            reply = await client.submit(a_job("train"))
            assert (await client.submit(a_job("train"), uid=reply.uid)).uid == reply.uid
            async with asyncio.TaskGroup() as group, aclosing(client.follow("team-a", "train")) as events:
                kept = group.create_task(start_again(api))  # it ends if the server has lost events
                following = group.create_task(until_final(events))
                over = group.create_task(client.wait("train", "finished", namespace="team-a", timeout_s=90))
                await client.wait("train", "placed", namespace="team-a", uid=reply.uid, timeout_s=60)
                await own_server.kill()
                await own_server.start()
                await over
                await following
                kept.cancel()
            assert over.result().phase == "succeeded"
            see_story(following.result(), reply.uid)
            ids = [one.event.id for one in following.result()]
            assert len(set(ids)) == len(ids)
            async with aclosing(client.follow("team-a", "train")) as events:
                assert {one.event.id for one in await until_final(events)} == set(ids)


def see_used(client: sync.Client, names: list[str], chips: int) -> None:
    """Ask for nodes until these chips are in use, as long as the test may take: a status may be ahead of them."""
    while sum(len(node.used) for node in client.nodes(names)) != chips:
        block(0.02)


def use_without_asyncio(url: str, cell: str) -> None:
    with sync.Client(url, cell=cell, timeout_s=60) as client:
        reply = client.submit(a_job("train", run_for="10m"))
        placed = client.wait("train", "placed", namespace="team-a", timeout_s=60)
        assert [len(rank.chips) for rank in placed.ranks] == [8, 8]
        see_used(client, [rank.node for rank in placed.ranks], 16)
        assert client.explain("train", namespace="team-a").sentences
        assert client.status("train", namespace="team-a").uid == reply.uid
        client.cancel("train", namespace="team-a", uid=reply.uid, reason="test")
        for _, event in client.follow("team-a", "train"):
            if event.final:
                break
        assert event.phase == "cancelled"
        assert client.wait("train", "finished", namespace="team-a", uid=reply.uid, timeout_s=60).phase == "cancelled"
        with pytest.raises(RequestError, match="expected a job of namespace team-a"):
            client.status("nobody", namespace="team-a")
    with pytest.raises(ConnectionLostError, match="the client is closed"):
        client.nodes()


@pytest.mark.timeout(170)
async def test_a_job_is_submitted_followed_and_cancelled_without_asyncio(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    with a_cell(tmp_path, own_server.url, cell):
        await asyncio.to_thread(use_without_asyncio, own_server.url, cell)


@pytest.mark.timeout(170)
async def test_the_client_needs_no_more_rights_than_those_of_the_guide(tmp_path: Path) -> None:
    cell = "guarded"
    async with guarded(tmp_path, cell) as url:
        access = Access(user=PROGRAM, password=f"of-{PROGRAM}")
        async with await Client.connect(url, cell=cell, identity=PROGRAM, access=access, timeout_s=60) as client:
            reply = await client.submit(a_job("train"))
            async with aclosing(client.follow("team-a")) as events:
                found = await until_final(events)
            see_story(found, reply.uid)
            await client.wait("train", "finished", namespace="team-a", timeout_s=60)
            async with aclosing(client.follow("team-a", "train", after=found[0].position)) as events:
                assert await until_final(events) == found[1:]
            with pytest.raises(RequestError) as caught:
                await client.status("train", namespace="team-b")
            assert caught.value.code == "denied"
            for namespace in ("team-b", "*"):
                async with aclosing(client.follow(namespace)) as events:
                    with pytest.raises(RequestError) as caught:
                        await anext(events)
                assert caught.value.code == "denied"
        with pytest.raises(ConnectionLostError, match="authorization"):
            await Client.connect(url, access=access._replace(password="wrong"))  # noqa: S106  # it is wrong
    assert token(PROGRAM) == PROGRAM
