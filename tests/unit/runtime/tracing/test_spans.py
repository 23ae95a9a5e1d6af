"""Spans on their way to a receiver: what it gets, and what happens without one."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from berth.core.events.job_spans import JobSpan
from berth.runtime.config import ConfigError, load
from berth.runtime.tracing.spans import NoSpans, TracingConfig, spans_to
from berth.services.api.config import ApiConfig

ROOT = JobSpan(bytes(15) + b"\1", bytes(7) + b"\2", b"", "schedule", 1_000, 3_500, (("berth.pods", 2),), "no room")
CHILD = JobSpan(ROOT.trace_id, bytes(7) + b"\3", ROOT.span_id, "bind", 2_000, 3_000, (("berth.uid", "u"),), error="")


class Receiver:
    """What was received, with the paths of the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.requests: list[ExportTraceServiceRequest] = []

    async def take(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.requests.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")


@asynccontextmanager
async def received() -> AsyncIterator[Receiver]:
    """A receiver on this machine."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("end", ["", "/"])
async def test_a_receiver_gets_the_spans_with_their_ids_times_and_errors(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.runtime.tracing.otlp._CLOSE_S", 30.0)  # for a busy machine
    async with received() as receiver:
        spans = spans_to(TracingConfig(endpoint=f"{receiver.url}{end}"), cell="default", instance="api-1")
        spans.add(ROOT)
        spans.add(CHILD)
        await spans.close()
    assert receiver.paths == ["/v1/traces"]
    (group,) = receiver.requests[0].resource_spans
    about = {one.key: one.value.string_value for one in group.resource.attributes}
    assert (about["service.name"], about["service.namespace"], about["service.instance.id"]) == (
        "berth", "default", "api-1",
    )  # fmt: skip
    root, child = group.scope_spans[0].spans
    assert (root.trace_id, root.span_id, root.parent_span_id) == (ROOT.trace_id, ROOT.span_id, b"")
    assert (child.trace_id, child.span_id, child.parent_span_id) == (ROOT.trace_id, CHILD.span_id, ROOT.span_id)
    assert (root.name, root.start_time_unix_nano, root.end_time_unix_nano) == ("schedule", 10**9, 3_500_000_000)
    assert (root.status.message, child.status.message) == ("no room", "")
    assert [(one.key, one.value.int_value) for one in root.attributes] == [("berth.pods", 2)]
    assert [(one.key, one.value.string_value) for one in child.attributes] == [("berth.uid", "u")]


async def test_a_part_of_the_traces_is_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a trace is among them follows from its id alone, so all processes agree."""
    monkeypatch.setattr("berth.runtime.tracing.otlp._CLOSE_S", 30.0)  # for a busy machine
    async with received() as receiver:
        spans = spans_to(TracingConfig(endpoint=receiver.url, ratio=0.5), cell="default", instance="api-1")
        wanted = set()
        for number in range(200):
            half = (number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8)
            trace = half + half
            if spans.wants(trace.hex()):
                wanted.add(trace)
            spans.add(ROOT._replace(trace_id=trace))
            spans.add(CHILD._replace(trace_id=trace))
        await spans.close()
    sent = [span for one in receiver.requests for group in one.resource_spans for span in group.scope_spans[0].spans]
    traces = {span.trace_id for span in sent}
    assert 50 < len(traces) < 150
    assert wanted == traces
    assert len(sent) == 2 * len(traces)


async def test_nothing_is_sent_where_no_receiver_is_named() -> None:
    spans = spans_to(TracingConfig(), cell="default", instance="api-1")
    assert isinstance(spans, NoSpans)
    assert not spans.wants(ROOT.trace_id.hex())
    spans.add(ROOT)
    await spans.close()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "berth.runtime.tracing.otlp", None)
    with pytest.raises(ConfigError, match=r"tracing.endpoint.*pip install 'berth-npu\[tracing\]'"):
        spans_to(TracingConfig(endpoint="http://collector:4318"), cell="default", instance="api-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENDPOINT", "collector:4318"), ("ENDPOINT", "http://c/v1/traces"), ("RATIO", "2"), ("JOBS_PER_S", "0")],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"tracing.{name.lower()}"):
        load(ApiConfig, None, {f"BERTH_TRACING__{name}": value})


async def test_a_receiver_that_never_answers_keeps_nobody_from_ending() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        spans = spans_to(TracingConfig(endpoint=endpoint), cell="default", instance="api-1")
        spans.add(ROOT)
        async with asyncio.timeout(4):  # a batch may take 5 s
            await spans.close()
