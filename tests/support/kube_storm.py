"""A storm over a cell on Kubernetes: jobs come and go while whatever runs is killed, at moments that a seed decides."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

import aiohttp

from berth.formats.ascend.pod_annotations import ATTEMPT, JOB_UID, RANK
from berth.formats.kubernetes.objects import Pod
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.errors import TransientError
from berth.runtime.fault_points import BINDER_POINTS, POINTS
from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kube_cells import ORDER, KubeCell, a_spec, a_volcano_job
from tests.support.kube_history import History
from tests.support.waiting import pause, until, until_true

T = TypeVar("T")
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces"
API: Final = "kube-apiserver"
NATS: Final = "nats-server"
KILLED: Final = -9
UNREACHED: Final = 1
"""How a service ends by itself: it found no bus, or a history that it followed broke. Somebody starts it again."""
_STARTS_MAX: Final = 60
_INSIST_S: Final = 40.0
_FORBIDDEN: Final = 403
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_NOT_FOUND: Final = 404
_PASSINGS_MAX: Final = 6


class Wanted(NamedTuple):
    """A job that comes.

    Attributes:
        pods: 0 for a pod that nobody owns.
        stays_s: After so long it is deleted, whatever has become of it; None when it is left alone.
    """

    name: str
    pods: int
    chips: int
    run_for: str
    pause_s: float
    stays_s: float | None


class Strike(NamedTuple):
    """Something is killed.

    Attributes:
        fault_point: Where its next start dies by itself; empty for nowhere.
    """

    victim: str
    pause_s: float
    down_s: float
    fault_point: str


def jobs_of(random: Random, count: int) -> list[Wanted]:
    """Jobs in the order in which they come."""
    found = []
    for number in range(count):
        is_bare = random.random() < 0.35
        found.append(
            Wanted(
                name=f"{'pod' if is_bare else 'job'}-{number:02d}",
                pods=0 if is_bare else random.randint(1, 4),
                chips=random.choice((1, 2, 2, 4, 8)),
                run_for=f"{random.randint(1, 6)}s",
                pause_s=random.uniform(0.4, 1.6),
                stays_s=random.uniform(0.2, 6) if random.random() < 0.25 else None,
            )
        )
    return found


def strikes_of(random: Random, rounds: int) -> list[Strike]:
    """Everything is killed in each round, each time in another order."""
    found = []
    points = {"binder": list(BINDER_POINTS), "dispatcher": list(POINTS)}
    for several in points.values():
        random.shuffle(several)
    for _ in range(rounds):
        victims = [*ORDER, API, NATS]
        random.shuffle(victims)
        for victim in victims:
            left = points.get(victim)
            point = f"{left.pop()}:{random.randint(1, _PASSINGS_MAX)}" if left else ""
            found.append(Strike(victim, random.uniform(0.8, 2.4), random.uniform(0, 1.5), point))
    return found


class Storm:
    """The storm, and what was seen in it.

    Attributes:
        killed: How often each thing was killed or died at a fault point.
        unreached: How often each service ended by itself and was started again.
        looks: Looks at the chips that the API server and the simulated cluster answered.
        deleted: Names of jobs that were deleted.
    """

    def __init__(self, cell: KubeCell, server: KubeServer, nats: EmbeddedServer, namespace: str) -> None:
        self.killed: Counter[str] = Counter()
        self.unreached: Counter[str] = Counter()
        self.looks = 0
        self.deleted: list[str] = []
        self._cell = cell
        self._server = server
        self._nats = nats
        self._namespace = namespace
        self._down: set[str] = set()
        self._armed: set[str] = set()
        self._is_over = False
        self._keepers: list[asyncio.Task[None]] = []

    async def run(self, jobs: list[Wanted], strikes: list[Strike], group: asyncio.TaskGroup) -> None:
        """Let it rage until all strikes are done and all jobs have come; afterwards everything runs.

        Args:
            jobs: Jobs that come.
            strikes: What is killed, in order.
            group: Where those live that start services again and look at the chips, until :meth:`end`.
        """
        self._keepers = [
            group.create_task(self._keep_alive(), name="keep alive"),
            group.create_task(self._look(), name="look"),
        ]
        async with asyncio.TaskGroup() as storm:
            storm.create_task(self._come_and_go(jobs), name="jobs")
            storm.create_task(self._strike_all(strikes), name="strikes")
        for name in sorted(self._armed):  # what is to follow shall not be disturbed
            await self._strike(Strike(name, 0, 0, ""))

    async def end(self) -> None:
        """Start nothing again and look no more."""
        self._is_over = True
        for keeper in self._keepers:
            await keeper

    async def _come_and_go(self, jobs: list[Wanted]) -> None:
        async with asyncio.TaskGroup() as leaving:
            for job in jobs:
                await pause(job.pause_s)
                await insist(lambda: self._cell.api.post(*self._object(job)))  # noqa: B023  # awaited here
                if job.stays_s is not None:
                    leaving.create_task(self._leave(job, job.stays_s), name=f"leave {job.name}")

    async def _leave(self, job: Wanted, stays_s: float) -> None:
        await pause(stays_s)
        self.deleted.append(job.name)
        await self.delete(job)

    async def delete(self, job: Wanted) -> None:
        """Delete a job."""
        collection, _ = self._object(job)
        await insist(lambda: self._cell.api.delete(f"{collection}/{job.name}"))

    def _object(self, job: Wanted) -> tuple[str, dict[str, Any]]:
        """Path of its collection and itself."""
        if job.pods:
            return f"{JOBS}/{self._namespace}/jobs", a_volcano_job(job.name, job.pods, job.chips, run_for=job.run_for)
        meta = {"name": job.name, "annotations": {"berth/run-for": job.run_for}}
        return f"/api/v1/namespaces/{self._namespace}/pods", {"metadata": meta, "spec": a_spec(job.chips)}

    async def _strike_all(self, strikes: list[Strike]) -> None:
        async with asyncio.TaskGroup() as group:
            for strike in strikes:
                await pause(strike.pause_s)
                await until(
                    lambda: strike.victim not in self._down,  # noqa: B023  # waited for here
                    deadline_s=60,
                    what=f"{strike.victim} is up again",
                )
                self._down.add(strike.victim)
                group.create_task(self._strike(strike), name=f"strike {strike.victim}")

    async def _strike(self, strike: Strike) -> None:
        victim = strike.victim
        self._down.add(victim)
        self.killed[victim] += 1
        if victim == API:
            await self._server.kill_api()
            await pause(strike.down_s)
            await self._server.start_api()
        elif victim == NATS:
            await self._nats.kill()
            await pause(strike.down_s)
            await self._nats.start()
        else:
            service = self._cell.services[victim]
            await service.kill()
            await pause(strike.down_s)
            service.start(fault_point=strike.fault_point)
            if strike.fault_point:
                self._armed.add(victim)
            else:
                self._armed.discard(victim)
        self._down.discard(victim)

    async def _keep_alive(self) -> None:
        """Start services again that have ended, as a cluster does with its pods."""
        while not self._is_over:
            for name, service in self._cell.services.items():
                if name in self._down or service.is_running:
                    continue
                code = service.returncode
                if code == KILLED and name in self._armed:
                    self._armed.discard(name)
                    self.killed[name] += 1
                else:
                    assert code == UNREACHED, f"{name} ended with {code}\n{service.log()}"
                    self.unreached[name] += 1
                assert service.starts < _STARTS_MAX, f"{name} does not stay up\n{service.log()}"
                service.start()  # nothing is awaited since the look: a strike may begin at any moment
            await pause(0.2)

    async def _look(self) -> None:
        """See again and again that no chip is held twice."""
        while not self._is_over:
            try:
                await self._cell.check_chips(self._namespace)
                self.looks += 1
            except (aiohttp.ClientError, TimeoutError, TransientError, RefusedError):
                pass  # somebody is down
            await pause(0.15)


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """Call until the API server has answered; an earlier try that was not answered may have had its effect.

    Raises:
        RefusedError: The server does not want it.
    """

    async def is_done() -> bool:
        try:
            await call()
        except (aiohttp.ClientError, TimeoutError):
            return False
        except RefusedError as error:
            if error.status in {_CONFLICT, _NOT_FOUND}:
                return True
            if not _passes(error):
                raise
            return False
        return True

    await until_true(is_done, deadline_s=_INSIST_S, what="an answer of the API server")


def check_history(history: History) -> int:
    """See that every pod was bound at most once, and that no two pods ever stood for one rank of an attempt.

    Returns:
        Pods that were bound.
    """
    owners: dict[tuple[str, str, str], str] = {}
    bound: dict[str, tuple[str, str, str, str]] = {}
    for name, pod in history.pods.order:
        if not pod.spec.node_name:
            assert pod.metadata.uid not in bound, f"{name} lost its node"
            continue
        said = _binding(pod)
        assert bound.setdefault(pod.metadata.uid, said) == said, (
            f"{name} was bound as {bound[pod.metadata.uid]}: {said}"
        )
        owner = owners.setdefault(said[1:], pod.metadata.uid)
        assert owner == pod.metadata.uid, f"{name} is a second pod of {said}"
    return len(bound)


def _binding(pod: Pod) -> tuple[str, str, str, str]:
    meta = pod.metadata
    return (pod.spec.node_name, meta.annotation(JOB_UID), meta.annotation(ATTEMPT), meta.annotation(RANK))


async def answered(call: Callable[[], Awaitable[T]]) -> T:
    """Answer of the API server, however often it takes.

    Raises:
        RefusedError: The server does not want it.
    """
    found: list[T] = []

    async def has_answered() -> bool:
        try:
            found.append(await call())
        except (aiohttp.ClientError, TimeoutError):
            return False
        except RefusedError as error:
            if not _passes(error):
                raise
        return bool(found)

    await until_true(has_answered, deadline_s=_INSIST_S, what="an answer of the API server")
    return found[0]


def _passes(error: RefusedError) -> bool:
    """Whether a server says this that has only just started."""
    return error.status >= _SERVER_ERROR or error.status in {_FORBIDDEN, _TOO_MANY}


async def phases(api: KubeApi, namespace: str) -> dict[str, str]:
    """Phase of each job and of each pod that nobody owns, by name."""
    found = {}
    for job in await answered(lambda: api.items(f"{JOBS}/{namespace}/jobs")):
        found[job["metadata"]["name"]] = job.get("status", {}).get("state", {}).get("phase", "")
    for pod in await answered(lambda: api.items(f"/api/v1/namespaces/{namespace}/pods")):
        if not pod["metadata"].get("ownerReferences"):
            found[pod["metadata"]["name"]] = pod["status"].get("phase", "")
    return found
