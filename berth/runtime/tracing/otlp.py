"""Sends spans to a receiver of OpenTelemetry (OTLP over HTTP). Importing this needs the extra ``tracing``.

A thread of the library sends them in batches. What a slow or absent receiver does not take in time is dropped, so that
no process waits for it at its end.

Source: docs/howto/trace-jobs.md, "Trace jobs".
"""

import asyncio
import contextlib
import threading
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from berth.core.events.job_spans import JobSpan
from berth.runtime.release import release

_PATH: Final = "/v1/traces"
_MS_NS: Final = 1_000_000
_SCOPE: Final = "berth"
_SEND_S: Final = 5
"""How long a receiver may take for a batch."""
_CLOSE_S: Final = 2.0
"""How long it may take for the last ones."""


class _GivenIds(IdGenerator):
    """Ids that the next span gets."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class OtlpSpans:
    """Sends spans.

    Args:
        endpoint: URL of the receiver without the path.
        ratio: Part of the traces that is sent, chosen by their ids.
        cell: Name of the cell.
        instance: Name of the process.
    """

    def __init__(self, endpoint: str, *, ratio: float, cell: str, instance: str) -> None:
        self._ids = _GivenIds()
        self._sampler = TraceIdRatioBased(ratio)
        resource = Resource.create(
            {
                "service.name": "berth",
                "service.namespace": cell,
                "service.instance.id": instance,
                "service.version": release(),
            }
        )
        self._provider = TracerProvider(
            sampler=self._sampler, id_generator=self._ids, resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}{_PATH}", timeout=_SEND_S))
        )
        self._tracer = self._provider.get_tracer(_SCOPE, release())

    def wants(self, trace_id: str) -> bool:
        """Whether a trace is in the part that is sent."""
        return self._sampler.should_sample(None, int(trace_id, 16), "").decision is Decision.RECORD_AND_SAMPLE

    def add(self, span: JobSpan) -> None:
        """Queue a span."""
        self._ids.trace_id, self._ids.span_id = int.from_bytes(span.trace_id), int.from_bytes(span.span_id)
        parent: trace.Span = trace.INVALID_SPAN
        if span.parent_id:
            above = trace.SpanContext(
                self._ids.trace_id,
                int.from_bytes(span.parent_id),
                is_remote=True,
                trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            )
            parent = trace.NonRecordingSpan(above)
        made = self._tracer.start_span(
            span.name,
            trace.set_span_in_context(parent),
            attributes=dict(span.attributes),
            start_time=span.start_ms * _MS_NS,
        )
        if span.error:
            made.set_status(trace.StatusCode.ERROR, span.error)
        made.end(span.end_ms * _MS_NS)

    async def close(self) -> None:
        """Send what is queued, and stop; what is not taken within 2 s is dropped."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def stop() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stopped.set)

        # A thread of the loop's own would be waited for when the loop ends.
        threading.Thread(target=stop, name="spans", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await stopped.wait()
