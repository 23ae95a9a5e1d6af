"""Equal pods of a node are bound one after another."""

import pytest

from berth.formats.ascend.pod_annotations import CONSUMED
from berth.runtime.errors import TransientError
from berth.schemas.facts import PodPhase
from berth.services.binder.cluster import NotYetError
from tests.support.binder_world import World, bound, made, uid_of
from tests.support.clock import ManualClock
from tests.support.kube_binder import a_gang, members_of, pods_of

PODS = "/api/v1/namespaces/ns/pods"


@pytest.fixture
async def world() -> World:
    return await made()


async def test_equal_pods_of_a_gang_on_one_node_are_bound_one_after_another(world: World) -> None:
    gang = a_gang("job", ["n0", "n0", "n1"], [(0,), (1,), (0,)])
    world.pods(gang, "p0", "p1", "p2")
    with pytest.raises(NotYetError) as caught:
        await world.cluster.bind(gang)
    assert caught.value.retry_after_s == 60
    assert [world.node_of(f"p{rank}") for rank in range(3)] == ["n0", "", "n1"]
    world.cluster.take_pods(
        pods_of(gang, [(0, "n0", PodPhase.PENDING, 1, False), (2, "n1", PodPhase.PENDING, 1, False)])
    )
    assert world.woken == []
    world.cluster.take_pods(
        pods_of(gang, [(0, "n0", PodPhase.PENDING, 1, True), (2, "n1", PodPhase.PENDING, 1, False)])
    )
    assert world.woken == [("uid-job", 1)]
    assert await world.cluster.bind(gang) == bound(3)
    times = [int(world.annotations(f"p{rank}")["predicate-time"]) for rank in (0, 1)]
    assert times[0] < times[1]
    assert world.bindings() == 3


async def test_equal_pods_of_other_gangs_and_of_others_count(world: World) -> None:
    first, second = a_gang("a", ["n0"], [(0,)]), a_gang("b", ["n0"], [(1,)])
    other = a_gang("c", ["n0"], [(2, 3)])
    foreign = a_gang("pod/x", ["n1"], [(0,)], attempt=0)
    third = a_gang("d", ["n1"], [(1,)])
    world.cluster.take_pods(pods_of(foreign, [(0, "n1", PodPhase.PENDING, 1, False)], foreign=True))
    for gang in (first, second, other, third):
        world.pods(gang, f"p-{gang.name}", chips=len(gang.placement.chips))
    assert await world.cluster.bind(first) == bound(1)
    assert await world.cluster.bind(other) == bound(1)
    for gang in (second, third):
        with pytest.raises(NotYetError):
            await world.cluster.bind(gang)
    world.cluster.take_pods(pods_of(first, []))
    world.cluster.take_pods(pods_of(foreign, [(0, "n1", PodPhase.RUNNING, 1, True)], foreign=True))
    assert world.woken == [("uid-b", 1), ("uid-d", 1)]
    assert await world.cluster.bind(second) == bound(1)
    assert await world.cluster.bind(third) == bound(1)


async def test_a_turn_that_never_comes_fails_with_who_is_in_the_way(world: World) -> None:
    first, second = a_gang("a", ["n0"], [(0,)]), a_gang("b", ["n0"], [(1,)])
    world.pods(first, "pa")
    world.pods(second, "pb")
    await world.cluster.bind(first)
    with pytest.raises(NotYetError) as caught:
        await world.cluster.bind(second)
    world.clock.advance(caught.value.retry_after_s - 0.5)
    with pytest.raises(NotYetError):
        await world.cluster.bind(second)
    world.clock.advance(0.5)
    result = await world.cluster.bind(second)
    assert result.bound == 0
    assert "another pod with 1 chip (rank 0 of uid-a, attempt 1)" in result.failures[0].reason


async def test_a_binding_that_failed_frees_its_slot(world: World) -> None:
    first, second = a_gang("a", ["n0"], [(0,)]), a_gang("b", ["n0"], [(1,)])
    world.pods(first, "pa")
    world.pods(second, "pb")
    world.kube.confirm(f"{PODS}/pa")
    assert (await world.cluster.bind(first)).bound == 0
    assert await world.cluster.bind(second) == bound(1)


