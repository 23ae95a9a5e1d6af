"""Service discovery: a process reports its identity and statistics, in the form of the NATS service API.

``$SRV.PING``, ``$SRV.INFO``, ``$SRV.STATS`` and ``$SRV.SCHEMA`` address all processes; with the suffix ``.<name>``
those of a name, with ``.<name>.<id>`` one process. ``nats micro`` shows the answers. The statistics have a member
``data`` of Berth: whether the process is ready, its gauges, and how far it has read which stream
(:class:`berth.runtime.bus.process_stats.ProcessReport`).

Why this is not ``nats.micro``: decision service-discovery.

Source: NATS architecture decision record 32, service API.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.process_stats import Identity, ProcessReport, ProcessStats, stats_of
from berth.runtime.bus.service import NatsServed

ROOT: Final = "$SRV"
_TYPE: Final = "io.nats.micro.v1"
_FIRST_ANSWER_S: Final = 1.0
_NS: Final = 1_000_000_000


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
