"""Where spans go: to a receiver of OpenTelemetry, or nowhere."""

from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from berth.core.events.job_spans import JobSpan
from berth.runtime.config import ConfigError
from berth.runtime.release import install_extra


class TracingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Receiver of traces."""

    endpoint: Annotated[str, Meta(pattern=r"^(https?://[^/\s?#]+)?/?\Z", max_length=256)] = ""
    """URL of a receiver of OTLP over HTTP, without a path; empty: no traces."""
    ratio: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Part of the jobs whose traces are sent, chosen by the ids of the traces."""
    jobs_per_s: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Most jobs of that part, of those accepted or rejected in one second, whose traces are sent."""


class Spans(Protocol):
    """Takes spans."""

    def wants(self, trace_id: str) -> bool:
        """Whether the spans of a trace are sent, by its 32 hexadecimal digits."""

    def add(self, span: JobSpan) -> None:
        """Take a span; it is sent later, or dropped."""

    async def close(self) -> None:
        """Send what is left."""


class NoSpans:
    """Takes spans and does nothing with them."""

    def wants(self, trace_id: str) -> bool:  # noqa: ARG002  # the protocol has it
        """Want none."""
        return False

    def add(self, span: JobSpan) -> None:
        """Take a span."""

    async def close(self) -> None:
        """Do nothing."""


def spans_to(config: TracingConfig, *, cell: str, instance: str) -> Spans:
    """Where spans go under some settings.

    Args:
        config: The settings.
        cell: Name of the cell.
        instance: Name of the process.

    Raises:
        ConfigError: A receiver is named, and the library is not installed.
    """
    if not config.endpoint:
        return NoSpans()
    try:
        from berth.runtime.tracing.otlp import OtlpSpans  # noqa: PLC0415  # an extra, for those who name a receiver
    except ImportError as error:
        raise ConfigError(
            field="tracing.endpoint",
            value=repr(config.endpoint),
            expected=f"none without OpenTelemetry: {install_extra('tracing')}",
        ) from error
    return OtlpSpans(config.endpoint.rstrip("/"), ratio=config.ratio, cell=cell, instance=instance)
