"""Expected starts for programs: of the jobs that they may read, and of a job that is not submitted."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from berth.core.expected.expectation import ExpectedStart, as_of, sentences
from berth.core.expected.forecast import Forecast
from berth.core.explain.restricted import MayRead, without_names
from berth.core.state.admission import Holder, Receipt, admit
from berth.runtime.clock import Clock
from berth.schemas.programs.expected import (
    AskReply,
    ExpectedJob,
    ExpectedStartsReply,
    ExpectedStartsRequest,
)
from berth.services.api.config import EVERY
from berth.services.api.job_states import utc_text
from berth.services.api.request_errors import RefusedError, RequestError
from berth.services.api.submission import Sent
from berth.services.api.turns import counted

ASK_TOKENS: Final = 8
"""What a question costs beyond a request: it is planned on the whole cell."""
_AT_ONCE: Final = 4
"""Questions of one identity that are open at the same time."""
_BYTES_MAX: Final = 500_000
"""Longest page."""


class OpenQuestions:
    """Bounds the questions of each identity that are open at the same time."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def of(self, identity: str) -> Iterator[None]:
        """Count a question while the block runs.

        Raises:
            RequestError: The identity has too many.
        """
        if self._open[identity] >= _AT_ONCE:
            raise RequestError(
                "identity",
                f"{identity!r} with {_AT_ONCE} questions about starts at the same time",
                "fewer: wait for an answer before the next one",
                code="too-many",
            )
        with counted(self._open, identity):
            yield


def page_of(
    forecast: Forecast, asked: ExpectedStartsRequest, may_read: MayRead, clock: Clock
) -> tuple[ExpectedStartsReply, int]:
    """A page of expected starts, and how many jobs were looked at for it.

    Args:
        forecast: Of the cell.
        asked: Which jobs.
        may_read: Whether the caller may read a namespace.
        clock: Of the process.
    """
    found: list[ExpectedJob] = []
    size, following, last, looked_at = 0, "", "", 0
    for one in sorted(forecast.all(), key=lambda one: (one.namespace, one.name)):
        cursor = f"{one.namespace}/{one.name}"
        if asked.namespace not in {EVERY, one.namespace} or (one.namespace, one.name) <= _split(asked.after):
            continue
        if not may_read(one.namespace):
            continue
        looked_at += 1
        job = job_of(one, forecast.at_ms, may_read, clock)
        size += len(msgspec.json.encode(job))
        if len(found) == asked.limit or (found and size > _BYTES_MAX):
            following = last
            break
        found.append(job)
        last = cursor
    reply = ExpectedStartsReply(
        jobs=found, next=following, at_ms=forecast.at_ms, facts_seq=forecast.facts_seq, ledger_seq=forecast.ledger_seq
    )
    return reply, looked_at


def _split(cursor: str) -> tuple[str, str]:
    namespace, _, name = cursor.partition("/")
    return namespace, name


def answer_of(forecast: Forecast, sent: Sent, may_read: MayRead, clock: Clock) -> AskReply:
    """The answer to a question about a job that is not submitted."""
    expected = forecast.ask(sent.request, with_victims=sent.asks_victims)
    return AskReply(
        expected=job_of(expected, forecast.at_ms, may_read, clock),
        at_ms=forecast.at_ms,
        facts_seq=forecast.facts_seq,
        ledger_seq=forecast.ledger_seq,
    )


def check_acceptable(sent: Sent, forecast: Forecast) -> None:
    """Check that a cell would take a job, whoever has its name.

    Raises:
        RefusedError: The cell would reject the job.
    """
    verdict = admit(sent.request, Receipt(0, 0, forecast.at_ms), Holder(), forecast.settings)
    if verdict.refusal is not None:
        raise RefusedError(verdict.refusal, sent.name_of)


def job_of(expected: ExpectedStart, at_ms: int, may_read: MayRead, clock: Clock) -> ExpectedJob:
    """An expected start as programs get it: jobs that the caller may not read have no names, no start is past."""
    now_ms = max(at_ms, clock.now_ms())
    shown: ExpectedStart = as_of(without_names(expected, may_read), now_ms)
    return ExpectedJob(
        namespace=shown.namespace,
        name=shown.name,
        uid=shown.uid,
        queue=shown.queue,
        position=shown.position,
        chips_ahead=shown.chips_ahead,
        queue_position=shown.queue_position,
        queue_chips_ahead=shown.queue_chips_ahead,
        earliest_ms=shown.earliest_ms,
        latest_ms=shown.latest_ms,
        not_before_ms=shown.not_before_ms,
        code=shown.code,
        ahead=shown.ahead,
        held_by=shown.held_by,
        held_by_more=shown.held_by_more,
        victims=shown.victims,
        sentences=sentences(shown, utc_text, at_ms=now_ms),
    )
