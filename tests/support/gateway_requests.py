"""The application of the gateway without a server: requests as it gets them, on a bus in memory."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from berth.page.files import PageFile
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.services.gateway.application import Application
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.page_files import PageRoutes
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.serving import Parts, routes_of
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer


class Told(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  # whatever it says
        """Its body as JSON."""
        return msgspec.json.decode(self.body)


def an_application(
    page: Mapping[str, PageFile] | None = None, *, refusals: RefusalLog | None = None, **settings: object
) -> Application:
    """The application with all routes, or with those of a page alone; call it in an event loop."""
    config = GatewayConfig(**({"access": "open"} | settings))  # type: ignore[arg-type]  # of its settings
    clock, metrics = ManualClock(), GatewayMetrics(MetricsRegistry())
    bus = FakeBus(FakeServer(), "x")
    parts = Parts(bus, clock, config, metrics, DEFAULT_LOG)
    routes = routes_of(bus, clock, config, parts)
    if page is not None:
        routes = PageRoutes(page, []).routes()
    return Application(routes, parts.guard, clock, metrics, refusals or RefusalLog(clock, DEFAULT_LOG))


async def told(
    app: Application,
    method: str,
    path: str,
    *,
    query: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = ((b"host", b"localhost"),),
    body: Sequence[bytes] = (b"",),
) -> Told:
    """Answer to a request, whose body comes in parts."""
    sent: list[Any] = []
    waiting = list(body)

    async def send(message: Any) -> None:  # noqa: ANN401  # as the server gives it
        sent.append(message)

    async def receive() -> dict[str, Any]:
        part = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": query,
        "headers": list(headers),
    }
    await app(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Told(sent[0]["status"], head, b"".join(one.get("body", b"") for one in sent[1:]))
