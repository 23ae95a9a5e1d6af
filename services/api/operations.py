"""Operations that programs ask for: decode, check the rights, carry out, reply.

Longer than 400 lines because each operation has its step here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeVar

import msgspec

from berth.core.expected.forecast import Forecast
from berth.core.explain.recovery_text import recovery_words
from berth.core.state.cell import JobKey
from berth.runtime.bus.fair_queue import FairTurns
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import OversizeError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.logs import LogLimit
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.programs.events import EventsReply, JobEvent
from berth.schemas.programs.expected import AskReply, ExpectedStartsRequest
from berth.schemas.programs.operations import OPERATIONS, Operation
from berth.schemas.programs.replies import (
    CancelReply,
    ErrorReply,
    ExplainReply,
    JobState,
    Rank,
    RightsReply,
    StatusReply,
    SubmitManyReply,
    SubmitReply,
    SubmitResult,
    UpdateReply,
)
from berth.schemas.programs.requests import (
    CancelRequest,
    EventsRequest,
    ExplainRequest,
    RightsRequest,
    StatusRequest,
    UpdateRequest,
)
from berth.schemas.programs.shape import Reply
from berth.schemas.status import JobStatus, stored_status
from berth.schemas.subjects import StreamName
from berth.services.api.access import Access, identity_of
from berth.services.api.config import EVERY
from berth.services.api.event_pages import EventPages
from berth.services.api.expected_starts import ASK_TOKENS, OpenQuestions, answer_of, check_acceptable, page_of
from berth.services.api.explanations import Explained, Explanations
from berth.services.api.job_list import OVER
from berth.services.api.job_states import SUBMITTED, job_state, utc_text
from berth.services.api.lists import Lists, Page
from berth.services.api.loop import Loop
from berth.services.api.metrics import ApiMetrics
from berth.services.api.rates import Rates
from berth.services.api.request_errors import RequestError, decoded, reply_of, reply_too_large
from berth.services.api.submission import (
    Sent,
    check_unused,
    judge,
    read_question,
    read_submission,
    read_submissions,
    uid_of,
)
from berth.services.api.turns import Turns
from berth.services.api.updates import Maintenance, wish_of

T = TypeVar("T")
_WAITS: Final = "events"
"""Operation that may wait for what is to come: how long it takes says nothing of the service."""
_EVENTS_A_TOKEN: Final = 100
"""Stored events, which are read and given as they are."""
_JOBS_A_TOKEN: Final = 2
"""Jobs of one request, beside the objects in it: together they cost what as many requests would."""
_READ_AT_ONCE_BYTES: Final = 8_192
"""Longest submission that is read between two others: it takes some milliseconds."""
_WRONG: Final = frozenset({"invalid-request", "too-large"})
"""Codes of requests that are refused for what is in them."""


class Operations:
    """Carries out the requests of programs.

    Args:
        bus: The cell.
        clock: Of the process.
        loop: Keeps the state of the cell, and stores events.
        access: Who may do what.
        rates: How often each caller may ask.
        explanations: Of jobs.
        pages: Of events.
        instruments: Of the process.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        loop: Loop,
        access: Access,
        rates: Rates,
        explanations: Explanations,
        pages: EventPages,
        instruments: Instruments[ApiMetrics],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._state = loop.state
        self._waiting = loop.waiting
        self._writer = loop.writer
        self._access = access
        self._rates = rates
        self._explanations = explanations
        self._pages = pages
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._errors = LogLimit(clock)
        self._turns = Turns()
        self._questions = OpenQuestions()
        self._reading = FairTurns()
        self._reading_aside = FairTurns()
        self._steps: Mapping[str, Callable[[bytes, str], Awaitable[Reply | Page]]] = {
            **Lists(bus, clock, loop, access).steps(),
            **Maintenance(bus, clock, loop.state, access, instruments.log).steps(),
            "submit": self._submit,
            "submit-many": self._submit_many,
            "cancel": self._cancel,
            "update": self._update,
            "status": self._status,
            "explain": self._explain,
            "expected-starts": self._expected_starts,
            "ask": self._ask,
            "events": self._events,
            "rights": self._rights,
        }

    def handlers(self) -> list[tuple[Operation, Callable[[str, bytes], Awaitable[bytes]]]]:
        """Each operation with its handler, which is given the subject and the request."""
        return [(one, self._handler(one.verb)) for one in OPERATIONS]

    def _handler(self, verb: str) -> Callable[[str, bytes], Awaitable[bytes]]:
        async def handle(subject: str, data: bytes) -> bytes:
            began_s = self._clock.monotonic_s()
            reply = await self._reply(verb, subject, data)
            encoded = reply.data if isinstance(reply, Page) else msgspec.json.encode(reply)
            limit = self._bus.payload_limit_bytes
            if len(encoded) > limit:
                reply = reply_too_large(verb, size_bytes=len(encoded), limit_bytes=limit)
                encoded = msgspec.json.encode(reply)
            result = reply.code if isinstance(reply, ErrorReply) else "ok"
            self._metrics.requests.labels(verb, result).inc()
            if verb != _WAITS:
                self._metrics.took.observe(self._clock.monotonic_s() - began_s)
            return encoded

        return handle

    async def _reply(self, verb: str, subject: str, data: bytes) -> Reply | Page:
        try:
            identity = identity_of(subject, verb_subject=self._bus.subjects.api(verb))
            return await self._carry_out(verb, identity, data)
        except (RequestError, OversizeError, TransientError) as error:
            return reply_of(error)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the next request must be answered
            if count := self._errors.take():
                self._log.error("request could not be carried out", subject=subject, count=count, exc_info=error)
            return ErrorReply(error="request is set aside by an error of Berth, expected none", code="internal")

    async def _carry_out(self, verb: str, identity: str, data: bytes) -> Reply | Page:
        if not self._access.is_bounded(identity):
            return await self._steps[verb](data, identity)
        self._rates.take(identity, data)
        try:
            reply = await self._steps[verb](data, identity)
        except RequestError as error:
            if error.code in _WRONG:
                self._rates.charge_wrong(identity, data)
            raise
        if isinstance(reply, Page):
            self._rates.charge(identity, reply.tokens)
        elif isinstance(reply, EventsReply):
            self._rates.charge(identity, len(reply.events) // _EVENTS_A_TOKEN)
        return reply

    async def _submit(self, data: bytes, identity: str) -> SubmitReply:
        return await self._store(await self._read(read_submission, data, identity), identity)

    async def _submit_many(self, data: bytes, identity: str) -> SubmitManyReply:
        self._access.check(identity, "submit")
        results: list[SubmitResult] = []
        for found in await self._read(read_submissions, data, identity):
            try:
                if isinstance(found, RequestError):
                    raise found
                stored = await self._store(found, identity)
            except (RequestError, OversizeError, TransientError) as error:
                reply = reply_of(error)
                results.append(
                    SubmitResult(
                        ok=False,
                        namespace="" if isinstance(found, RequestError) else found.request.namespace,
                        name="" if isinstance(found, RequestError) else found.request.name,
                        error=reply.error,
                        code=reply.code,
                        retry_after_ms=reply.retry_after_ms or 0,
                    )
                )
            else:
                results.append(SubmitResult(**msgspec.structs.asdict(stored)))
        if self._access.is_bounded(identity):
            self._rates.charge(identity, len(results) // _JOBS_A_TOKEN)
            wrong = sum(one.code in _WRONG for one in results)
            self._rates.charge_wrong(identity, data, wrong=wrong, of=len(results))
        return SubmitManyReply(results=results, stored=sum(one.ok for one in results))

    async def _store(self, sent: Sent, identity: str) -> SubmitReply:
        request = sent.request
        self._access.check(identity, "submit", request.namespace)
        keys: list[tuple[str, ...]] = [(request.namespace, request.name)]
        if request.uid:
            keys.append((request.uid,))
        async with self._turns.of(*keys):
            crowded = self._waiting.refusal_of(request, self._state.fold.settings)
            found = judge(sent, self._state, now_ms=self._clock.now_ms(), waiting=crowded)
            sequence = found.duplicate_seq
            if not sequence:
                if found.is_unknown:
                    check_unused(sent, await self._ids_of(request))
                if self._access.is_bounded(identity):
                    self._rates.charge_job(identity, request)
                subject = self._bus.subjects.intake_request(request.namespace, request.name)
                sequence = await self._bus.publish(subject, encode(request))
        return SubmitReply(
            namespace=request.namespace,
            name=request.name,
            uid=uid_of(request, sequence),
            sequence=sequence,
            duplicate=bool(found.duplicate_seq),
        )

    async def _read(self, read: Callable[[bytes, str], T], data: bytes, identity: str) -> T:
        """What is submitted; callers take turns. A long request is read on a thread, while other requests go on."""
        if len(data) <= _READ_AT_ONCE_BYTES:
            async with self._reading.of(identity):
                return read(data, identity)
        async with self._reading_aside.of(identity):
            return await asyncio.to_thread(read, data, identity)

    async def _ids_of(self, request: JobRequest) -> set[str]:
        """Ids of the kept events of a name."""
        subject = self._bus.subjects.event_job(request.namespace, request.name)
        if await self._bus.last(StreamName.EVENTS, subject) is None:
            return set()
        return await self._writer.stored_ids(subject)

    async def _cancel(self, data: bytes, identity: str) -> CancelReply:
        asked = decoded(data, CancelRequest)
        self._access.check(identity, "submit", asked.namespace)
        async with self._turns.of((asked.namespace, asked.name)):
            job = await self._job(asked)
            if job.phase in OVER:
                raise RequestError("name", _shown(asked), f"a job that is not over; it is {job.phase}", code="over")
            now_ms = self._clock.now_ms()
            wish = JobCancel(asked.namespace, asked.name, job.uid, asked.reason, now_ms, cancelled_by=identity)
            subject = self._bus.subjects.intake_cancel(asked.namespace, asked.name)
            sequence = await self._bus.publish(subject, encode(wish))
        self._log.info("cancellation stored", job=_shown(asked), uid=job.uid, identity=identity, intake_seq=sequence)
        return CancelReply(namespace=asked.namespace, name=asked.name, uid=job.uid, sequence=sequence)

    async def _update(self, data: bytes, identity: str) -> UpdateReply:
        asked = decoded(data, UpdateRequest)
        self._access.check(identity, "submit", asked.namespace)
        async with self._turns.of((asked.namespace, asked.name)):
            job = await self._job(asked)
            known = self._state.jobs.get((asked.namespace, asked.name))
            wish = wish_of(asked, job, known, identity, self._clock.now_ms())
            subject = self._bus.subjects.intake_steer(asked.namespace, asked.name)
            sequence = await self._bus.publish(subject, encode(wish))
        self._log.info("change stored", job=_shown(asked), uid=job.uid, identity=identity, intake_seq=sequence)
        return UpdateReply(namespace=asked.namespace, name=asked.name, uid=job.uid, sequence=sequence)

    async def _status(self, data: bytes, identity: str) -> StatusReply:
        asked = decoded(data, StatusRequest)
        self._access.check(identity, "read", asked.namespace)
        job = await self._job(asked)
        if job.phase in OVER and job.attempt and not job.ranks:
            job = msgspec.structs.replace(job, ranks=await self._last_ranks(job))
        return StatusReply(job=job)

    async def _last_ranks(self, job: JobState) -> list[Rank]:
        """Where the pods of a job that is over were last, by its events; empty if these are not kept."""
        subject = self._bus.subjects.event_job(job.namespace, job.name)
        for stored in reversed(await self._bus.read(StreamName.EVENTS, filters=[subject])):
            try:
                event = msgspec.json.decode(stored.data, type=JobEvent)
            except (msgspec.MsgspecError, UnicodeError):
                continue
            if event.uid == job.uid and event.phase == "placed":
                return event.ranks
        return []

    async def _explain(self, data: bytes, identity: str) -> ExplainReply:
        asked = decoded(data, ExplainRequest)
        self._access.check(identity, "read", asked.namespace)
        job = await self._job(asked)
        status = await self._stored((asked.namespace, asked.name))
        found = Explained([], None)
        if status is not None and status.uid == job.uid:
            may_read = partial(self._access.may, identity, "read")
            found = await self._explanations.of(
                status, is_over=job.phase in OVER, may_read=may_read, with_nodes=asked.nodes
            )
        lines = [*found.sentences] or [job.sentence or "Nothing was decided yet."]
        if status is not None and status.uid == job.uid and status.recovery is not None:
            since = utc_text(status.recovery.since_ms)
            lines.append(f"Recovered since {since}: {recovery_words(status.recovery, status.pods)}.")
        return ExplainReply(
            namespace=job.namespace,
            name=job.name,
            uid=job.uid,
            phase=job.phase,
            since_ms=job.since_ms,
            attempt=job.attempt,
            sentences=lines,
            explanation=found.evidence,
        )

    async def _expected_starts(self, data: bytes, identity: str) -> Page:
        asked = decoded(data, ExpectedStartsRequest)
        self._access.check(identity, "read", "" if asked.namespace == EVERY else asked.namespace)
        may_read = partial(self._access.may, identity, "read")
        with self._question(identity):
            reply, jobs = await self._explanations.forecast(lambda one: page_of(one, asked, may_read, self._clock))
        return Page(msgspec.json.encode(reply), jobs // _JOBS_A_TOKEN)

    def _question(self, identity: str) -> AbstractContextManager[None]:
        """Counts a question while it is open, as far as the caller has bounds."""
        return self._questions.of(identity) if self._access.is_bounded(identity) else nullcontext()

    async def _ask(self, data: bytes, identity: str) -> AskReply:
        sent = await self._read(read_question, data, identity)
        self._access.check(identity, "submit", sent.request.namespace)
        if sent.asks_victims:
            self._access.check(identity, "read", EVERY)
        may_read = partial(self._access.may, identity, "read")

        def answer(forecast: Forecast) -> AskReply:
            check_acceptable(sent, forecast)
            return answer_of(forecast, sent, may_read, self._clock)

        with self._question(identity):
            reply = await self._explanations.forecast(answer)
        if self._access.is_bounded(identity):
            self._rates.charge(identity, ASK_TOKENS)
            self._rates.charge_job(identity, sent.request)
        return reply

    async def _events(self, data: bytes, identity: str) -> EventsReply:
        asked = decoded(data, EventsRequest)
        self._access.check(identity, "read", asked.namespace)
        return await self._pages.page(asked, identity)

    async def _rights(self, data: bytes, identity: str) -> RightsReply:
        decoded(data, RightsRequest)
        return RightsReply(
            identity=identity,
            read=self._access.namespaces(identity, "read"),
            submit=self._access.namespaces(identity, "submit"),
            operate=self._access.may(identity, "operate", EVERY),
        )

    async def _job(self, asked: CancelRequest | UpdateRequest | StatusRequest | ExplainRequest) -> JobState:
        """The job that a request names.

        Raises:
            RequestError: No job has the name.
        """
        key = (asked.namespace, asked.name)
        status = await self._stored(key)
        pending = await self._pending(key, status.intake_seq if status is not None else 0)
        if pending is not None and (
            asked.uid == pending.uid or (not asked.uid and (status is None or status.phase in OVER))
        ):
            return pending
        if status is None or asked.uid not in {"", status.uid}:
            known = f"; the job with this name has uid {status.uid}" if status is not None else ""
            field, value = ("uid", repr(asked.uid)) if asked.uid else ("name", _shown(asked))
            raise RequestError(field, value, f"a job of namespace {asked.namespace}{known}", code="not-found")
        return job_state(status)

    async def _stored(self, key: JobKey) -> JobStatus | None:
        """Status of a job as the dispatcher wrote it last."""
        stored = await self._bus.last(StreamName.STATUS, self._bus.subjects.status(*key))
        if stored is None:
            return None
        try:
            return stored_status(stored.subject, stored.data)
        except DecodeError as error:
            self._log.warning("status does not decode", subject=stored.subject, reason=error.reason)
            return None

    async def _pending(self, key: JobKey, after_seq: int) -> JobState | None:
        """The newest request of a name if it has no verdict yet."""
        known_seq = max(after_seq, self._state.intake_seq)
        job = self._state.jobs.get(key)
        if job is not None and job.state == "accepted" and job.accepted_seq > after_seq:
            known_seq = after_seq  # accepted, and its events may be out, but its status is not written yet
        stored = await self._bus.last(StreamName.INTAKE, self._bus.subjects.intake_request(*key))
        if stored is None or stored.sequence <= known_seq:
            return None
        try:
            request = decode(stored.data, JobRequest)
        except DecodeError:
            return None
        return JobState(
            namespace=key[0],
            name=key[1],
            uid=uid_of(request, stored.sequence),
            phase=SUBMITTED,
            since_ms=stored.at_ms,
            pods=sum(task.replicas for task in request.tasks),
            chips=sum(task.replicas * task.chips for task in request.tasks),
            queue=request.queue,
            priority=request.priority,
            sequence=stored.sequence,
        )


def _shown(asked: CancelRequest | UpdateRequest | StatusRequest | ExplainRequest) -> str:
    return f"{asked.namespace}/{asked.name}"
