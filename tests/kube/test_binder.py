"""The binder on a real API server, with the rights that it is given in a cluster, whatever goes wrong."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from berth.formats.kubernetes.objects import Listed
from berth.runtime.clock import SystemClock
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.port import Body, RefusedError
from berth.schemas.facts import PodPhase
from berth.schemas.status import JobStatus
from berth.services.binder.cluster import BindResult, NotYetError
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeLean
from berth.services.binder.notice_loop import NoticeLoop
from tests.support.binder_cluster import USER, World
from tests.support.kube_api import MERGE_PATCH, KubeApi
from tests.support.kube_binder import RESOURCE, a_pod, members_of, pods_of
from tests.support.kube_rights import Right, bindings_of, may, path_of
from tests.support.kustomize import render
from tests.support.waiting import until_true

K8S = Path(__file__).parents[2] / "k8s" / "overlays" / "dev"


async def revoke(api: KubeApi) -> None:
    """Take the rights away again."""
    for binding in bindings_of(render(K8S), USER):
        await api.delete(f"{path_of(binding)}-of-{USER}")


class Unclear:
    """A client whose next binding lands while its answer is lost."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.lost = 0

    async def create(self, path: str, body: Body) -> bytes:
        answer = await self._client.create(path, body)
        if path.endswith("/binding") and not self.lost:
            self.lost += 1
            raise AmbiguousError("the connection broke")
        return answer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is the client's
        return getattr(self._client, name)


async def test_a_gang_is_bound_with_its_annotations_by_an_ordinary_user(world: World) -> None:
    gang = world.gang("job", 0, 1, chips=8)
    await world.make(gang, "p0", "p1", distributed=True, rank_index=["0", "1"])
    assert await world.cluster.bind(gang) == BindResult(2)
    for rank in (0, 1):
        pod = await world.pod(f"p{rank}")
        assert pod["spec"]["nodeName"] == world.node(rank)
        notes = pod["metadata"]["annotations"]
        assert notes[RESOURCE] == notes["huawei.com/AscendReal"] == ",".join(f"Ascend910-{chip}" for chip in range(8))
        assert (notes["hccl/rankIndex"], notes["berth/rank"], notes["distributed-job"]) == (
            str(rank),
            str(rank),
            "true",
        )
        assert pod["metadata"]["uid"] in notes["ascend.kubectl.kubernetes.io/ascend-910-configuration"]
        assert {"PodScheduled": "True"}.items() <= {
            item["type"]: item["status"] for item in pod["status"]["conditions"]
        }.items()


async def test_a_pod_that_is_bound_counts_when_it_is_ours_and_fails_when_it_is_not(world: World) -> None:
    gang = world.gang("job", 0)
    (uid,) = await world.make(gang, "p0")
    assert (await world.cluster.bind(gang)).bound == 1
    before = (await world.pod("p0"))["metadata"]["annotations"]
    assert await world.cluster.bind(gang) == BindResult(1)
    assert (await world.pod("p0"))["metadata"]["annotations"] == before
    other = world.gang("other", 1)
    world.say(other, ("p0", uid))
    (failure,) = (await world.cluster.bind(other)).failures
    assert failure.reason == f"pod p0 is on node {world.node(0)} already, bound by job (uid-job), attempt 1"
    world.cluster.forget(gang.key)
    later = world.gang("job", 0, attempt=2)
    world.say(later, ("p0", uid))
    assert (await world.cluster.bind(later)).failures


async def test_a_pod_that_is_gone_fails(world: World) -> None:
    gang = world.gang("job", 0)
    world.say(gang, ("nobody", "u"))
    (failure,) = (await world.cluster.bind(gang)).failures
    assert failure.reason == "pod nobody is gone"


async def test_a_pod_that_is_being_deleted_fails(world: World) -> None:
    gang = world.gang("job", 0)
    await world.make(gang, "p0")
    hold = {"metadata": {"finalizers": ["berth.example/hold"]}}
    await world.api.patch(f"{world.pods}/p0", hold, content_type=MERGE_PATCH)
    await world.api.delete(f"{world.pods}/p0")
    try:
        (failure,) = (await world.cluster.bind(gang)).failures
        assert failure.reason == "pod p0 is being deleted"
    finally:
        await world.api.patch(f"{world.pods}/p0", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)


async def test_another_pod_under_the_name_is_never_taken_for_ours(world: World) -> None:
    """Servers that do not look at the uid bind it: then it carries our marks, and counts. Others refuse."""
    gang = world.gang("job", 0)
    (uid,) = await world.make(gang, "p0")
    world.say(gang, ("p0", "11111111-1111-1111-1111-111111111111"))
    result = await world.cluster.bind(gang)
    if await world.node_of("p0"):
        assert result == BindResult(1)
    else:
        (failure,) = result.failures
        assert failure.reason == f"pod p0 was replaced: its uid is {uid}, not 11111111-1111-1111-1111-111111111111"
    # After an answer that was lost, the pod itself is compared: that proves it on every server.
    second = world.gang("second", 1)
    await world.make(second, "q0")
    client = Unclear(world.client)
    cluster = KubeCluster(client, SystemClock(), BinderConfig(), Instruments.make(BinderMetrics))
    cluster.nodes.replace((await world.client.get("/api/v1/nodes", Listed[NodeLean])).items or [])
    wrong = members_of(second, [(0, "p0", "22222222-2222-2222-2222-222222222222")])
    cluster.take_members(wrong)
    (failure,) = (await cluster.bind(second)).failures
    assert "was replaced" in failure.reason


