"""Owners that change while their pods wait: a watch shows it, and without one they are read in time."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

import pytest

from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobCancel
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.kube_rules import Tree
from tests.unit.services.inventory.test_service import World, a_node, a_pod

JOBS: Final = "/apis/batch/v1/jobs"
TEAM: Final = "/apis/batch/v1/namespaces/team/jobs"
QUEUE: Final = "volcano.sh/queue-name"
PODS: Final = 2


class Waiting(World):
    """A world with a Job whose request waits."""

    def __init__(self) -> None:
        super().__init__()
        self.kube.put("/api/v1/nodes", a_node("a"))
        self.job: Tree = {}
        self.others = 0

    def make(self) -> None:
        self.job = self.put(queue="first")
        about = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        for index in range(PODS):
            pod = a_pod(f"j-{index}", **{"batch.kubernetes.io/job-completion-index": str(index)})
            pod["metadata"]["ownerReferences"] = [about | {"name": "j", "uid": self.job["metadata"]["uid"]}]
            self.kube.put("/api/v1/namespaces/team/pods", pod)

    def put(self, *, queue: str, name: str = "j", suspend: bool = False) -> Tree:
        spec = {"parallelism": PODS, "completions": PODS, "completionMode": "Indexed", "suspend": suspend}
        meta: Tree = {"name": name, "namespace": "team", "annotations": {QUEUE: queue}}
        return self.kube.put(TEAM, {"metadata": meta, "spec": spec})

    async def wait(self) -> None:
        """Let its request wait, and a second go by since its owner was read."""
        await self.has(lambda: self.queues() == ["first"], "a request")
        (request,) = self.requests()
        job = JobSeen("team", request.name, request.uid, "accepted", 1, request=request)
        await self.bus.publish(self.bus.subjects.fact_job("team", request.name), encode(job))
        waits = JobStatus("team", request.name, request.uid, "waiting", 1, 1)
        await self.bus.publish(self.bus.subjects.status("team", request.name), encode(waits))
        await self.quiet()
        self.clock.advance(1)

    def advance(self, seconds: float) -> None:
        """Let time pass, and something happen that makes the inventory look at its clock."""
        self.clock.advance(seconds)
        self.others += 1
        self.kube.put("/api/v1/nodes", a_node(f"other-{self.others}"))

    def queues(self) -> list[str]:
        return [one.queue for one in self.requests()]

    def lists(self) -> list[str]:
        """Paths of collections of owners that were listed."""
        paths = [call.path for call in self.kube.calls if call.method == "GET" and call.path.startswith("/apis/")]
        return [path for path in paths if path.endswith(("/jobs", "sets", "clusters"))]

    def reads(self) -> int:
        return sum(call.path == f"{TEAM}/j" for call in self.kube.calls)


@pytest.fixture
async def world() -> AsyncIterator[Waiting]:
    found = Waiting()
    await found.bus.ensure_streams()
    found.make()
    yield found
    await found.bus.close()


async def test_an_owner_that_changes_is_seen_and_kinds_that_nobody_uses_are_not_watched(world: Waiting) -> None:
    async with world.inventory():
        await world.wait()
        world.put(queue="second")
        await world.has(lambda: world.queues()[1:] == ["second"], "a request of the new queue")
    assert world.lists() == [JOBS], "it is listed once"


async def test_an_owner_is_not_read_because_others_change_or_because_what_nobody_reads_does(world: Waiting) -> None:
    async with world.inventory():
        await world.wait()
        reads = world.reads()
        for number in range(50):
            world.put(queue=str(number), name=f"of-nobody-{number}")
        path = f"{TEAM}/j"
        world.kube.put(path, world.kube.object(path) | {"status": {"active": 1}})
        await world.quiet()
        assert world.reads() == reads


async def test_an_owner_that_is_written_all_the_time_is_read_once_a_second(world: Waiting) -> None:
    async with world.inventory():
        await world.wait()
        reads = world.reads()
        for number in range(20):
            world.put(queue=f"q{number}")
            await world.quiet()
        assert world.reads() - reads <= 2, "the clock stands still"
        world.advance(1)
        await world.has(lambda: world.queues()[-1] == "q19", "a request of the newest queue")
        assert world.reads() - reads <= 3


async def test_an_owner_that_goes_while_the_watch_is_broken_is_seen_gone(world: Waiting) -> None:
    async with world.inventory():
        await world.wait()
        world.kube.watching.clear()
        world.kube.confirm(f"{TEAM}/j")
        world.kube.relist()
        world.kube.watching.set()
        await world.has(lambda: world.history(StreamName.INTAKE, ".intake.cancel.", JobCancel), "a cancellation")


@pytest.mark.parametrize("status", [HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND])
async def test_without_a_watch_owners_are_read_as_before_and_it_begins_once_it_is_allowed(
    world: Waiting, status: HTTPStatus
) -> None:
    refused = RefusedError(status.phrase, status=status)
    world.kube.fail(refused, method="GET", part=JOBS, times=1_000)
    async with world.inventory():
        await world.wait()
        world.put(queue="second")
        await world.quiet()
        assert world.queues() == ["first"]
        world.advance(30)
        await world.has(lambda: world.queues()[1:] == ["second"], "a request of the new queue")
        world.kube.forgive()
        lists = len(world.lists())
        await world.has(lambda: len(world.lists()) > lists, "another try to watch")
        await world.has(lambda: any(one._place.plural == "jobs" for one in world.kube._reflections), "a watch")


async def test_a_watch_that_is_refused_later_is_tried_again(world: Waiting) -> None:
    async with world.inventory():
        await world.wait()
        world.kube.fail(RefusedError("Forbidden", status=HTTPStatus.FORBIDDEN), method="GET", part=JOBS, times=2)
        world.kube.relist()
        await world.has(lambda: len(world.lists()) >= 4, "a list that is not refused")
        world.put(queue="second")
        await world.has(lambda: world.queues()[1:] == ["second"], "a request of the new queue")
