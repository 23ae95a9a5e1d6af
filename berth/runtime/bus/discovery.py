"""Service discovery: a process reports its identity and statistics, in the form of the NATS service API.

``$SRV.PING``, ``$SRV.INFO``, ``$SRV.STATS`` and ``$SRV.SCHEMA`` address all processes; with the suffix ``.<name>``
those of a name, with ``.<name>.<id>`` one process. ``nats micro`` shows the answers. The statistics have a member
``data`` of Berth: whether the process is ready, its gauges, and how far it has read which stream
(:class:`ProcessReport`).

Why this is not ``nats.micro``: decision service-discovery.

Source: NATS architecture decision record 32, service API.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.formats.whole_numbers import Int64
from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.service import NatsServed

ROOT: Final = "$SRV"
_TYPE: Final = "io.nats.micro.v1"
_FIRST_ANSWER_S: Final = 1.0
_NS: Final = 1_000_000_000
_NUMBER_MAX: Final = 1 << 62
"""Largest number in statistics: whoever may answer for a process may write any number of JSON."""


class Identity(msgspec.Struct, frozen=True):
    """Identity of a process.

    Attributes:
        name: Kind of the process, such as ``berth-scorer``.
        id: Unique to this process, without dots.
        version: Release as three numbers.
        metadata: Further properties, such as the cell.
        started_ms: Start of the process, in milliseconds since 1970.
    """

    name: str
    id: str
    version: str
    metadata: dict[str, str]
    started_ms: int


class Followed(msgspec.Struct, frozen=True):
    """How far a process has received a stream.

    Attributes:
        stream: Name of the stream in the cell.
        sequence: Of the last message that it has received.
        waiting: Messages for it that it has not received, as far as it knows.
        is_filtered: Whether it follows some of the subjects only.
        foreign: Messages that came to its inbox and that its consumer did not deliver; they were dropped.
    """

    stream: str
    sequence: Int64
    waiting: Int64
    is_filtered: bool
    foreign: Int64 = 0


class OwnReport(msgspec.Struct, frozen=True):
    """What a process says of itself.

    Attributes:
        not_ready: Why it is not ready; empty if it is.
        gauges: Its gauges by name, with labels as in the text format of Prometheus.
    """

    not_ready: str
    gauges: dict[str, float]


class ProcessReport(msgspec.Struct, frozen=True):
    """What the statistics of a process contain of Berth.

    Attributes:
        not_ready: Why it is not ready; empty if it is.
        gauges: Its gauges by name, with labels as in the text format of Prometheus.
        followed: Streams that it follows.
    """

    not_ready: str = ""
    gauges: dict[str, Annotated[float, Meta(ge=-_NUMBER_MAX, le=_NUMBER_MAX)]] = {}
    followed: list[Followed] = []


class Endpoint(msgspec.Struct, frozen=True):
    """A subject on which a process answers requests."""

    subject: str


class ProcessStats(msgspec.Struct, frozen=True):
    """The statistics of a process, as far as Berth reads them.

    Attributes:
        name: Kind of the process, such as ``berth-scorer``.
        id: Unique to the process.
        version: Its release.
        metadata: Further properties, such as the cell.
        started: When it was started, as a text.
        endpoints: What it serves.
        data: What it says of itself; None from a release before 0.5.
    """

    name: str
    id: str
    version: str = ""
    metadata: dict[str, str] = {}
    started: str = ""
    endpoints: list[Endpoint] = []
    data: ProcessReport | None = None


def stats_of(answer: bytes) -> ProcessStats | None:
    """The statistics in an answer to ``$SRV.STATS``; None if it is none."""
    try:
        return _STATS.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


_STATS: Final = msgspec.json.Decoder(ProcessStats)


class Discovery:
    """Answers of one process.

    Args:
        identity: Identity of the process.
        served: Returns its current request handlers.
        report: Returns what the process says of itself now; None for nothing.
    """

    def __init__(
        self,
        identity: Identity,
        served: Callable[[], Iterable[NatsServed]],
        report: Callable[[], ProcessReport | None],
    ) -> None:
        self._identity = identity
        self._served = served
        self._report = report

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
        """Handlers by subject."""
        identity = self._identity
        return {
            f"{ROOT}.{verb}{tail}": answer
            for verb, answer in (
                ("PING", self._ping),
                ("INFO", self._info),
                ("STATS", self._stats),
                ("SCHEMA", self._schema),
            )
            for tail in ("", f".{identity.name}", f".{identity.name}.{identity.id}")
        }

    async def _ping(self, _: bytes) -> bytes:
        return self._answer("ping_response", {})

    async def _info(self, _: bytes) -> bytes:
        endpoints = [_endpoint(served) for served in self._served()]
        return self._answer("info_response", {"description": "", "endpoints": endpoints})

    async def _stats(self, _: bytes) -> bytes:
        started = datetime.fromtimestamp(self._identity.started_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
        endpoints = [{**_endpoint(served), **_counts(served)} for served in self._served()]
        report = self._report()
        data = {} if report is None else {"data": report}
        return self._answer("stats_response", {"started": started, "endpoints": endpoints, **data})

    async def _schema(self, _: bytes) -> bytes:
        endpoints = [
            {**_endpoint(served), "schema": {"request": served.endpoint.request, "response": served.endpoint.reply}}
            for served in self._served()
            if served.endpoint.request
        ]
        return self._answer("schema_response", {"endpoints": endpoints})

    def _answer(self, kind: str, more: Mapping[str, Any]) -> bytes:
        identity = self._identity
        return msgspec.json.encode(
            {
                "type": f"{_TYPE}.{kind}",
                "name": identity.name,
                "id": identity.id,
                "version": identity.version,
                "metadata": identity.metadata,
                **more,
            }
        )


async def answering(inbox: Inbox, cell: str, *, quiet_s: float) -> list[ProcessStats]:
    """Statistics of all processes of a cell that answer within a moment, by name and id.

    Args:
        inbox: Gets their answers.
        cell: Name of the cell.
        quiet_s: Processes that do not answer within this time after another one are taken for absent.

    Raises:
        TransientError: Not connected.
    """
    answers = await inbox.collect(f"{ROOT}.STATS", first_s=_FIRST_ANSWER_S, quiet_s=quiet_s)
    found = [stats for answer in answers if (stats := stats_of(answer)) is not None]
    return sorted((one for one in found if one.metadata.get("cell") == cell), key=lambda one: (one.name, one.id))


def _endpoint(served: NatsServed) -> dict[str, Any]:
    endpoint = served.endpoint
    return {"name": endpoint.name, "subject": endpoint.subject, "queue_group": endpoint.queue}


def _counts(served: NatsServed) -> dict[str, Any]:
    took_ns = round(served.took_s * _NS)
    return {
        "num_requests": served.taken,
        "num_errors": served.failed,
        "last_error": served.last_error,
        "processing_time": took_ns,
        "average_processing_time": took_ns // served.taken if served.taken else 0,
    }