async def test_after_an_answer_that_was_lost_the_pod_is_read_and_counts(world: World) -> None:
    gang = world.gang("job", 0)
    (uid,) = await world.make(gang, "p0")
    client = Unclear(world.client)
    cluster = KubeCluster(client, SystemClock(), BinderConfig(), Instruments.make(BinderMetrics))
    cluster.nodes.replace((await world.client.get("/api/v1/nodes", Listed[NodeLean])).items or [])
    cluster.take_members(members_of(gang, [(0, "p0", uid)]))
    assert await cluster.bind(gang) == BindResult(1)
    assert client.lost == 1


async def test_old_annotations_are_removed_by_name_uid_and_version(world: World) -> None:
    gang = world.gang("job", 0)
    old = {"huawei.com/AscendReal": "Ascend910-7", "huawei.com/schedule_policy": "chip4-node8"}
    body = a_pod("p0")
    made = await world.api.post(world.pods, {**body, "metadata": {"name": "p0", "annotations": old}})
    world.say(gang, ("p0", str(made["metadata"]["uid"])), stale=[0])
    assert await world.cluster.bind(gang) == BindResult(1)
    notes = (await world.pod("p0"))["metadata"]["annotations"]
    assert notes["huawei.com/schedule_policy"] == "chip4-node8"
    assert "huawei.com/AscendReal" not in notes


async def test_equal_pods_of_a_node_are_bound_one_after_another(world: World) -> None:
    gang = world.gang("job", 0, 0)
    await world.make(gang, "p0", "p1")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    assert (await world.node_of("p0"), await world.node_of("p1")) == (world.node(0), "")
    world.cluster.take_pods(pods_of(gang, [(0, world.node(0), PodPhase.PENDING, 1, True)]))
    assert await world.cluster.bind(gang) == BindResult(2)
    times = [int((await world.pod(f"p{rank}"))["metadata"]["annotations"]["predicate-time"]) for rank in (0, 1)]
    assert times[0] < times[1]


async def test_exactly_the_pods_of_an_attempt_are_evicted(world: World) -> None:
    gang = world.gang("job", 0, 1)
    await world.make(gang, "p0", "p1")
    await world.cluster.bind(gang)
    other = world.gang("other", 2)
    await world.make(other, "q0")
    await world.cluster.bind(other)
    world.say(gang)  # nobody names them any more: they are found on their nodes
    rows = [(rank, world.node(rank), PodPhase.PENDING, 1, False) for rank in (0, 1)]
    world.cluster.take_pods(pods_of(gang, rows))
    await world.cluster.evict(gang, reason="cancelled")
    going = {
        item["metadata"]["name"]
        for item in await world.api.items(world.pods)
        if "deletionTimestamp" in item["metadata"]
    }
    assert going == {"p0", "p1"}
    assert world.told == [("p0", "Evicted", "cancelled"), ("p1", "Evicted", "cancelled")]


async def test_what_the_rights_do_not_allow_is_tried_again_with_the_servers_words(world: World) -> None:
    gang = world.gang("job", 0)
    await world.make(gang, "p0")
    with pytest.raises(RefusedError):
        await world.client.delete("/api/v1/nodes/any")
    await revoke(world.api)

    right = Right("create", "", "pods/binding", world.namespace, "p0")

    async def is_known() -> bool:
        return not await may(world.api, USER, right)

    await until_true(is_known, deadline_s=10, what="the server knows of the lost rights")
    with pytest.raises(TransientError, match=f'"{USER}" cannot create resource "pods/binding"'):
        await world.cluster.bind(gang)


async def test_who_waits_is_told_on_the_pod_and_in_events(world: World) -> None:
    gang = world.gang("job", 0, 1)
    uids = await world.make(gang, "p0", "p1")
    clock = SystemClock()
    loop = NoticeLoop(world.client, clock, BinderConfig(notices_per_s=200), Instruments.make(BinderMetrics))
    loop.take_members(members_of(gang, [(0, "p0", uids[0]), (1, "p1", uids[1])]))
    told = JobStatus(world.namespace, "job", "uid-job", "waiting", 0, clock.now_ms(), sentence="0 of 3 nodes fit")
    loop.take_status(told)

    async def are_told() -> bool:
        conditions = [
            {item["type"]: item for item in (await world.pod(name))["status"].get("conditions", [])}
            for name in ("p0", "p1")
        ]
        found = await world.api.items(f"/api/v1/namespaces/{world.namespace}/events")
        events = [(item["reason"], item["message"], item["involvedObject"]["name"]) for item in found]
        return all(one.get("PodScheduled", {}).get("message") == "0 of 3 nodes fit" for one in conditions) and sorted(
            events
        ) == [("FailedScheduling", "0 of 3 nodes fit", "p0"), ("FailedScheduling", "0 of 3 nodes fit", "p1")]

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(loop.run(), name="write")
        await until_true(are_told, deadline_s=10, what="conditions of the pods, and an Event of each")
        writing.cancel()
