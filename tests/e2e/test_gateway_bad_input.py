"""What the gateway is given by mistake or by an attacker: a clear answer, bounded memory, and others unaffected.

Longer than 400 lines because all cases share one way to send raw bytes and to read the memory of a gateway.
"""

import asyncio
import json
import re
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from tests.support.certificates import authority, certificate
from tests.support.gateway_cells import (
    ADMIN,
    IDENTITIES,
    Answer,
    Gateway,
    answering,
    gateway_cell,
    gateway_of,
    token_of,
    tokens,
)
from tests.support.processes import ROOT, services
from tests.support.programs import job_file
from tests.support.waiting import pause, until_true

pytestmark = pytest.mark.timeout(170)

JOBS: Final = "/api/v1/jobs"
ASK: Final = "/api/v1/ask"
GUIDE: Final = ROOT / "docs" / "gateway.md"
MIB: Final = 1 << 20


def a_job(name: str, namespace: str = "team-a") -> dict[str, Any]:
    return job_file(name, namespace=namespace, uid=f"uid-{namespace}-{name}", product="module910bx8", chips=1)


def memory_mib(gateway: Gateway) -> float:
    """Memory of the process now."""
    text = Path(f"/proc/{gateway.service.pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["code"]


@pytest.fixture
async def running(nats_server: str, cell: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_cell(tmp_path, nats_server, cell, nodes=False) as (gateway, _):
        yield gateway


async def test_wrong_and_expired_credentials(nats_server: str, cell: str, tmp_path: Path) -> None:
    old = {"identity": "late", "sha256": tokens()[0]["sha256"], "expires_at": "2020-01-01T00:00:00Z"}
    known = [*tokens()[1:], old]
    async with AsyncExitStack() as stack:
        made = stack.enter_context(services(tmp_path, nats_server))
        service, port = gateway_of(made, cell, tokens=known)
        service.start()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        gateway = Gateway(service, port, session)
        await until_true(lambda: _listens(gateway), deadline_s=20, what="the gateway listens")
        assert datetime.fromisoformat(old["expires_at"]) < datetime.fromtimestamp(1_700_000_000, UTC)
        expired = await gateway.ask("GET", "/api/v1/me", identity=ADMIN)
        assert code_of(expired) == (401, "no-token")
        assert "of late has expired" in expired.json["error"]
        assert code_of(await gateway.ask("GET", "/api/v1/me", identity="nobody")) == (401, "no-token")
        bare = await gateway.ask("GET", "/api/v1/me", identity="")
        assert code_of(bare) == (401, "no-token")
        assert bare.headers["WWW-Authenticate"] == 'Bearer realm="berth"'
        there = await gateway.ask("GET", "/api/v1/me", identity="viewer")
        assert code_of(there) == (503, "unavailable"), "the token is good, but no api runs"


async def _listens(gateway: Gateway) -> bool:
    try:
        return (await gateway.ask("GET", "/api/v1/openapi.json", identity="")).status == 200
    except aiohttp.ClientConnectionError:
        return False


async def test_each_identity_may_do_what_the_guide_says(running: Gateway) -> None:
    """Every identity with every endpoint of the table, in a namespace with a grant and in one without."""
    table = GUIDE.read_text("utf-8").partition("## Endpoints")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \| ([\w-]+) \|", table, re.MULTILINE)
    assert {role for _, _, role in rows} == {"public", "none", "read", "read-all", "submit", "operate"}
    roles = {
        "admin": {("team-a", "read"), ("team-a", "submit"), ("team-b", "read"), ("team-b", "submit")},
        "portal": {("team-a", "read"), ("team-a", "submit")},
        "viewer": {("team-a", "read")},
        "stranger": set[tuple[str, str]](),
        "": set[tuple[str, str]](),
    }
    assert set(roles) == {*IDENTITIES, ""}
    for namespace in ("team-a", "team-b"):
        assert (await running.ask("POST", JOBS, body=a_job("there", namespace))).status == 201
    for method, path, role in rows:
        for identity, held in roles.items():
            for namespace in ("team-a", "team-b"):
                has_path = "{namespace}" in path or (method, path) in {("POST", JOBS), ("POST", ASK)}
                granted = (namespace, role) in held if has_path else any(role == one for _, one in held)
                if role in {"read-all", "operate"}:
                    granted = identity == "admin"
                want = role == "public" or (bool(identity) and (role == "none" or granted))
                target = path.format(namespace=namespace, name="there", path="none", kind="node")
                query = "?follow=false" if path.endswith("/events") else ""
                job = a_job(f"of-{identity}", namespace)
                posted: dict[str, object] = {
                    JOBS: job,
                    ASK: {"job": job},
                    "/api/v1/drains": {"kind": "node", "name": "no-such-node"},
                    "/api/v1/approvals": {"kind": "CardUnhealthy", "domain": "nowhere"},
                }
                body = {"PATCH": {"held": True}, "POST": posted.get(path, {"jobs": [job]})}.get(method)
                if path.endswith("/changes") and want:
                    async with running.stream(target, identity=identity) as stream:
                        event = await stream.next()
                    assert event is not None
                    assert event.name == "view"
                    continue
                answer = await running.settled(method, f"{target}{query}", identity=identity, body=body)
                if role == "public":
                    assert answer.status in {200, 404}, (method, path)
                elif not identity:
                    assert answer.status == 401, (method, path)
                else:
                    assert (answer.status != 403) == want, (method, path, identity, namespace, answer)
                    assert answer.status < 500, answer


async def test_a_port_in_use_unknown_settings_and_wrong_ones_end_the_start(
    running: Gateway, nats_server: str, cell: str, tmp_path: Path
) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    cases: list[tuple[Mapping[str, object], int, str]] = [
        ({"port": running.port}, 1, f"setting port is {running.port}: cannot listen"),
        ({"prot": 1}, 2, "setting prot is 1: unknown setting; known are"),
        ({"host": "10.0.0.1", "access": "open"}, 2, "setting access is 'open'"),
        ({"host": "no.such.host.invalid", "plain_http": True}, 2, "setting host is 'no.such.host.invalid'"),
        ({"tls_cert_file": str(GUIDE), "tls_key_file": str(GUIDE)}, 2, "setting tls_cert_file is"),
    ]
    with services(folder, nats_server) as made:
        for number, (settings, code, words) in enumerate(cases):
            service = made.service("gateway", cell, label=f"-{number}", **({"port": 0} | dict(settings)))
            service.start()
            assert await service.ended() == code, service.log()
            assert words in service.log()
    assert (await running.ask("GET", "/api/v1/me")).status == 200


async def raw(gateway: Gateway, *parts: bytes, until_end: bool = True) -> bytes:
    """Answer to bytes on a connection of their own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read() if until_end else await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


HEAD: Final = (
    f"POST {JOBS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token_of(ADMIN)}\r\nContent-Type: application/json\r\n"
)


async def test_a_body_of_100_mib_is_refused_and_takes_no_memory(running: Gateway) -> None:
    before = memory_mib(running)
    size = 100 * MIB

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * MIB

    headers = {"Authorization": f"Bearer {token_of(ADMIN)}", "Content-Type": "application/json"}
    for more, text in (({"Content-Length": str(size)}, str(size)), ({}, f"over {MIB}")):
        async with running.session.post(f"{running.url}{JOBS}", data=chunks(), headers=headers | more) as answer:
            told = await answer.json()
            assert (answer.status, told["code"]) == (413, "too-large")
            assert told["error"] == f"body is {text} bytes, expected at most {MIB}"
    early = await raw(running, f"{HEAD}Content-Length: {size}\r\nConnection: close\r\n\r\n".encode())
    assert early.startswith(b"HTTP/1.1 413"), "before the body has come"
    assert memory_mib(running) - before < 20
    assert (await running.ask("POST", JOBS, body=a_job("after"))).status == 201


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"metadata":' * 50_000, "nested too deeply"),
        (b"[" * 500_000 + b"]" * 500_000, "nested too deeply"),
        (b"", "malformed"),
        (b"{}{}", "malformed"),
        (b'{"kind": "\xff"}', "expected"),
        (b"[]", "expected a JSON object"),
        (b"{}", "job"),
        (
            b'{"apiVersion": "berth/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"wrong": 1}}',
            "job.spec.wrong",
        ),
    ],
)
async def test_json_that_is_no_job(running: Gateway, body: bytes, words: str) -> None:
    answer = await running.ask("POST", JOBS, body=body)
    assert answer.status == 400
    assert words in answer.json["error"]
    assert re.search(r" is .*, expected |missing", answer.json["error"])


async def test_requests_of_a_wrong_form(running: Gateway) -> None:
    job = json.dumps(a_job("x")).encode()
    plain = await running.ask("POST", JOBS, body=job, headers={"Content-Type": "text/plain"})
    assert code_of(plain) == (415, "wrong-content-type")
    wrong = await running.ask("GET", "/api/v1/me?access_token=x")
    assert code_of(wrong) == (400, "token-in-url")
    for headers in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        crossed = await running.ask("POST", JOBS, body=job, headers=headers)
        assert code_of(crossed) == (403, "cross-site")
        assert not [name for name in crossed.headers if name.lower().startswith("access-control")]
    preflight = await running.ask("OPTIONS", JOBS, identity="", headers={"Access-Control-Request-Method": "POST"})
    assert preflight.status in {401, 405}
    for path in ("/assets/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2f..%2fetc%2fpasswd", "/..%2fetc/passwd"):
        assert (await raw(running, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())).startswith(
            b"HTTP/1.1 404"
        )
    for path in (f"{JOBS}/team-a/..%2f..%2fx", f"{JOBS}/team*a/x", f"{JOBS}/team-a/{'x' * 300}"):
        assert (await running.ask("GET", path)).status in {400, 404}
    assert (await running.ask("PATCH", JOBS, body=job)).status == 405

    async def has_view() -> bool:
        return (await running.ask("GET", "/api/v1/view")).status == 200

    await until_true(has_view, deadline_s=20, what="the view is known")
    for path in (f"{JOBS}/team-a/x/events", "/api/v1/view/changes"):
        head = await running.ask("HEAD", path)
        assert (head.status, head.body) == (200, b""), "a stream without events ends at once"
    gone = await running.ask("GET", f"{JOBS}/team-a/nobody")
    assert code_of(gone) == (404, "not-found")


async def test_what_is_no_http_and_heads_that_are_too_long(running: Gateway) -> None:
    assert b"request is malformed" in await raw(running, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
    endless = [b"GET / HTTP/1.1\r\nHost: x\r\n", *(b"X-Header: " + b"y" * 8_000 + b"\r\n" for _ in range(12))]
    for _ in range(20):  # also if the answer is there before the client has sent everything
        assert (await raw(running, *endless)).startswith(b"HTTP/1.1 413")
    one = [b"GET / HTTP/1.1\r\nHost: x\r\nX: ", *(b"y" * 8_000 for _ in range(12))]
    assert (await raw(running, *one)).startswith(b"HTTP/1.1 413")
    assert (await running.ask("GET", "/api/v1/me")).status == 200


async def test_a_client_that_is_refused_and_sends_on_is_cut_off(running: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)

    async def send_on() -> None:
        while True:
            writer.write(b"\x16" * 1_000)
            await writer.drain()
            await pause(0.01)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(send_on(), timeout=60)
    writer.close()
    with suppress(ConnectionError):
        assert b"request is malformed" in await reader.read()


async def test_slow_requests_are_ended_and_others_go_on(nats_server: str, cell: str, tmp_path: Path) -> None:
    async with gateway_cell(tmp_path, nats_server, cell, nodes=False, request_timeout_s=1) as (gateway, _):
        slow = {
            "nothing": raw(gateway),
            "a part of a head": raw(gateway, b"GET / HTTP/1.1\r\nHo"),
            "a part of a body": raw(gateway, f"{HEAD}Content-Length: 1000\r\n\r\n{{".encode()),
        }
        refused = await raw(gateway, f"{HEAD}Content-Length: {5 * MIB}\r\n\r\n{{".encode())
        assert (refused[:12], refused.count(b"HTTP/1.1")) == (b"HTTP/1.1 413", 1), "one answer, though more was to come"
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(one, name=name) for name, one in slow.items()}
            assert (await gateway.ask("GET", "/api/v1/me")).status == 200
        for name, task in tasks.items():
            assert task.result().startswith(b"HTTP/1.1 408"), name


async def test_slow_long_bodies_of_one_identity_are_few(nats_server: str, cell: str, tmp_path: Path) -> None:
    """All but a byte of each arrives: without a bound a thousand of them are as many MiB."""
    async with gateway_cell(tmp_path, nats_server, cell, nodes=False, request_timeout_s=20) as (gateway, _):
        before = memory_mib(gateway)
        body = b'{"a": "' + b"x" * (MIB - 100)
        head = f"{HEAD}Content-Length: {MIB - 10}\r\n\r\n".encode()
        async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
            answers = []
            for _ in range(96):
                reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                stack.callback(writer.close)
                writer.write(head + body)
                answers.append(group.create_task(reader.readexactly(12)))
            await until_true(lambda: _are_answered(answers, 64), deadline_s=15, what="the others are refused")
            assert {one.result() for one in answers if one.done()} == {b"HTTP/1.1 503"}
            assert memory_mib(gateway) < before + 70
            own = raw(gateway, f"{HEAD}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
            assert (await own).startswith(b"HTTP/1.1 400"), "short bodies go on"
            for one in answers:
                one.cancel()


async def _are_answered(answers: list["asyncio.Task[bytes]"], count: int) -> bool:
    return sum(one.done() for one in answers) >= count


async def test_connections_beyond_the_limit_are_told_so(nats_server: str, cell: str, tmp_path: Path) -> None:
    async with gateway_cell(tmp_path, nats_server, cell, nodes=False, connections_max=20) as (gateway, _):
        async with AsyncExitStack() as stack:
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                stack.callback(writer.close)
            answer = await raw(gateway)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b'"too-many"' in answer
        await answering(gateway)


async def test_a_slow_reader_is_ended_and_others_miss_nothing(nats_server: str, cell: str, tmp_path: Path) -> None:
    """The slow one does not read at all; its events fill what the system keeps for it, and then its queue."""
    (probes,) = free_ports(1)
    settings: dict[str, Any] = {"stream_events_max": 16, "write_timeout_s": 3, "probes": {"port": probes}}
    async with gateway_cell(tmp_path, nats_server, cell, nodes=False, **settings) as (gateway, _):
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            subject = bus.subjects.event_job("team-a", "train")
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            writer.write(
                f"GET {JOBS}/team-a/train/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token_of(ADMIN)}\r\n\r\n".encode()
            )
            assert b" 200 OK" in await reader.readuntil(b"\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
            async with gateway.stream(f"{JOBS}/team-a/train/events") as quick:
                count = 400
                for number in range(count):
                    data = {"id": f"u/{number}", "phase": "waiting", "sentence": "x" * 50_000}
                    await bus.publish(subject, json.dumps(data).encode())
                    event = await quick.next()
                    assert event is not None
                    assert event.data["id"] == f"u/{number}"
            await until_true(lambda: _is_cut(gateway, probes), deadline_s=20, what="the slow reader is cut off")
            writer.close()
        assert memory_mib(gateway) < 300


async def _is_cut(gateway: Gateway, probes: int) -> bool:
    async with gateway.session.get(f"http://127.0.0.1:{probes}/metrics") as answer:
        text = await answer.text()
    return "berth_gateway_slow_readers_total 1.0" in text and "berth_gateway_open_streams 1.0" not in text


async def test_https_and_a_host_beyond_this_machine(nats_server: str, cell: str, tmp_path: Path) -> None:
    signed, key = certificate(tmp_path, "gateway", authority(tmp_path))
    with services(tmp_path, nats_server) as made:
        for name in ("dispatcher", "api"):
            made.service(name, cell, **({"shards": 0} if name == "dispatcher" else {})).start()  # type: ignore[arg-type]  # of its settings
        files = {"tls_cert_file": str(signed), "tls_key_file": str(key)}
        service, port = gateway_of(made, cell, tokens=tokens(), **files)
        service.start()
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            gateway = Gateway(service, port, session)
            gateway.url = f"https://127.0.0.1:{port}"
            await answering(gateway)
            assert (await gateway.ask("POST", JOBS, body=a_job("train"))).status == 201
            async with gateway.stream(f"{JOBS}/team-a/train/events") as stream:
                event = await stream.next()
                assert event is not None


async def test_thousands_of_streams_are_open_and_more_are_refused(nats_server: str, cell: str, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = min(10_000, (hard if hard != resource.RLIM_INFINITY else 1 << 20) - 1_000) // 4
    assert most >= 2_000, "this machine gives too few files"
    try:
        async with gateway_cell(tmp_path, nats_server, cell, nodes=False, streams_max=most) as (gateway, _):
            before = memory_mib(gateway)
            async with AsyncExitStack() as stack:
                connector = aiohttp.TCPConnector(limit=0)
                session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
                many = Gateway(gateway.service, gateway.port, session)
                turn = asyncio.Semaphore(64)

                async def one() -> Any:  # noqa: ANN401  # a stream
                    async with turn:
                        headers = {"Authorization": f"Bearer {token_of(ADMIN)}"}
                        return await session.get(f"{many.url}{JOBS}/team-a/train/events", headers=headers, timeout=None)

                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(), name="open") for _ in range(most)]
                streams = [task.result() for task in tasks]
                assert {one.status for one in streams} == {200}
                over = await gateway.ask("GET", f"{JOBS}/team-a/train/events")
                assert code_of(over) == (503, "too-many")
                assert over.headers["Retry-After"] == "1"
                per_stream_kb = (memory_mib(gateway) - before) * 1024 / most
                assert per_stream_kb < 100, f"{per_stream_kb} KiB for each stream"
                assert (await gateway.ask("POST", JOBS, body=a_job("train"))).status == 201
                for stream in streams:
                    async with asyncio.timeout(60):
                        while b'"accepted"' not in await stream.content.readline():
                            pass
                for stream in streams:
                    stream.close()

            async def is_free() -> bool:
                answer = await gateway.ask("GET", f"{JOBS}/team-a/train/events?follow=false")
                return answer.status == 200

            await until_true(is_free, deadline_s=20, what="streams are closed")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
