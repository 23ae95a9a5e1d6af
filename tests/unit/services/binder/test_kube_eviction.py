"""Pods of an attempt are asked to end, on an API server in memory."""

import asyncio
import gc
import warnings
from collections.abc import Mapping
from typing import TypeVar

import msgspec
import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Listed, ListMeta
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.fault_points import FaultPoints
from berth.runtime.instruments import Instruments
from berth.schemas.facts import PodPhase
from berth.services.binder.cluster import Gang, NotYetError
from berth.services.binder.eviction_port import ignore_event
from berth.services.binder.kube_eviction import KubeEviction, all_of
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeCards, NodeLean
from berth.services.binder.pod_binding import PodBinding
from berth.services.binder.pod_deletion import PodDeletion
from tests.support.binder_world import World, made, replace
from tests.support.clock import ManualClock
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import a_gang, a_node, a_pod, members_of, owned, pods_of

T = TypeVar("T")
PODS = "/api/v1/namespaces/ns/pods"


@pytest.fixture
async def world() -> World:
    return await made()


def tell(world: World, gang: Gang, *ranks: int, phase: PodPhase = PodPhase.RUNNING) -> None:
    """Let facts speak of pods of a gang."""
    names = gang.placement.names()
    world.cluster.take_pods(pods_of(gang, [(rank, names[rank], phase, 1, True) for rank in ranks]))


async def test_exactly_the_pods_of_the_attempt_are_deleted(world: World) -> None:
    gang = a_gang("job", ["n0", "n1", "n2", "n2"], [(0,), (0,), (0,), (0,)])
    world.pods(gang, "p0", "p1", "p2", "p3")
    first = Gang(gang.namespace, gang.name, gang.uid, 1, gang.placement, gone=(3,))
    assert (await world.cluster.bind(first)).bound == 3
    tell(world, first, 0, 1, 2)
    replace(world, "p1")
    world.kube.put(PODS, a_pod("other", node="n1", berth__uid="uid-job", berth__attempt="2", berth__rank="1"))
    world.kube.put(PODS, a_pod("stranger", node="n1"))
    await world.cluster.evict(first, reason="cancelled")
    going = [pod["metadata"]["name"] for pod in world.kube.objects(PODS) if "deletionTimestamp" in pod["metadata"]]
    assert going == ["p0", "p2"]
    deleted = [call.body for call in world.kube.calls if call.method == "DELETE"]
    assert all(body["preconditions"]["uid"] for body in deleted)
    assert all("gracePeriodSeconds" not in body for body in deleted)
    assert world.told == [("p0", "Evicted", "cancelled"), ("p2", "Evicted", "cancelled")]
    assert world.job_uids == {gang.uid}
    for name in ("p0", "p2"):
        world.kube.confirm(f"{PODS}/{name}")
    await world.cluster.evict(first, reason="cancelled")


