"""Pods that are bound and deleted while no watch looks: the inventory asks for them, and says that they are gone."""

from collections.abc import AsyncIterator

import pytest

from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, NodesSeen, OutcomeSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.status import JobStatus
from berth.services.inventory.pods.unseen import Unseen
from berth.services.inventory.watching import pod_lookups
from tests.unit.services.inventory.test_service import RESOURCE, World, a_bound_pod, a_node, a_pod

PODS = "/api/v1/namespaces/team/pods"
WAIT_S = pod_lookups.UNSEEN_MS / 1_000


def bound(attempt: int = 1, *, uid: str = "u", pods: int = 2) -> OutcomeSeen:
    return OutcomeSeen("team", "job", uid, attempt, "bound", bound=pods)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A node, and a job of two pods that the dispatcher has accepted."""
    made = World()
    await made.bus.ensure_streams()
    request = JobRequest("team", "job", "u", RESOURCE, [Task("t", 2, 2)])
    seen = JobSeen("team", "job", "u", "accepted", 1, request=request)
    await made.bus.publish(made.bus.subjects.fact_job("team", "job"), encode(seen))
    made.kube.put("/api/v1/nodes", a_node("a"))
    yield made
    await made.bus.close()


async def tell(world: World, outcome: OutcomeSeen) -> None:
    await world.bus.publish(world.bus.subjects.fact_outcome("team", "job"), encode(outcome))
    await world.quiet()


async def wait_long(world: World) -> None:
    """Let the time pass, until a turn has seen it; the clock alone wakes nobody."""
    world.clock.advance(WAIT_S)
    known = len(world.facts("node", NodesSeen))
    world.kube.put("/api/v1/nodes", a_node("a", address=f"ip-{world.clock.now_ms()}"))
    await world.has(lambda: len(world.facts("node", NodesSeen)) > known, "a turn after the wait")


async def wait_long_blindly(world: World) -> None:
    """The same while no watch shows anything: a result of the binder for a job that is not known wakes it."""
    world.clock.advance(WAIT_S)
    await tell(world, OutcomeSeen("team", "another", "x", 1, "bound", bound=1))


def bind(world: World, *ranks: int) -> None:
    for rank in ranks:
        world.kube.put(PODS, a_bound_pod(f"p{rank}", rank, 7))


def lists(world: World) -> int:
    return sum(1 for call in world.kube.calls if (call.method, call.path) == ("GET", PODS))


async def test_a_pod_that_was_bound_and_deleted_between_two_lists_is_gone(world: World) -> None:
    async with world.inventory():
        await world.has(world.nodes, "the node")
        world.kube.watching.clear()
        bind(world, 0, 1)
        world.kube.confirm(f"{PODS}/p1")
        world.kube.relist()
        world.kube.watching.set()
        await world.has(lambda: world.phases() == [("job", ["RUNNING"])], "the pod that is there")
        await tell(world, bound())
        assert lists(world) == 0, "the watch has its time"
        await wait_long(world)
        await world.has(lambda: world.phases()[-1] == ("job", ["RUNNING", "GONE"]), "the pod that is gone")
    assert lists(world) == 1


async def test_all_pods_of_a_job_that_nobody_saw_are_gone_also_if_the_server_is_away_at_first(world: World) -> None:
    async with world.inventory():
        await world.has(world.nodes, "the node")
        await tell(world, bound())
        world.kube.fail(TransientError("away"), method="GET", part=PODS, times=2)
        await wait_long(world)
        await world.has(lambda: world.phases() == [("job", ["GONE", "GONE"])], "both are gone")


async def test_a_pod_that_is_in_the_list_is_not_gone_however_late_the_watch_is(world: World) -> None:
    async with world.inventory():
        await world.has(world.nodes, "the node")
        await tell(world, bound())
        world.kube.watching.clear()
        bind(world, 0, 1)
        world.kube.put("/api/v1/namespaces/team/pods", a_pod("other", node="a"))
        await wait_long_blindly(world)
        await world.has(lambda: lists(world) == 1, "the list")
        await world.quiet()
        assert world.phases() == []
        world.kube.watching.set()
        await world.has(lambda: ("job", ["RUNNING", "RUNNING"]) in world.phases(), "the watch shows them")
    assert all("GONE" not in phases for name, phases in world.phases() if name == "job")


async def test_a_server_that_refuses_is_asked_again(world: World) -> None:
    async with world.inventory():
        await world.has(world.nodes, "the node")
        await tell(world, bound())
        world.kube.fail(RefusedError("no", status=403, cause="Forbidden"), method="GET", part=PODS)
        world.kube.fail(PoisonError("no list"), method="GET", part=PODS)
        await wait_long(world)
        await world.has(lambda: world.phases() == [("job", ["GONE", "GONE"])], "both are gone")
    assert lists(world) == 3


async def test_chips_of_a_pod_that_no_watch_shows_are_not_given_back_with_those_of_another(world: World) -> None:
    async with world.inventory():
        await world.has(world.nodes, "the node")
        world.kube.watching.clear()
        bad = a_bound_pod("p0", 0, 7)
        world.kube.put(PODS, {**bad, "spec": {**bad["spec"], "containers": "none"}})
        await tell(world, bound())
        for number in (1, 2):
            await wait_long_blindly(world)
            await world.has(lambda count=number: lists(world) == count, "the list")
            await world.quiet()
            assert world.phases() == []
        world.kube.put(PODS, bad)
        world.kube.relist()
        world.kube.watching.set()
        await world.has(lambda: world.phases() == [("job", ["RUNNING"])], "the pod that is there")
        await wait_long_blindly(world)
        await world.has(lambda: world.phases()[-1] == ("job", ["RUNNING", "GONE"]), "the pod that is gone")
    assert lists(world) == 3


async def test_the_jobs_of_a_namespace_share_a_list_that_comes_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_lookups, "PAGE_SIZE", 2)
    request = JobRequest("team", "more", "v", RESOURCE, [Task("t", 2, 2)])
    seen = JobSeen("team", "more", "v", "accepted", 1, request=request)
    await world.bus.publish(world.bus.subjects.fact_job("team", "more"), encode(seen))
    async with world.inventory():
        await world.has(world.nodes, "the node")
        world.kube.watching.clear()
        for number in range(3):
            world.kube.put(PODS, a_pod(f"a{number}", node="a"))
        await tell(world, bound())
        other = OutcomeSeen("team", "more", "v", 1, "bound", bound=2)
        await world.bus.publish(world.bus.subjects.fact_outcome("team", "more"), encode(other))
        await world.quiet()
        await wait_long_blindly(world)
        await world.has(lambda: len(world.phases()) == 2, "what became of both")
        assert sorted(world.phases()) == [("job", ["GONE", "GONE"]), ("more", ["GONE", "GONE"])]
    assert lists(world) == 2, "two pages of one list"


async def test_nobody_asks_for_pods_that_are_known_or_of_an_attempt_that_is_over(world: World) -> None:
    async with world.inventory():
        await world.has(world.nodes, "the node")
        bind(world, 0, 1)
        await world.has(lambda: world.phases() == [("job", ["RUNNING", "RUNNING"])], "the pods")
        await tell(world, bound())
        await wait_long(world)
        await world.quiet()
        status = JobStatus("team", "job", "u", "failed", since_ms=1, at_ms=1, attempt=2)
        await world.bus.publish(world.bus.subjects.status("team", "job"), encode(status))
        await tell(world, bound(attempt=2))
        await wait_long(world)
        await world.quiet()
    assert lists(world) == 0


def test_outcomes_are_due_in_their_order_and_once() -> None:
    lacking = {"a", "b"}
    unseen = Unseen(lambda outcome: outcome.name in lacking, wait_ms=100)
    unseen.note(OutcomeSeen("team", "a", "u", 1, "bound", bound=1), 1_000)
    unseen.note(OutcomeSeen("team", "known", "u", 1, "bound", bound=1), 1_000)
    unseen.note(OutcomeSeen("team", "b", "u", 1, "bound", bound=1), 1_050)
    assert unseen.next_due_ms() == 1_100
    assert unseen.due(1_099) == []
    assert [one.name for one in unseen.due(1_100)] == ["a"]
    assert unseen.next_due_ms() == 1_150
    lacking.clear()
    assert unseen.due(1_150) == []
    assert unseen.next_due_ms() is None


def test_a_newer_outcome_takes_the_place_of_the_one_before() -> None:
    unseen = Unseen(lambda _: True, wait_ms=100)
    unseen.note(bound(), 0)
    unseen.note(bound(2), 50)
    assert unseen.due(100) == []
    assert [one.attempt for one in unseen.due(150)] == [2]
