"""Client of the service for programs without asyncio: the same methods, which wait for their result.

A thread runs the connection, so that it stays alive while the program does something else. Several threads may use one
client.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, Self, TypeVar

from berth.client.client import Client as AsyncClient
from berth.client.client import Goal
from berth.client.errors import ConnectionLostError
from berth.client.job_events import StoredEvent
from berth.runtime.bus.access import Access
from berth.schemas.fault_facts import DrainKind
from berth.schemas.programs.expected import ExpectedJob
from berth.schemas.programs.job_file import JobFile
from berth.schemas.programs.lists import Drain, FaultGroup, ListedJob, ListedPhase, PlaceUse, QueueEntry, UsageReply
from berth.schemas.programs.replies import (
    ApproveReply,
    CancelReply,
    DrainReply,
    ExplainReply,
    JobState,
    NodeState,
    SubmitReply,
    SubmitResult,
    UpdateReply,
)

_Result = TypeVar("_Result")
_NO_ACCESS: Final = Access()
_CLOSED: Final = "the client is closed"
_END_S: Final = 5.0
"""Longest time for work that is cancelled."""


class Client:
    """A connection to the service for programs of one cell; errors are those of :class:`berth.client.Client`.

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

    def __init__(
        self,
        url: str = "nats://127.0.0.1:4222",
        *,
        cell: str = "default",
        identity: str = "",
        access: Access = _NO_ACCESS,
        timeout_s: float = 10.0,
    ) -> None:
        self._is_closed = False
        self._entry = threading.Lock()
        """Held while work is given to the loop, so that none is given to a loop that ends."""
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close the client can end all the same.
        self._thread = threading.Thread(target=self._loop.run_forever, name="berth client", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(
                AsyncClient.connect(url, cell=cell, identity=identity, access=access, timeout_s=timeout_s)
            )
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and end what still waits. Jobs are not affected."""
        if not self._is_closed:
            try:
                self._run(self._client.close())
            except ConnectionLostError:
                return  # another thread closes it
            self._end()

    def submit(self, job: JobFile | Mapping[str, Any], *, uid: str = "") -> SubmitReply:
        """Submit a job, see :meth:`berth.client.Client.submit`."""
        return self._run(self._client.submit(job, uid=uid))

    def cancel(self, name: str, *, namespace: str = "default", uid: str = "", reason: str = "") -> CancelReply:
        """Cancel a job, see :meth:`berth.client.Client.cancel`."""
        return self._run(self._client.cancel(name, namespace=namespace, uid=uid, reason=reason))

    def update(
        self,
        name: str,
        *,
        namespace: str = "default",
        uid: str = "",
        held: bool | None = None,
        priority: int | None = None,
        reason: str = "",
    ) -> UpdateReply:
        """Hold a job that waits, release it, or lower its priority, see :meth:`berth.client.Client.update`."""
        change = self._client.update(name, namespace=namespace, uid=uid, held=held, priority=priority, reason=reason)
        return self._run(change)

    def status(self, name: str, *, namespace: str = "default", uid: str = "") -> JobState:
        """A job as it is now, see :meth:`berth.client.Client.status`."""
        return self._run(self._client.status(name, namespace=namespace, uid=uid))

    def explain(self, name: str, *, namespace: str = "default", uid: str = "") -> ExplainReply:
        """Why a job is where it is, see :meth:`berth.client.Client.explain`."""
        return self._run(self._client.explain(name, namespace=namespace, uid=uid))

    def ask(self, job: JobFile | Mapping[str, Any], *, queue: str = "", victims: bool = False) -> ExpectedJob:
        """When a job would be expected to start, see :meth:`berth.client.Client.ask`."""
        return self._run(self._client.ask(job, queue=queue, victims=victims))

    def submit_many(self, jobs: Sequence[JobFile | Mapping[str, Any]]) -> list[SubmitResult]:
        """Submit jobs, see :meth:`berth.client.Client.submit_many`."""
        return self._run(self._client.submit_many(jobs))

    def jobs(self, *, namespace: str = "*", phase: ListedPhase = "", queue: str = "") -> list[ListedJob]:
        """Jobs with their positions in the queue, see :meth:`berth.client.Client.jobs`."""
        return self._run(self._client.jobs(namespace=namespace, phase=phase, queue=queue))

    def expected_starts(self, *, namespace: str = "*") -> list[ExpectedJob]:
        """When jobs are expected to start, see :meth:`berth.client.Client.expected_starts`."""
        return self._run(self._client.expected_starts(namespace=namespace))

    def nodes(
        self, names: Sequence[str] = (), *, product: str = "", leaf: str = "", superpod: str = "", details: bool = False
    ) -> list[NodeState]:
        """Nodes and their chips, see :meth:`berth.client.Client.nodes`."""
        return self._run(self._client.nodes(names, product=product, leaf=leaf, superpod=superpod, details=details))

    def usage(self) -> UsageReply:
        """How full the cell is, see :meth:`berth.client.Client.usage`."""
        return self._run(self._client.usage())

    def leaves(self, names: Sequence[str] = ()) -> list[PlaceUse]:
        """How full leaf switches are, see :meth:`berth.client.Client.leaves`."""
        return self._run(self._client.leaves(names))

    def superpods(self, names: Sequence[str] = ()) -> list[PlaceUse]:
        """How full SuperPoDs are, see :meth:`berth.client.Client.superpods`."""
        return self._run(self._client.superpods(names))

    def faults(self) -> list[FaultGroup]:
        """Faults in groups, see :meth:`berth.client.Client.faults`."""
        return self._run(self._client.faults())

    def drains(self) -> list[Drain]:
        """What is drained, see :meth:`berth.client.Client.drains`."""
        return self._run(self._client.drains())

    def queues(self) -> list[QueueEntry]:
        """Queues, see :meth:`berth.client.Client.queues`."""
        return self._run(self._client.queues())

    def drain(
        self,
        name: str,
        *,
        kind: DrainKind = "node",
        since_ms: int = 0,
        grace_ms: int = 0,
        reason: str = "",
        force: bool = False,
    ) -> DrainReply:
        """Take nodes out of service, see :meth:`berth.client.Client.drain`."""
        return self._run(
            self._client.drain(name, kind=kind, since_ms=since_ms, grace_ms=grace_ms, reason=reason, force=force)
        )

    def undrain(self, name: str, *, kind: DrainKind = "node") -> DrainReply:
        """Return nodes to service, see :meth:`berth.client.Client.undrain`."""
        return self._run(self._client.undrain(name, kind=kind))

    def approve(self, kind: str, *, domain: str = "", lasts_ms: int = 600_000, reason: str = "") -> ApproveReply:
        """Let jobs restart for many faults, see :meth:`berth.client.Client.approve`."""
        return self._run(self._client.approve(kind, domain=domain, lasts_ms=lasts_ms, reason=reason))

    def wait(
        self, name: str, goal: Goal, *, namespace: str = "default", uid: str = "", timeout_s: float | None = None
    ) -> JobState:
        """Wait for a place or for the end, see :meth:`berth.client.Client.wait`."""
        return self._run(self._client.wait(name, goal, namespace=namespace, uid=uid, timeout_s=timeout_s))

    def follow(
        self, namespace: str = "*", name: str = "*", *, uid: str = "", after: int = 0, since_ms: int = 0
    ) -> Iterator[StoredEvent]:
        """Events of jobs, see :meth:`berth.client.Client.follow`. Leave the loop to stop."""
        events = self._client.follow(namespace, name, uid=uid, after=after, since_ms=since_ms)
        turn = asyncio.Lock()  # after an interruption, the end waits until the last step is over

        async def step() -> StoredEvent | None:
            async with turn:
                return await anext(events, None)

        async def end() -> None:
            async with turn:
                await events.aclose()

        try:
            while (event := self._run(step())) is not None:
                yield event
        finally:
            with contextlib.suppress(ConnectionLostError):  # the end of the client has ended it
                self._run(end())

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Result of work on the loop.

        Raises:
            ConnectionLostError: The client is closed.
        """
        with self._entry:
            if self._is_closed:
                work.close()
                raise ConnectionLostError(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError as error:  # only the end of the client does this
            raise ConnectionLostError(_CLOSED) from error
        finally:
            future.cancel()  # of an interrupted wait, such as by Ctrl-C; does nothing to one that is done

    def _end(self) -> None:
        """End what other threads still wait for, then the thread of the loop."""
        with self._entry:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    """Cancel all other tasks of the loop, and wait for them."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)