async def test_pods_that_nobody_names_are_found_on_their_nodes(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
    tell(world, gang, 0)
    world.cluster.take_members(members_of(gang, []))
    await world.cluster.evict(gang, reason="cancelled")
    assert "deletionTimestamp" in world.pod("p0")["metadata"]


async def test_pods_of_many_nodes_are_found_in_the_namespace(world: World) -> None:
    nodes = [f"m{number}" for number in range(20)]
    for name in nodes:
        world.kube.put("/api/v1/nodes", a_node(name))
    await world.sync()
    gang = a_gang("job", nodes, [(0,)] * 20)
    world.pods(gang, *(f"p{number}" for number in range(20)))
    await world.cluster.bind(gang)
    tell(world, gang, *range(20))
    world.cluster.take_members(members_of(gang, []))
    world.kube.calls.clear()
    await world.cluster.evict(gang, reason="cancelled")
    assert sum(call.method == "GET" for call in world.kube.calls) == 1
    assert sum(call.method == "DELETE" for call in world.kube.calls) == 20


async def test_pods_that_have_ended_stay(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
    world.kube.put(PODS, {**world.pod("p0"), "status": {"phase": "Succeeded"}})
    await world.cluster.evict(gang, reason="cancelled")
    assert "deletionTimestamp" not in world.pod("p0")["metadata"]


async def test_pods_that_were_never_bound_stay(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.evict(gang, reason="bind-failed")
    assert "deletionTimestamp" not in world.pod("p0")["metadata"]


async def test_a_foreign_pod_is_deleted_by_its_uid(world: World) -> None:
    uid = world.kube.put(PODS, a_pod("x", node="n0"))["metadata"]["uid"]
    gang = a_gang("pod/x", ["n0"], [(0,)], attempt=0)
    await world.cluster.evict(gang, reason="preempted")
    assert "deletionTimestamp" not in world.pod("x")["metadata"]
    mine = Gang("ns", "pod/x", uid, 0, gang.placement)
    await world.cluster.evict(mine, reason="preempted")
    assert "deletionTimestamp" in world.pod("x")["metadata"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_eviction_that_could_not_be_asked_for_is_asked_for_again(world: World, method: str) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
    tell(world, gang, 0)
    world.kube.fail(TransientError("away"), method=method, part="p0")
    with pytest.raises(TransientError):
        await world.cluster.evict(gang, reason="cancelled")
    await world.cluster.evict(gang, reason="cancelled")
    assert "deletionTimestamp" in world.pod("p0")["metadata"]


async def test_nodes_are_followed() -> None:
    world = World()
    book = world.cluster.nodes
    book.change([("ADDED", card("n7", "1"))])
    first = book.get("n7")
    book.change([("MODIFIED", card("n7", "1"))])
    assert book.get("n7") is first
    book.change([("MODIFIED", card("n7", "2"))])
    assert book.get("n7") != first
    book.change([("DELETED", card("n7", "2"))])
    assert book.get("n7") is None


def card(name: str, superpod: str) -> NodeLean:
    return NodeLean(metadata=Meta(name=name, annotations={"superPodID": superpod}))


async def test_pods_of_released_ranks_stay(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    await world.cluster.bind(gang)
    tell(world, gang, 0, 1)
    await world.cluster.evict(Gang("ns", "job", "uid-job", 1, gang.placement, gone=(1,)), reason="cancelled")
    assert "deletionTimestamp" in world.pod("p0")["metadata"]
    assert "deletionTimestamp" not in world.pod("p1")["metadata"]


async def test_an_eviction_is_done_when_facts_speak_of_all_pods_that_are_left(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    await world.cluster.bind(gang)
    with pytest.raises(NotYetError):
        await world.cluster.evict(gang, reason="cancelled")
    assert all("deletionTimestamp" in world.pod(name)["metadata"] for name in ("p0", "p1"))
    tell(world, gang, 0, phase=PodPhase.TERMINATING)
    assert world.woken == [("uid-job", 1)]
    with pytest.raises(NotYetError):
        await world.cluster.evict(gang, reason="cancelled")
    tell(world, gang, 0, 1, phase=PodPhase.TERMINATING)
    await world.cluster.evict(gang, reason="cancelled")
    assert [name for name, _, _ in world.told] == ["p0", "p1"], "once each"


async def test_an_eviction_is_done_when_no_pod_is_left_though_no_fact_ever_spoke_of_any(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
    with pytest.raises(NotYetError):
        await world.cluster.evict(gang, reason="cancelled")
    world.kube.confirm(f"{PODS}/p0")
    await world.cluster.evict(gang, reason="cancelled")


async def test_pods_of_an_attempt_that_is_withdrawn_run_on_once_facts_report_them(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    await world.cluster.bind(gang)
    with pytest.raises(NotYetError, match="no fact reports 2 of the pods yet"):
        await world.cluster.evict(gang, reason="its pods are of another gang", manner="none")
    tell(world, gang, 0, 1)
    await world.cluster.evict(gang, reason="its pods are of another gang", manner="none")
    assert not any(call.method == "DELETE" for call in world.kube.calls)
    assert world.told == []


async def test_a_pod_that_may_be_bound_counts_as_bound_when_its_gang_is_undone(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    owned(world.kube, "p0")
    world.kube.confirm(f"{PODS}/p1")
    world.kube.fail(AmbiguousError("no answer"), method="POST", part="p0/binding", landed=True)
    world.kube.fail(TransientError("away"), method="GET", part="/p0")
    result = await world.cluster.bind(gang)
    assert world.node_of("p0") == "n0"
    assert (result.bound, [failure.rank for failure in result.failures]) == (1, [1])


async def test_a_pod_that_an_earlier_run_bound_counts_when_the_others_never_come(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(a_gang("job", ["n0"], [(0,)]))
    world.restart()
    await world.sync()
    rows = [(0, "p0", str(world.pod("p0")["metadata"]["uid"]))]
    world.cluster.take_members(members_of(gang, rows))
    owned(world.kube, "p0")
    await world.cluster.recover([gang])
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    world.clock.advance(60)
    result = await world.cluster.bind(gang)
    assert (result.bound, [failure.rank for failure in result.failures]) == (1, [1])


class PagedKube(FakeKube):
    """Lists one object a page."""

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        asked = dict(params or {})
        asked.pop("limit", None)
        at = int(asked.pop("continue", "0"))
        found = await super().get(path, kind, params=asked)
        if not isinstance(found, Listed):
            return found
        items = found.items or []
        meta = ListMeta(continue_=str(at + 1) if items[at + 1 :] else "")
        return msgspec.structs.replace(found, metadata=meta, items=items[at : at + 1])


async def test_pods_on_every_page_of_a_list_are_deleted() -> None:
    kube = PagedKube(clock=ManualClock())
    for rank, name in enumerate(("p0", "p1", "p2")):
        kube.put(PODS, a_pod(name, node="n0", berth__uid="uid-job", berth__attempt="1", berth__rank=str(rank)))
    pods = PodBinding(kube, at_once=4, faults=FaultPoints())
    instruments = Instruments.make(BinderMetrics)
    deletion = PodDeletion(kube, NodeCards(), ManualClock(), instruments, at_once=4, report_event=ignore_event)
    gang = a_gang("job", ["n0"] * 3, [(0,), (1,), (2,)])
    going = await KubeEviction(kube, pods, deletion).evict(gang, {}, "plain", "")
    assert [pod.metadata.name for pod in going] == ["p0", "p1", "p2"]
    assert all("deletionTimestamp" in pod["metadata"] for pod in kube.objects(PODS))


async def test_calls_that_a_process_cancels_before_they_begin_have_ended() -> None:
    own = asyncio.current_task()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        async with asyncio.TaskGroup() as group:
            group.create_task(all_of(asyncio.sleep(60, None) for _ in range(2)))
            await asyncio.sleep(0)  # it has begun, and its calls have not
            ended = asyncio.all_tasks() - {own}
            assert len(ended) > 1
            for task in ended:
                task.cancel()
        del ended, task
        gc.collect()
    assert [str(one.message) for one in found] == []
