"""The binder proves the marks of pods that it binds, and takes no other pod for one of its own."""

from typing import Any

import pytest

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import MAC
from berth.formats.kubernetes.bound_pods import counted
from berth.formats.kubernetes.lean import Meta
from berth.services.binder.cluster import NotYetError
from berth.services.binder.work import Clearing
from tests.support.binder_world import PODS, World, bound, uid_of
from tests.support.kube_binder import a_gang, a_pod, members_of

MARKS = MarkProofs([bytes(range(32))])


@pytest.fixture
async def world() -> World:
    """A cluster with keys."""
    found = World()
    found.marks = MARKS
    found.restart()
    await found.sync()
    return found


def meta_of(world: World, name: str) -> Meta:
    return Meta(name=name, uid=uid_of(world, name), annotations=world.annotations(name))


async def test_a_pod_is_bound_with_a_code_for_its_marks(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    assert await world.cluster.bind(gang) == bound(2)
    for name in ("p0", "p1"):
        meta = meta_of(world, name)
        assert counted(meta, MARKS) is meta
    assert world.annotations("p0")[MAC] != world.annotations("p1")[MAC]


async def test_a_pod_that_it_bound_is_its_own_after_a_restart_and_is_deleted(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
    world.restart()
    await world.sync()
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))]))
    assert await world.cluster.bind(gang) == bound(1)
    with pytest.raises(NotYetError, match="no fact reports 1 of the pods"):
        await world.cluster.evict(gang, reason="cancelled")
    assert "deletionTimestamp" in world.pod("p0")["metadata"]


async def test_pods_with_false_marks_are_not_deleted_with_a_job(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    false: Any = {"berth__job": "job", "berth__uid": "uid-job", "berth__attempt": "1", "berth__rank": "0"}
    world.kube.put(PODS, a_pod("bare", node="n0", **false))
    world.kube.put(PODS, a_pod("coded", node="n0", berth__mac="0" * 64, **false))
    world.cluster.take_members(members_of(gang, [(0, "bare", uid_of(world, "bare"))]))
    await world.cluster.evict(gang, reason="cancelled")
    assert [pod["metadata"]["name"] for pod in world.kube.objects(PODS) if "deletionTimestamp" in pod["metadata"]] == []


async def test_ended_pods_with_false_marks_of_earlier_attempts_are_not_cleared(world: World) -> None:
    false: Any = {"berth__job": "job", "berth__uid": "uid-job", "berth__attempt": "1", "berth__rank": "0"}
    world.kube.put(PODS, {**a_pod("ended", node="n0", **false), "status": {"phase": "Failed"}})
    await world.cluster.clear(Clearing("ns", "job", "uid-job", 2))
    assert "deletionTimestamp" not in world.pod("ended")["metadata"]


async def test_a_pod_that_another_bound_with_false_marks_is_not_taken_for_bound(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    false: Any = {"berth__job": "job", "berth__uid": "uid-job", "berth__attempt": "1", "berth__rank": "0"}
    made = world.kube.put(PODS, a_pod("p0", node="n0", **false))
    world.cluster.take_members(members_of(gang, [(0, "p0", made["metadata"]["uid"])]))
    (failure,) = (await world.cluster.bind(gang)).failures
    assert "bound by another scheduler" in failure.reason


async def test_copied_marks_are_removed_before_a_pod_is_bound(world: World) -> None:
    """A step that the Binding does not write would stay on the pod, and the code would not prove it."""
    gang = a_gang("job", ["n0"], [(0,)])
    made = world.kube.put(PODS, a_pod("p0", berth__step="4", berth__mac="0" * 64))
    world.cluster.take_members(members_of(gang, [(0, "p0", made["metadata"]["uid"])], stale=[0]))
    assert await world.cluster.bind(gang) == bound(1)
    meta = meta_of(world, "p0")
    assert counted(meta, MARKS) is meta
    assert meta.annotation("berth/step") == ""
