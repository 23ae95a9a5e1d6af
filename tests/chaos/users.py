"""Users who submit and cancel jobs through the proxies, and note what they were told."""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final, NamedTuple, Protocol, Self

import aiohttp

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, TransientError
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel, JobRequest
from tests.chaos.cell import CELL, NAMESPACE, NODES, ChaosCell
from tests.chaos.fault import USERS
from tests.chaos.operations import History, Outcome
from tests.support.cells import a_job
from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kube_cells import a_spec, a_volcano_job
from tests.support.waiting import pause

JOBS: Final = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/jobs"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_ANSWER_S: Final = 4.0
_CONFLICT: Final = 409
_SERVER_ERROR: Final = 500
_AGAIN_S: Final = 0.25
_CLIENTS: Final = 3
_TRIES_MAX: Final = 3
_SIZES: Final = (1, 2, 2, 4, 8)
_PROBE_S: Final = 120.0
STAYS_S: Final = 100_000
"""Run time of jobs that do not end by themselves."""


def short(name: str) -> str:
    """Name that a user gave: inventory puts the kind of the object before it."""
    return name.rpartition(".")[2]


class Wanted(NamedTuple):
    """A job that a user wants.

    Attributes:
        is_bare: On an API server: a pod that nobody owns.
    """

    name: str
    pods: int
    chips: int
    run_ms: int
    is_bare: bool = False
    priority: int = 0


def request_of(job: Wanted) -> JobRequest:
    """What asks for a job on the bus."""
    return a_job(
        job.name, chips=job.chips, replicas=job.pods, run_ms=job.run_ms, namespace=NAMESPACE, priority=job.priority
    )


class Answer(NamedTuple):
    """What a user is told."""

    outcome: Outcome
    detail: str = ""
    sequence: int = 0


class Desk(Protocol):
    """Where users ask."""

    async def submit(self, job: Wanted) -> Answer:
        """Ask for a job; asking again for the same one changes nothing."""

    async def cancel(self, job: Wanted) -> Answer:
        """Ask for its end."""


