"""The gateway against real processes: every operation over HTTP, streams of events, rights by token."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName
from tests.support.gateway_cells import Gateway, gateway_cell
from tests.support.programs import job_file
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(120)

JOBS = "/api/v1/jobs"


def a_job(name: str, *, namespace: str = "team-a", **spec: object) -> dict[str, Any]:
    return job_file(name, namespace=namespace, uid=f"uid-{name}", product="module910bx8", chips=1, **spec)


@pytest.fixture
async def running(nats_server: str, cell: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_cell(tmp_path, nats_server, cell) as (gateway, _):
        yield gateway


async def test_every_operation_over_http(running: Gateway) -> None:
    job = a_job("train", runFor="60s")
    first = await running.ask("POST", JOBS, body=job)
    assert (first.status, first.json["ok"], first.json["uid"]) == (201, True, "uid-train")

    async def is_known() -> bool:
        return (await running.ask("POST", JOBS, body=job)).status == 200

    await until_true(is_known, deadline_s=10, what="the verdict on the request is known")
    again = await running.ask("POST", JOBS, body=job)
    assert (again.json["duplicate"], again.json["sequence"]) == (True, first.json["sequence"])

    async def is_placed() -> bool:
        state = await running.ask("GET", f"{JOBS}/team-a/train")
        assert state.status == 200
        return bool(state.json["ranks"])

    await until_true(is_placed, deadline_s=20, what="a place")
    told = await running.ask("GET", f"{JOBS}/team-a/train/explain?uid=uid-train")
    assert told.status == 200
    assert told.json["sentences"]
    page = await running.ask("GET", "/api/v1/nodes?limit=2")
    assert len(page.json["nodes"]) == 2
    after = await running.ask("GET", f"/api/v1/nodes?after={page.json['next']}&limit=1")
    assert after.json["nodes"][0]["name"] > page.json["next"]
    name = page.json["nodes"][1]["name"]
    assert [one["name"] for one in (await running.ask("GET", f"/api/v1/nodes?names={name},none")).json["nodes"]] == [
        name
    ]
    over = await running.ask("DELETE", f"{JOBS}/team-a/train?reason=enough")
    assert (over.status, over.json["uid"]) == (202, "uid-train")
    me = await running.ask("GET", "/api/v1/me", identity="portal")
    assert me.json == {"ok": True, "identity": "portal", "read": ["team-a"], "submit": ["team-a"], "operate": False}
    place = {"kind": "node", "name": name}
    refused = await running.ask("POST", "/api/v1/drains", identity="portal", body=place)
    assert (refused.status, refused.json["code"]) == (403, "denied")
    assert (await running.ask("POST", "/api/v1/drains", body=place)).status == 202

    async def is_returned() -> bool:
        return (await running.ask("DELETE", f"/api/v1/drains/node/{name}")).status == 202

    await until_true(is_returned, deadline_s=10, what="the drain is known")
    document = await running.ask("GET", "/api/v1/openapi.json", identity="")
    assert (document.status, document.json["openapi"]) == (200, "3.1.0")


async def test_events_of_a_job_come_from_the_beginning_and_go_on(running: Gateway) -> None:
    path = f"{JOBS}/team-a/train/events"
    async with running.stream(path, identity="viewer") as early:
        assert (await running.ask("POST", JOBS, body=a_job("train", runFor="1s"))).status == 201
        live = await early.until("succeeded")
    assert live[0].data["phase"] == "accepted"
    ids = [event.id for event in live]
    assert ids == sorted(set(ids))
    async with running.stream(f"{path}?follow=false") as stored:
        assert await stored.rest() == live
    async with running.stream(f"{path}?follow=false&after={ids[1]}") as later:
        assert await later.rest() == live[2:]
    async with running.stream(f"{path}?follow=false&after=0", headers={"Last-Event-ID": str(ids[-2])}) as resumed:
        assert await resumed.rest() == live[-1:]
    async with running.stream(f"{JOBS}/team-a/other/events?follow=false") as none:
        assert await none.rest() == []
    lost = await running.ask("GET", f"{path}?after=999999999")
    assert (lost.status, lost.json["code"]) == (410, "events-lost")


async def test_a_stream_sends_comments_while_nothing_happens(nats_server: str, cell: str, tmp_path: Path) -> None:
    async with (
        gateway_cell(tmp_path, nats_server, cell, nodes=False, keepalive_s=0.1) as (gateway, _),
        gateway.stream(f"{JOBS}/team-a/quiet/events") as stream,
    ):
        reading = asyncio.get_running_loop().create_task(stream.next(), name="read")
        await until(lambda: stream.comments >= 3, deadline_s=10, what="comments")
        reading.cancel()


async def test_a_stream_goes_on_after_nats_was_down(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    async with gateway_cell(tmp_path, own_server.url, cell) as (gateway, _):
        path = f"{JOBS}/team-a/train/events"
        async with gateway.stream(path) as stream:
            await own_server.stop()
            down = await gateway.ask("GET", f"{JOBS}/team-a/train")
            assert (down.status, down.json["code"], down.headers["Retry-After"]) == (503, "unavailable", "1")
            await own_server.start()

            async def is_stored() -> bool:
                return (await gateway.ask("POST", JOBS, body=a_job("train", runFor="1s"))).status in {200, 201}

            await until_true(is_stored, deadline_s=30, what="the job is stored")
            found = await stream.until("succeeded")
        async with gateway.stream(f"{path}?follow=false") as stored:
            assert await stored.rest() == found


async def test_streams_end_with_a_reason_when_the_events_are_made_again(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    async with (
        gateway_cell(tmp_path, own_server.url, cell, nodes=False) as (gateway, running),
        gateway.stream(f"{JOBS}/team-a/train/events") as stream,
    ):
        await running["api"].stop()  # it ends when the stream is gone
        async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.delete_stream(StreamName.EVENTS)
            await bus.ensure_streams()
        (end,) = await stream.rest()
        assert (end.name, end.data["code"]) == ("end", "events-lost")


async def test_streams_end_with_a_reason_when_the_gateway_stops(running: Gateway) -> None:
    async with running.stream(f"{JOBS}/team-a/train/events") as stream:
        stopping = asyncio.get_running_loop().create_task(running.service.stop(), name="stop")
        (end,) = await stream.rest()
        assert (end.name, end.data["code"]) == ("end", "unavailable")
        await stopping


async def test_what_one_identity_takes_leaves_room_for_others(nats_server: str, cell: str, tmp_path: Path) -> None:
    shares: dict[str, Any] = {"streams_per_identity": 2, "requests_per_identity": 2, "answer_timeout_s": 20}
    events, state = f"{JOBS}/team-a/train/events", f"{JOBS}/team-a/train"
    async with gateway_cell(tmp_path, nats_server, cell, nodes=False, **shares) as (gateway, services_by_name):
        async with gateway.stream(events, identity="portal"), gateway.stream(events, identity="portal"):
            over = await gateway.ask("GET", events, identity="portal")
            assert (over.status, over.json["code"]) == (503, "too-many")
            assert "open streams of portal is 2" in over.json["error"]
            assert over.headers["Retry-After"] == "1"
            async with gateway.stream(events, identity="viewer"):
                pass
        api = services_by_name["api"]
        os.kill(api.pid, signal.SIGSTOP)
        try:
            async with asyncio.TaskGroup() as group:
                ask = partial(gateway.ask, "GET", state)
                waiting = [group.create_task(ask(identity="portal"), name="ask") for _ in range(3)]
                refused, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                other = group.create_task(ask(identity="viewer"), name="ask")
                os.kill(api.pid, signal.SIGCONT)
        finally:
            os.kill(api.pid, signal.SIGCONT)
        (over,) = [task.result() for task in refused]
        assert (over.status, over.json["code"]) == (503, "too-many")
        assert "requests at once of portal is 2" in over.json["error"]
        assert sorted(task.result().status for task in (*waiting, other)) == [404, 404, 404, 503]
