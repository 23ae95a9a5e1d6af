"""A small gateway for tests of the page: its files, a view, and a stream of the changes that a test sends."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from berth.page.files import CONTENT_POLICY, INDEX, page_files
from tests.page.documents import fits, hour, queues
from tests.page.synthetic import SyntheticCell

Answer = Callable[[Request], Awaitable[Response]]
_START_S: Final = 20.0
_KEEPALIVE_S: Final = 5.0


class PageGateway:
    """Serves the page and a synthetic cell from a thread.

    Args:
        cell: What it shows.
        token: Token that it asks for; empty: none.
        port: Where it listens; 0 for a free port.

    Attributes:
        documents: Those of views with one of their own, by path.
        requests: Paths that were asked for.
        former: Jobs that are not in the view any more.
        held: Paths whose answers wait until they are not in it any more.
        failing: Paths that are answered with 503 meanwhile.
        rights: What a reader may do, as ``me`` replies.
        sent: What readers had done: method, path and body.
        keepalive_s: Pause after which a stream sends a comment.
    """

    def __init__(self, cell: SyntheticCell, token: str = "", port: int = 0) -> None:
        self.cell = cell
        self.token = token
        self.port = port or _free_port()
        self.documents: dict[str, Any] = {
            "cell": _status(),
            "dead": _letters(cell.at_ms),
            "queues": queues(cell),
            "drains": {"drains": [], "next": ""},
            "page": {"links": []},
            "faults": {"held": [], "more_held": 0, "approvals": []},
        }
        self.requests: list[str] = []
        self.former: list[dict[str, Any]] = []
        self.held: set[str] = set()
        self.failing: set[str] = set()
        self.rights: dict[str, Any] = {"read": ["*"], "submit": [], "operate": False}
        self.sent: list[tuple[str, str, Any]] = []
        self.keepalive_s = _KEEPALIVE_S
        self._files = page_files()
        self._readers: list[asyncio.Queue[bytes | None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Listen, and return when requests are taken."""
        config = uvicorn.Config(
            self._app(), host="127.0.0.1", port=self.port, log_level="error", ws="none", lifespan="off"
        )
        server = self._server = uvicorn.Server(config)
        ready = threading.Event()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve())
                while not server.started and not server.should_exit:
                    await asyncio.sleep(0.01)
                ready.set()

        self._thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        self._thread.start()
        assert ready.wait(_START_S), "the gateway did not start"

    def stop(self) -> None:
        """End all streams, and close the port."""
        assert self._loop is not None
        assert self._server is not None
        assert self._thread is not None
        self.held.clear()
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_START_S)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def send(self, change: dict[str, Any], event: str = "change") -> None:
        """Send a change to all readers."""
        assert self._loop is not None
        data = f"event: {event}\ndata: {msgspec.json.encode(change).decode()}\n\n".encode()
        self._loop.call_soon_threadsafe(self._spread, data)

    def drop(self) -> None:
        """End all streams; readers may ask again."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._spread, None)

    def _spread(self, data: bytes | None) -> None:
        for reader in self._readers:
            reader.put_nowait(data)

    def _end(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        for reader in self._readers:
            reader.put_nowait(None)

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/bare", self._bare),
                Route("/assets/{name}", self._asset),
                Route("/api/v1/me", self._guarded(self._me)),
                Route("/api/v1/page", self._guarded(self._page)),
                Route("/api/v1/view", self._guarded(self._view)),
                Route("/api/v1/view/changes", self._guarded(self._changes)),
                Route("/api/v1/view/hour", self._guarded(self._hour)),
                Route("/api/v1/cell", self._guarded(self._cell)),
                Route("/api/v1/dead", self._guarded(self._dead)),
                Route("/api/v1/queues", self._guarded(self._queues)),
                Route("/api/v1/faults", self._guarded(self._faults)),
                Route("/api/v1/drains", self._guarded(self._drains)),
                Route("/api/v1/drains", self._guarded(self._change), methods=["POST"]),
                Route("/api/v1/drains/{kind}/{name:path}", self._guarded(self._change), methods=["DELETE"]),
                Route("/api/v1/approvals", self._guarded(self._change), methods=["POST"]),
                Route("/api/v1/jobs/{namespace}/{name}", self._guarded(self._job)),
                Route("/api/v1/jobs/{namespace}/{name}", self._guarded(self._change), methods=["DELETE"]),
                Route("/api/v1/jobs/{namespace}/{name}/events", self._guarded(self._events)),
                Route("/api/v1/jobs/{namespace}/{name}/explain", self._guarded(self._explain)),
            ]
        )

    def _guarded(self, answer: Answer) -> Answer:
        async def checked(request: Request) -> Response:
            path = request.url.path
            self.requests.append(path)
            while path in self.held:
                await asyncio.sleep(0.01)
            if path in self.failing:
                error = {"ok": False, "error": "NATS does not answer, expected it soon", "code": "unavailable"}
                return JSONResponse(error, status_code=503)
            if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
                error = {"ok": False, "error": "token is absent or unknown, expected one of a grant", "code": "denied"}
                return JSONResponse(error, status_code=401)
            return await answer(request)

        return checked

    async def _index(self, _: Request) -> Response:
        return self._file(INDEX)

    async def _bare(self, _: Request) -> Response:
        """A document without anything, for comparison."""
        return Response("<!doctype html><title>Bare</title><body>Bare", media_type="text/html")

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        return self._file(name) if name in self._files else Response(status_code=404)

    def _file(self, name: str) -> Response:
        file = self._files[name]
        headers = {"Content-Type": file.media_type, "Content-Security-Policy": CONTENT_POLICY}
        return Response(file.content, headers=headers)

    async def _me(self, _: Request) -> Response:
        return JSONResponse({"identity": "tester"} | self.rights)

    async def _view(self, _: Request) -> Response:
        return Response(msgspec.json.encode(self.cell.view()), media_type="application/json")

    async def _hour(self, _: Request) -> Response:
        return JSONResponse(self.documents.get("hour") or hour(self.cell))

    async def _cell(self, _: Request) -> Response:
        return JSONResponse(self.documents["cell"])

    async def _page(self, _: Request) -> Response:
        return JSONResponse(self.documents["page"])

    async def _faults(self, _: Request) -> Response:
        return JSONResponse(self.documents["faults"])

    async def _drains(self, _: Request) -> Response:
        return JSONResponse(self.documents["drains"])

    async def _change(self, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        body = await request.body()
        self.sent.append((request.method, f"{request.url.path}{query}", msgspec.json.decode(body) if body else None))
        return JSONResponse({"ok": True}, status_code=202)

    async def _dead(self, _: Request) -> Response:
        return JSONResponse(self.documents["dead"])

    async def _queues(self, request: Request) -> Response:
        """In pages of two."""
        after = request.query_params.get("after", "")
        found = [one for one in self.documents["queues"]["queues"] if one["name"] > after]
        page = {"queues": found[:2], "next": found[1]["name"] if found[2:] else ""}
        return JSONResponse(self.documents["queues"] | page)

    def _named(self, request: Request) -> tuple[str, str, dict[str, Any] | None]:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        known = [*self.former, *self.cell.jobs.values()]
        return (
            namespace,
            name,
            next((job for job in known if (job["namespace"], job["name"]) == (namespace, name)), None),
        )

    async def _job(self, request: Request) -> Response:
        namespace, name, job = self._named(request)
        return _no_job(namespace, name) if job is None else JSONResponse({"ok": True, "job": job})

    async def _explain(self, request: Request) -> Response:
        namespace, name, job = self._named(request)
        if job is None:
            return _no_job(namespace, name)
        sentences = [job["sentence"]] if job["sentence"] else [f"{name} has the first free nodes that suffice."]
        reply: dict[str, Any] = {"ok": True, "namespace": namespace, "name": name, "sentences": sentences}
        tasks = ["master", *["worker"] * (job["pods"] - 1)]
        reply["explanation"] = {"choices": [{"rank": rank, "task": task} for rank, task in enumerate(tasks)]}
        if request.query_params.get("nodes") == "true":
            reply["explanation"] = {"task": "worker", "fits": fits(self.cell, job)}
        return JSONResponse(reply)

    async def _events(self, request: Request) -> Response:
        prefix = f"{request.path_params['namespace']}/{request.path_params['name']}/"
        found = [event for key, events in self.cell.events.items() if key.startswith(prefix) for event in events]
        text = "".join(f"event: job\ndata: {msgspec.json.encode(event).decode()}\n\n" for event in found)
        return Response(text, media_type="text/event-stream")

    async def _changes(self, _: Request) -> Response:
        headers = {"Berth-Keepalive-S": f"{self.keepalive_s:g}"}
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[bytes]:
        reader: asyncio.Queue[bytes | None] = asyncio.Queue()
        first = b"event: view\ndata: " + msgspec.json.encode(self.cell.view()) + b"\n\n"
        self._readers.append(reader)
        try:
            yield first
            while self._server is not None and not self._server.should_exit:
                try:
                    async with asyncio.timeout(self.keepalive_s):
                        data = await reader.get()
                except TimeoutError:
                    yield b": keepalive\n\n"
                    continue
                if data is None:
                    return
                yield data
        finally:
            self._readers.remove(reader)


@contextlib.contextmanager
def running(gateway: PageGateway) -> Iterator[PageGateway]:
    """A gateway that listens within the block."""
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def _no_job(namespace: str, name: str) -> Response:
    error = {"ok": False, "error": f"name is {namespace}/{name}, expected a job", "code": "not-found"}
    return JSONResponse(error, status_code=404)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _status() -> dict[str, Any]:
    """As ``berth status --json`` prints it."""
    process = {
        "release": "0.4.0",
        "started": "2026-09-21T14:00:00Z",
        "not_ready": [],
        "is_leader": False,
        "shard": None,
    }
    return {
        "ok": False,
        "problems": ["shard 1 does not answer"],
        "status": {
            "cell": "synthetic",
            "at_ms": 1_790_000_000_000,
            "leader": {"holder": "dispatcher-1", "renewed_ms": 1_790_000_000_000, "process": "d1", "waiting": 3},
            "processes": [
                process | {"service": "dispatcher", "id": "dispatcher-1", "is_leader": True, "behind": {"FACTS": 0}},
                process | {"service": "scorer", "id": "scorer-0", "shard": 0, "behind": {"LEDGER": 1200, "FACTS": 0}},
                process | {"service": "binder", "id": "binder-1", "behind": {}, "not_ready": ["facts and ledger"]},
            ],
            "scorers": {"expected": 2, "answering": [0], "missing": [1]},
            "decision": {
                "sequence": 42,
                "at_ms": 1_789_999_990_000,
                "epoch": 1,
                "round": 4,
                "placed": 1,
                "refused": 2,
                "released": 0,
                "problem": "",
            },
            "dead_letters": {"open": 2, "oldest_ms": 1_789_999_000_000, "reasons": {"undecodable": 2}},
            "nats": {
                "server": "nats-0",
                "release": "2.11.4",
                "cluster": "",
                "address": "127.0.0.1:4222",
                "round_trip_ms": 0.4,
                "streams": [
                    {
                        "name": "FACTS",
                        "messages": 48_120,
                        "bytes": 9_400_000,
                        "first_seq": 1,
                        "last_seq": 48_120,
                        "leader": "nats-0",
                        "late": [],
                    }
                ],
                "missing": [],
            },
        },
    }


def _letters(at_ms: int) -> list[dict[str, Any]]:
    """As ``berth dead list --json`` prints it."""
    return [
        {
            "id": f"intake:{12 - index}",
            "stream": "INTAKE",
            "sequence": 12 - index,
            "subject": "berth.synthetic.intake.submit.team-a.train",
            "code": code,
            "reason": reason,
            "at_ms": at_ms - 60_000 * (index + 1),
            "stored_ms": at_ms - 60_000 * (index + 1),
            "size_bytes": 512,
            "state": "open",
        }
        for index, (code, reason) in enumerate(
            (("undecodable", "the bytes are no message of Berth"), ("wrong-subject", "the subject names another job"))
        )
    ]