class BusDesk:
    """Requests on the bus."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    async def submit(self, job: Wanted) -> Answer:
        """Store a request."""
        return await self._stored(self._bus.subjects.intake_request(NAMESPACE, job.name), encode(request_of(job)))

    async def cancel(self, job: Wanted) -> Answer:
        """Store a cancel."""
        return await self._stored(
            self._bus.subjects.intake_cancel(NAMESPACE, job.name), encode(JobCancel(NAMESPACE, job.name))
        )

    async def _stored(self, subject: str, data: bytes) -> Answer:
        try:
            return Answer("ok", sequence=await self._bus.publish(subject, data, timeout_s=_ANSWER_S))
        except AmbiguousError as error:
            return Answer("unknown", str(error))
        except TransientError as error:
            return Answer("failed", str(error))


class KubeDesk:
    """Objects on an API server."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        assert api._session is not None
        # The library sends a DELETE again whose connection broke. The answer, that there is no such object, would look
        # like that to a cancel without effect.
        api._session._retry_connection = False

    async def submit(self, job: Wanted) -> Answer:
        """Make the object; that it is there already is as good as having made it."""
        run_for = f"{job.run_ms / 1000:g}s"
        body: dict[str, Any]
        if job.is_bare:
            meta = {"name": job.name, "annotations": {"berth/run-for": run_for}}
            body = {"metadata": meta, "spec": a_spec(job.chips)}
        else:
            body = a_volcano_job(job.name, job.pods, job.chips, run_for=run_for)
        return await self._done("POST", self._collection(job), body)

    async def cancel(self, job: Wanted) -> Answer:
        """Delete the object."""
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        return await self._done("DELETE", f"{self._collection(job)}/{job.name}", options)

    def _collection(self, job: Wanted) -> str:
        return PODS if job.is_bare else JOBS

    async def _done(self, method: str, path: str, body: object) -> Answer:
        try:
            await self._api.call(method, path, body)
        except RefusedError as error:
            if error.status >= _SERVER_ERROR:
                return Answer("unknown", str(error))
            return Answer("ok" if (method, error.status) == ("POST", _CONFLICT) else "failed", str(error))
        except aiohttp.ClientConnectorError as error:
            return Answer("failed", str(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            return Answer("unknown", repr(error))
        return Answer("ok")


class Users:
    """All users. An async context manager: they have their connections while it is open.

    Attributes:
        history: What they asked for and were told.
        wanted: Every job, by name.
    """

    def __init__(self, cell: ChaosCell, seed: int, clock: Clock, *, pace_s: float, ahead: int = 14) -> None:
        self.history = History()
        self.wanted: dict[str, Wanted] = {}
        self._cell = cell
        self._clock = clock
        self._random = Random(seed)  # noqa: S311  # the same jobs every time
        self._pace_s = pace_s
        self._ahead = ahead
        self._stack = AsyncExitStack()
        self._desks: list[Desk] = []
        self._due: set[str] = set()
        """Acknowledged jobs that can be placed and, as far as is known, are not."""
        self._answered: list[str] = []
        """Jobs that nobody submits any more."""
        self._is_over = False

    async def __aenter__(self) -> Self:
        for number in range(_CLIENTS):
            self._desks.append(await self._desk(number))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(self) -> None:
        """Ask until :meth:`stop`."""
        async with asyncio.TaskGroup() as group:
            for number, desk in enumerate(self._desks):
                group.create_task(self._ask(desk), name=f"user {number}")

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_over = True

    def acknowledged(self) -> dict[int, JobRequest | JobCancel]:
        """Requests whose sequence a user was told, by sequence. On Kubernetes there are none: objects have no such."""
        return {
            one.sequence: request_of(self.wanted[one.job]) if one.action == "submit" else JobCancel(NAMESPACE, one.job)
            for one in self.history.operations
            if one.outcome == "ok" and one.sequence
        }

    async def probe(self, name: str) -> None:
        """Submit a small job until it is acknowledged."""
        job = Wanted(name, 1, 1, 200, priority=100)
        async with asyncio.timeout(_PROBE_S):
            while await self._submit(self._desks[0], job) != "ok":
                await pause(_AGAIN_S)

    async def _desk(self, number: int) -> Desk:
        if self._cell.kube is not None:
            api = KubeApi(self._cell.kube, url=self._cell.api_url(USERS), timeout_s=_ANSWER_S)
            return KubeDesk(await self._stack.enter_async_context(api))
        bus = await NatsBus.connect(self._cell.urls(USERS), CELL, name=f"user-{number}", timeout_s=_PROBE_S)
        return BusDesk(await self._stack.enter_async_context(bus))

    async def _ask(self, desk: Desk) -> None:
        while not self._is_over:
            await pause(self._random.uniform(0.5, 1.5) * self._pace_s)
            if self._random.random() < 0.15 and self._answered:
                await self._cancel(desk, self._random.choice(self._answered[-12:]))
            elif self._is_room():
                job = self._job()
                for _ in range(_TRIES_MAX):
                    if await self._submit(desk, job) == "ok" or self._random.random() < 0.5:
                        break
                self._answered.append(job.name)

    def _is_room(self) -> bool:
        """Whether few enough jobs wait for their first placement, as far as the observer knows."""
        self._due -= {short(holding.name) for holding in self._cell.watch.history[-4 * self._ahead :]}
        return len(self._due) < self._ahead

    def _job(self) -> Wanted:
        random, number = self._random, len(self.wanted)
        dice = random.random()
        is_bare = self._cell.kube is not None and dice < 0.3
        pods, chips = 1 if is_bare else random.randint(1, 3), random.choice(_SIZES)
        run_ms = random.randint(300, 3000)
        if dice > 0.97:
            pods, chips = NODES + 1, 8  # more than there is
        elif dice > 0.95:
            chips = 3  # less than anybody may have
        elif 0.9 < dice < 0.91 and number < 60:
            pods, chips, run_ms = 1, 1, STAYS_S * 1000
        return Wanted(f"job-{number:05d}", pods, chips, run_ms, is_bare)

    async def _submit(self, desk: Desk, job: Wanted) -> Outcome:
        self.wanted[job.name] = job
        number = self.history.begin("submit", job.name, self._clock.monotonic_s())
        answer = await desk.submit(job)
        self._end(number, answer)
        if answer.outcome == "ok" and job.pods <= NODES and job.chips in _SIZES:
            self._due.add(job.name)
        return answer.outcome

    async def _cancel(self, desk: Desk, name: str) -> None:
        self._due.discard(name)
        number = self.history.begin("cancel", name, self._clock.monotonic_s())
        self._end(number, await desk.cancel(self.wanted[name]))

    def _end(self, number: int, answer: Answer) -> None:
        self.history.end(
            number, answer.outcome, self._clock.monotonic_s(), detail=answer.detail, sequence=answer.sequence
        )
