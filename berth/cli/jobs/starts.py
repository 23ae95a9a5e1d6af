"""Expected starts of the jobs that wait, for lists."""

from collections.abc import Mapping
from typing import Final, Protocol

from berth.cli.api import NoApiError, ask
from berth.cli.jobs.queue_order import JobKey
from berth.cli.output import age
from berth.runtime.bus.port import Bus
from berth.schemas.programs.expected import ExpectedJob, ExpectedStartsReply, ExpectedStartsRequest

_ANSWER_S: Final = 15.0
"""The service ``api`` reads the state of the cell for the first answer."""
_SHORT: Final = {"no-end": "unknown", "behind": "unknown", "too-many-tasks": "unknown", "paused": "unknown"}


class Start(Protocol):
    """What a list shows of an expected start."""

    @property
    def queue_position(self) -> int:
        """Position in its queue."""

    @property
    def earliest_ms(self) -> int:
        """0 without an answer."""

    @property
    def latest_ms(self) -> int:
        """0 if nobody knows."""

    @property
    def not_before_ms(self) -> int:
        """0 without."""

    @property
    def code(self) -> str:
        """Why there is no answer."""


async def expected_starts(bus: Bus) -> Mapping[JobKey, Start]:
    """Expected starts of all jobs that wait, of the service ``api``; where that does not answer they are made here."""
    try:
        return await _of_api(bus)
    except NoApiError:
        from berth.cli.jobs.forecast import forecast_now  # noqa: PLC0415  # takes time that a list does not need

        return {(one.namespace, one.name): one for one in (await forecast_now(bus)).all()}


async def _of_api(bus: Bus) -> dict[JobKey, ExpectedJob]:
    found: dict[JobKey, ExpectedJob] = {}
    after = ""
    while True:
        request = ExpectedStartsRequest(after=after)
        reply = await ask(bus, "expected-starts", request, ExpectedStartsReply, wait_s=_ANSWER_S)
        found.update(((one.namespace, one.name), one) for one in reply.jobs)
        after = reply.next
        if not after:
            return found


def short_start(start: Start | None, now_ms: int) -> str:
    """When a job is expected to start, for a column: ``in 5 min``, ``in 5 min to 2 h``, ``after 3 h``, or why not."""
    if start is None:
        return "-"
    if start.not_before_ms:
        return f"after {_until(start.not_before_ms, now_ms)}"
    if not start.earliest_ms:
        return _SHORT.get(start.code, start.code)
    first = _until(start.earliest_ms, now_ms)
    if not start.latest_ms:
        return f"in {first} or later"
    last = _until(start.latest_ms, now_ms)
    return f"in {first}" if first == last else f"in {first} to {last}"


def _until(at_ms: int, now_ms: int) -> str:
    return age(now_ms, max(at_ms, now_ms))
