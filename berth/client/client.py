"""Client of the service for programs, for asyncio.

Longer than 400 lines because each operation on jobs has its method here, with what it takes.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar

import msgspec

from berth.client.cell_lists import CellLists
from berth.client.errors import ClientError, ConnectionLostError, RequestError, UnavailableError, WaitTimeoutError
from berth.client.job_events import StoredEvent, events_after
from berth.client.maintenance import Maintenance
from berth.runtime.backoff import Backoff
from berth.runtime.bus.access import Access
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Bus
from berth.runtime.config import LogConfig
from berth.runtime.errors import FatalError, PoisonError, TransientError
from berth.runtime.identity import new_uid
from berth.runtime.logs import logger_of
from berth.schemas.message import json_decoder
from berth.schemas.programs.events import FINAL, EventsReply
from berth.schemas.programs.expected import AskReply, ExpectedJob
from berth.schemas.programs.job_file import JobFile
from berth.schemas.programs.replies import (
    CancelReply,
    ErrorReply,
    ExplainReply,
    JobState,
    StatusReply,
    SubmitManyReply,
    SubmitReply,
    SubmitResult,
    UpdateReply,
)
from berth.schemas.programs.requests import (
    SUBMIT_MAX,
    CancelRequest,
    ExplainRequest,
    JobUpdate,
    StatusRequest,
    UpdateRequest,
)
from berth.schemas.programs.shape import Reply

_Answer = TypeVar("_Answer", bound=Reply)

Goal = Literal["placed", "finished"]
_NAME: Final = "berth-client"
_NO_ACCESS: Final = Access()
_SECURE: Final = ("tls://", "wss://")
_ANSWER_S: Final = 5.0
"""Longest wait for one answer; then the request is sent again."""
_AGAIN: Final = Backoff(first_s=0.1, max_s=2.0)
_LOOK: Final = Backoff(first_s=0.05, max_s=5.0)
_UNKNOWN_S: Final = 10.0
"""So long after the start of a wait, a job that is not known may still become known."""
_WITHOUT_PLACE: Final = frozenset({"submitted", "waiting"})


class Client(CellLists, Maintenance):
    """A connection to the service for programs of one cell, made by :meth:`connect` and closed by ``async with``.

    All methods may raise :class:`RequestError` with the text of the service, :class:`UnavailableError` if no answer
    came in time, and :class:`ConnectionLostError` after the connection was closed or refused.

    Args:
        bus: Bus of the cell.
        identity: Identity of the program; empty in a cell without authentication.
        timeout_s: Seconds for a request with all its repetitions.
    """

    def __init__(self, bus: Bus, *, identity: str = "", timeout_s: float = 10.0) -> None:
        self._bus = bus
        self._identity = identity
        self._timeout_s = timeout_s

    @classmethod
    async def connect(
        cls,
        url: str = "nats://127.0.0.1:4222",
        *,
        cell: str = "default",
        identity: str = "",
        access: Access = _NO_ACCESS,
        timeout_s: float = 10.0,
    ) -> Self:
        """Connect to NATS.

        Args:
            url: URL of a server, or several separated by commas. ``tls://`` requires encryption.
            cell: Name of the cell.
            identity: Identity of the program, where NATS has authentication.
            access: Credentials and TLS.
            timeout_s: Seconds for the connection, and for each request.

        Raises:
            UnavailableError: No server answers.
            ConnectionLostError: The server refuses the credentials.
        """
        servers = url.split(",")
        needs_tls = access.needs_tls or access.tls is not None or any(one.startswith(_SECURE) for one in servers)
        try:
            bus = await NatsBus.connect(
                servers,
                cell,
                name=identity or _NAME,
                timeout_s=timeout_s,
                access=access._replace(needs_tls=needs_tls),
                log=logger_of(_NAME, LogConfig(level="warning")),
            )
        except TransientError as error:
            raise UnavailableError(str(error)) from error
        except FatalError as error:
            raise ConnectionLostError(str(error)) from error
        return cls(bus, identity=identity, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, and end what still waits. Jobs are not affected."""
        if not self._bus.lost.done():
            self._bus.lost.set_result(FatalError("the client is closed"))
        await self._bus.close()

    async def submit(self, job: JobFile | Mapping[str, Any], *, uid: str = "") -> SubmitReply:
        """Submit a job. The reply says that the request is stored; the verdict follows as an event.

        The request is repeated with the same uid until there is an answer, which never submits twice.

        Args:
            job: A job file; as a mapping also a Volcano Job, an AscendJob or a Kubernetes Job.
            uid: Idempotency key, to repeat the request of another call or process; empty: the uid in the job, and
                without one a new uid.

        Raises:
            UnavailableError: No answer in time. Its ``uid`` is that of the request, which may be stored.
        """
        tree, key = _with_key(job, uid)
        try:
            return await self._ask("submit", {"job": tree}, SubmitReply)
        except UnavailableError as error:
            raise UnavailableError(str(error), key) from error

    async def submit_many(self, jobs: Sequence[JobFile | Mapping[str, Any]]) -> list[SubmitResult]:
        """Submit jobs, each as :meth:`submit` does, with one request for a hundred of them.

        A job that is refused leaves the others as they are. Jobs without a uid get one, so that a request without an
        answer is repeated, which never submits twice.

        Args:
            jobs: Job files.

        Returns:
            What became of each, in their order.

        Raises:
            UnavailableError: No answer in time: those before may be stored. Repeat it with jobs that have a uid.
        """
        trees = [_with_key(job)[0] for job in jobs]
        found: list[SubmitResult] = []
        for first in range(0, len(trees), SUBMIT_MAX):
            request = {"jobs": trees[first : first + SUBMIT_MAX]}
            found += (await self._ask("submit-many", request, SubmitManyReply)).results
        return found

    async def cancel(self, name: str, *, namespace: str = "default", uid: str = "", reason: str = "") -> CancelReply:
        """Cancel a job, whether it waits or runs.

        Args:
            name: Name of the job.
            namespace: Its namespace.
            uid: Only the job with this uid; empty: the job that has the name.
            reason: It is stored with the job.
        """
        request = CancelRequest(name=name, namespace=namespace, uid=uid, reason=reason)
        return await self._ask("cancel", request, CancelReply)

    async def update(
        self,
        name: str,
        *,
        namespace: str = "default",
        uid: str = "",
        held: bool | None = None,
        priority: int | None = None,
        reason: str = "",
    ) -> UpdateReply:
        """Hold a job that waits, release it, or lower its priority. What is not given stays as it is.

        Args:
            name: Name of the job.
            namespace: Its namespace.
            uid: Only the job with this uid; empty: the job that has the name.
            held: True: it is not started until it is released.
            priority: Its priority from now on; at most the one that it has.
            reason: It is stored with the hold.
        """
        change = JobUpdate(held=held, priority=priority, reason=reason)
        return await self._ask(
            "update", UpdateRequest(name=name, namespace=namespace, uid=uid, change=change), UpdateReply
        )

    async def status(self, name: str, *, namespace: str = "default", uid: str = "") -> JobState:
        """A job as it is now, with node and chips of each rank.

        Args:
            name: Name of the job.
            namespace: Its namespace.
            uid: Only the job with this uid; empty: the job that has the name.
        """
        request = StatusRequest(name=name, namespace=namespace, uid=uid)
        return (await self._ask("status", request, StatusReply)).job

    async def explain(self, name: str, *, namespace: str = "default", uid: str = "") -> ExplainReply:
        """Ask why a job is where it is, or why it waits and what would help.

        Args:
            name: Name of the job.
            namespace: Its namespace.
            uid: Only the job with this uid; empty: the job that has the name.
        """
        return await self._ask("explain", ExplainRequest(name=name, namespace=namespace, uid=uid), ExplainReply)

    async def ask(self, job: JobFile | Mapping[str, Any], *, queue: str = "", victims: bool = False) -> ExpectedJob:
        """When a job would be expected to start if it were submitted now. Nothing is stored.

        Args:
            job: As of :meth:`submit`.
            queue: Its queue, whatever it names; empty: what it names.
            victims: Say which jobs would end for it, too; needs the right to read all namespaces.

        Raises:
            RequestError: The request was refused.
            UnavailableError: No answer came in time.
        """
        tree = _tree(job) if isinstance(job, JobFile) else dict(job)
        reply = await self._ask("ask", {"job": tree, "queue": queue, "victims": victims}, AskReply)
        return reply.expected

    async def wait(
        self, name: str, goal: Goal, *, namespace: str = "default", uid: str = "", timeout_s: float | None = None
    ) -> JobState:
        """Wait until a job has a place, or until its end. It survives a restart of NATS and of the service.

        Args:
            name: Name of the job.
            goal: ``placed``: the job has nodes and chips, or has ended; ``finished``: it has ended.
            namespace: Its namespace.
            uid: Only the job with this uid; empty: the job that has the name now.
            timeout_s: Longest wait in seconds; None: no limit.

        Returns:
            The job. Its phase tells how it ended: also a rejected or cancelled job ends the wait.

        Raises:
            WaitTimeoutError: The job did not get there in time.
            RequestError: The job stays unknown for 10 seconds (``not-found``), or the wait is not permitted.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._reach(StatusRequest(name=name, namespace=namespace, uid=uid), goal)
        except TimeoutError as error:
            raise WaitTimeoutError(f"{namespace}/{name} is not {goal} within {timeout_s} s") from error

    def follow(
        self,
        namespace: str = "*",
        name: str = "*",
        *,
        uid: str = "",
        after: int = 0,
        since_ms: int = 0,
    ) -> AsyncGenerator[StoredEvent, None]:
        """Events of jobs, those that are stored and those to come, in their order; without end, unless a uid is given.

        The service is waited for as long as it takes: events continue after a break of the connection and a restart of
        the service, and each ``id`` comes once, also if the server was killed and has lost events. A program that stops
        keeps ``position`` of the last event, and goes on with it as ``after``; an event may then come again with the
        same ``id``.

        Args:
            namespace: Only jobs of this namespace; ``*`` for all, which needs the right to read all.
            name: Only jobs with this name; ``*`` for all.
            uid: Only events of the job with this uid; they end after the one that is ``final``. Empty: of any job.
            after: Position after which to begin; 0 for the oldest event, at most 7 days old.
            since_ms: Leave out events that were stored before; milliseconds since 1970.

        Raises:
            EventsLostError: Events that were not handed over are no longer stored, or more than 10,000 were lost.
        """
        return events_after(
            partial(self._ask, "events", answer=EventsReply, is_patient=True),
            lambda: self._bus.link_changes,
            namespace,
            name,
            uid=uid,
            after=after,
            since_ms=since_ms,
        )

    async def _reach(self, wanted: StatusRequest, goal: Goal) -> JobState:
        loop = asyncio.get_running_loop()
        unknown_until = loop.time() + _UNKNOWN_S
        uid, looks = wanted.uid, 0
        async with self._woken(wanted) as wake:
            while True:
                wake.clear()
                try:
                    job = await self.status(wanted.name, namespace=wanted.namespace, uid=uid)
                except UnavailableError:
                    pass
                except RequestError as error:
                    if error.code != "not-found" or loop.time() > unknown_until:
                        raise
                else:
                    uid = job.uid
                    if job.phase in FINAL or (goal == "placed" and job.phase not in _WITHOUT_PLACE):
                        return job
                looks += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK.pause_s(looks)):
                        await wake.wait()
                        looks = 0  # the status follows soon

    @contextlib.asynccontextmanager
    async def _woken(self, wanted: StatusRequest) -> AsyncGenerator[asyncio.Event, None]:
        """What is set by each event of a job, and when the connection is lost: the next request then says why.

        Raises:
            ConnectionLostError: It is lost already.
        """
        wake = asyncio.Event()

        async def see(_: bytes) -> None:
            wake.set()

        def lose(_: object) -> None:
            wake.set()

        async with contextlib.AsyncExitStack() as stack:
            self._bus.lost.add_done_callback(lose)
            stack.callback(self._bus.lost.remove_done_callback, lose)
            try:
                subject = self._bus.subjects.event_job(wanted.namespace, wanted.name)
                watching = await self._bus.serve(subject, see)
                stack.push_async_callback(watching.stop)
            except TransientError:
                pass  # without events the status is read now and then
            except FatalError as error:
                raise ConnectionLostError(str(error)) from error
            yield wake

    async def _ask(self, verb: str, request: object, answer: type[_Answer], *, is_patient: bool = False) -> _Answer:
        """Answer to a request, which is repeated while the service cannot be reached or has no room for it yet.

        Args:
            verb: The operation.
            request: The request.
            answer: Kind of the reply.
            is_patient: Whether to repeat it until there is an answer.

        Raises:
            RequestError: The request was not carried out.
            UnavailableError: No answer in time.
            ConnectionLostError: The connection is closed.
        """
        subjects = self._bus.subjects
        subject = subjects.api_as(verb, self._identity) if self._identity else subjects.api(verb)
        data = msgspec.json.encode(request)
        loop = asyncio.get_running_loop()
        end = math.inf if is_patient else loop.time() + self._timeout_s
        tries = 0
        while True:
            left_s = max(end - loop.time(), 0.001)
            try:
                return _read(await self._bus.request(subject, data, timeout_s=min(left_s, _ANSWER_S)), answer)
            except TransientError as error:
                why: Exception = error
            except RequestError as error:
                if error.code != "unavailable" and not error.retry_after_s:
                    raise
                why = error
            except PoisonError as error:
                raise RequestError(str(error), "too-large") from error
            except FatalError as error:
                raise ConnectionLostError(str(error)) from error
            if self._bus.lost.done():
                raise ConnectionLostError(self._bus.lost.result().reason) from why
            tries += 1
            pause_s = max(_AGAIN.pause_s(tries), why.retry_after_s if isinstance(why, RequestError) else 0.0)
            if loop.time() + pause_s >= end:
                raise UnavailableError(f"no answer to {verb} within {self._timeout_s} s: {why}") from why
            await asyncio.sleep(pause_s)


def _with_key(job: JobFile | Mapping[str, Any], uid: str = "") -> tuple[dict[str, Any], str]:
    """JSON of a job with its idempotency key, and the key; empty if it cannot have one."""
    tree = _tree(job) if isinstance(job, JobFile) else dict(job)
    metadata = tree.get("metadata", {})
    if not isinstance(metadata, Mapping):  # the service says what is wrong
        return tree, ""
    key = uid or metadata.get("uid") or new_uid()
    tree["metadata"] = {**metadata, "uid": key}
    return tree, str(key)


def _tree(job: JobFile) -> dict[str, Any]:
    """JSON of a job file; the kind and the version are there although they are those by default."""
    return {"apiVersion": job.api_version, "kind": job.kind, **msgspec.to_builtins(job)}


def _read(data: bytes, answer: type[_Answer]) -> _Answer:
    """An answer.

    Raises:
        RequestError: It is an error.
        ClientError: It cannot be read.
    """
    try:
        if not json_decoder(Reply).decode(data).ok:
            error = json_decoder(ErrorReply).decode(data)
            raise RequestError(error.error, error.code, (error.retry_after_ms or 0) / 1000)
        return json_decoder(answer).decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ClientError(f"answer cannot be read: {error}") from error
