"""A gang that was undone is placed again at once; the pods that come in place of those that ended need a moment."""

import pytest

from berth.runtime.errors import TransientError
from berth.services.binder.cluster import NotYetError
from tests.support.binder_world import bound, made, uid_of
from tests.support.kube_binder import a_gang, a_pod, members_of

PODS = "/api/v1/namespaces/ns/pods"


async def test_the_next_attempt_waits_for_the_pods_that_come_in_place_of_those_that_ended() -> None:
    world = await made(members_wait_s=30)
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)], attempt=2)
    world.pods(gang, "p0", "p1")
    world.kube.confirm(f"{PODS}/p0")
    with pytest.raises(NotYetError, match="1 rank has no pod yet"):
        await world.cluster.bind(gang)
    assert world.node_of("p1") == "", "no pod is bound before all are there"
    world.kube.put(PODS, a_pod("p0"))
    world.cluster.take_members(members_of(gang, [(rank, f"p{rank}", uid_of(world, f"p{rank}")) for rank in (0, 1)]))
    assert await world.cluster.bind(gang) == bound(2)
    assert world.node_of("p0") == "n0"
    assert world.told == []


async def test_it_does_not_wait_for_ever() -> None:
    world = await made(members_wait_s=30)
    gang = a_gang("job", ["n0"], [(0,)], attempt=2)
    world.pods(gang, "p0")
    world.kube.confirm(f"{PODS}/p0")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    world.clock.advance(30)
    assert await world.cluster.bind(gang) == bound(0, (0, "this rank has had no pod for 30 s"))
    assert [(pod, reason) for pod, reason, _ in world.told] == [("p0", "FailedBinding")]
    assert world.job_uids == {gang.uid}


async def test_all_pods_are_looked_at_at_once_and_an_answer_that_is_missing_holds_no_other_up() -> None:
    world = await made()
    gang = a_gang("job", ["n0", "n1", "n2"], [(0,), (0,), (0,)], attempt=2)
    world.pods(gang, "p0", "p1", "p2")
    world.kube.calls.clear()
    world.kube.fail(TransientError("busy"), method="GET", part="p0")
    with pytest.raises(TransientError, match="busy"):
        await world.cluster.bind(gang)
    assert sorted(call.path for call in world.kube.calls) == [f"{PODS}/p{rank}" for rank in range(3)]
    assert await world.cluster.bind(gang) == bound(3)