async def test_without_the_setting_equal_pods_are_bound_at_once_with_different_times() -> None:
    world = await made(one_at_a_time=False)
    gang = a_gang("job", ["n0", "n0"], [(0,), (1,)])
    world.pods(gang, "p0", "p1")
    assert await world.cluster.bind(gang) == bound(2)
    assert len({world.annotations(f"p{rank}")["predicate-time"] for rank in (0, 1)}) == 2


async def test_an_attempt_that_is_over_leaves_its_slots(world: World) -> None:
    first, second = a_gang("a", ["n0"], [(0,)]), a_gang("b", ["n0"], [(1,)])
    world.pods(first, "pa")
    world.pods(second, "pb")
    await world.cluster.bind(first)
    with pytest.raises(NotYetError):
        await world.cluster.bind(second)
    world.cluster.forget(("uid-a", 1))
    assert world.woken == [("uid-b", 1)]


async def test_after_a_restart_pods_that_no_fact_knows_keep_their_slots(world: World) -> None:
    first, second = a_gang("a", ["n0"], [(0,)]), a_gang("b", ["n0"], [(1,)])
    world.pods(first, "pa")
    await world.cluster.bind(first)
    given = int(world.annotations("pa")["predicate-time"])
    world.clock = ManualClock(now_ms=world.clock.now_ms() - 5_000)
    world.restart()
    await world.sync()
    world.cluster.take_members(members_of(first, [(0, "pa", uid_of(world, "pa"))]))
    world.pods(second, "pb")
    world.kube.fail(TransientError("away"), method="GET", part="/pods/")
    with pytest.raises(TransientError):
        await world.cluster.recover([first, second])
    await world.cluster.recover([first, second])
    with pytest.raises(NotYetError):
        await world.cluster.bind(second)
    pod = world.pod("pa")
    served = {**pod["metadata"]["annotations"], "predicate-time": CONSUMED}
    world.kube.put(PODS, {**pod, "metadata": {**pod["metadata"], "annotations": served}})
    assert await world.cluster.bind(first) == bound(1)
    assert await world.cluster.bind(second) == bound(1)
    assert int(world.annotations("pb")["predicate-time"]) > given


async def test_pods_of_a_whole_node_wait_for_nobody(world: World) -> None:
    first, second = a_gang("a", ["n0"], [tuple(range(8))]), a_gang("b", ["n0"], [tuple(range(8))])
    for gang in (first, second):
        world.pods(gang, f"p-{gang.name}", chips=8)
        assert await world.cluster.bind(gang) == bound(1)


@pytest.mark.parametrize("text", ["9" * 5_000, "\u00b2"])
async def test_what_somebody_writes_on_a_pod_ends_no_start_and_no_eviction(world: World, text: str) -> None:
    gang = a_gang("a", ["n0"], [(0,)])
    world.pods(gang, "pa")
    await world.cluster.bind(gang)
    pod = world.pod("pa")
    notes = {**pod["metadata"]["annotations"], "predicate-time": text, "berth/rank": text}
    world.kube.put(PODS, {**pod, "metadata": {**pod["metadata"], "annotations": notes}})
    await world.cluster.recover([gang])
    world.cluster.take_members(members_of(gang, []))
    await world.cluster.evict(gang, reason="cancelled")


async def test_pods_that_are_asked_to_end_keep_their_turn_until_they_are_gone(world: World) -> None:
    first, second = a_gang("a", ["n0"], [(0,)]), a_gang("b", ["n0"], [(1,)])
    for gang in (first, second):
        world.pods(gang, f"p-{gang.name}")
    assert await world.cluster.bind(first) == bound(1)
    with pytest.raises(NotYetError, match="no fact reports 1 of the pods"):
        await world.cluster.evict(first, reason="cancelled")
    with pytest.raises(NotYetError, match="wait for their turn"):
        await world.cluster.bind(second)
    assert world.node_of("p-b") == ""
