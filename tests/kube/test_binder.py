"""The binder on a real API server, with the rights that it is given in a cluster, whatever goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from berth.formats.kube_events import Involved
from berth.formats.kube_objects import Listed
from berth.runtime.bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.faults import BINDER_POINTS
from berth.runtime.kube import KubeApi as Client
from berth.runtime.kube_config import KubeConfig
from berth.runtime.kube_port import Body, RefusedError
from berth.runtime.kube_server import KubeServer
from schemas.envelope import decode, encode
from schemas.facts import OutcomeSeen, PodPhase
from schemas.ledger import Epoch, Round, Settings, Verdict
from schemas.simulation import GangBound
from schemas.status import JobStatus
from schemas.subjects import StreamName
from services.binder.cluster import Gang, NotYetError
from services.binder.config import BinderConfig
from services.binder.kube_cluster import KubeCluster
from services.binder.node_book import NodeLean
from services.binder.notice_loop import NoticeLoop
from tests.support.kube_api import MERGE_PATCH, KubeApi
from tests.support.kube_binder import RESOURCE, a_gang, a_node, a_pod, members_of, pods_of
from tests.support.kube_rights import bindings_of, grant, path_of
from tests.support.kustomize import render
from tests.support.processes import services
from tests.support.waiting import until, until_true

K8S = Path(__file__).parents[2] / "k8s" / "overlays" / "dev"
USER = "binder"


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


class World:
    """Three nodes of eight chips, a namespace, and a binder's view of them as an ordinary user."""

    def __init__(self, api: KubeApi, client: Client, namespace: str) -> None:
        self.api = api
        self.client = client
        self.namespace = namespace
        self.told: list[tuple[str, str, str]] = []
        self.cluster = KubeCluster(client, SystemClock(), BinderConfig(), tell=self._tell)

    def _tell(self, involved: Involved, reason: str, message: str) -> None:
        self.told.append((involved.name, reason, message))

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def open(self) -> "World":
        for number in range(3):
            await self.api.post("/api/v1/nodes", a_node(self.node(number)))
        found = await self.client.get("/api/v1/nodes", Listed[NodeLean])
        self.cluster.nodes.replace(found.items or [])
        return self

    def node(self, number: int) -> str:
        return f"{self.namespace}-n{number}"

    def gang(self, name: str, *nodes: int, chips: int = 1, attempt: int = 1) -> Gang:
        used: dict[int, int] = {}
        picked = []
        for node in nodes:
            first = used.get(node, 0)
            used[node] = first + chips
            picked.append(tuple(range(first, first + chips)))
        return a_gang(name, [self.node(node) for node in nodes], picked, namespace=self.namespace, attempt=attempt)

    async def make(self, gang: Gang, *names: str, **changes: Any) -> list[str]:  # noqa: ANN401 - fields of the fact
        """Make pods and say that they stand for the ranks; returns their uids."""
        uids = [str((await self.api.post(self.pods, a_pod(name)))["metadata"]["uid"]) for name in names]
        self.say(gang, *zip(names, uids, strict=True), **changes)
        return uids

    def say(self, gang: Gang, *pods: tuple[str, str], **changes: Any) -> None:  # noqa: ANN401 - fields of the fact
        self.cluster.take_members(members_of(gang, [(rank, *pod) for rank, pod in enumerate(pods)], **changes))

    async def pod(self, name: str) -> dict[str, Any]:
        return await self.api.get(f"{self.pods}/{name}")

    async def node_of(self, name: str) -> str:
        return str((await self.pod(name))["spec"].get("nodeName", ""))


@pytest.fixture
async def world(kube_server: KubeServer, kube_api: KubeApi, namespace: str, tmp_path: Path) -> AsyncIterator[World]:
    await grant(kube_api, USER, USER)
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig", user=USER))
    async with await Client.connect(config, clock=SystemClock()) as client:
        yield await World(kube_api, client, namespace).open()


async def test_a_gang_is_bound_with_its_annotations_by_an_ordinary_user(world: World) -> None:
    gang = world.gang("job", 0, 1, chips=8)
    await world.make(gang, "p0", "p1", distributed=True, rank_index=["0", "1"])
    assert await world.cluster.bind(gang) == GangBound(2)
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
    assert await world.cluster.bind(gang) == GangBound(1)
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
        assert result == GangBound(1)
    else:
        (failure,) = result.failures
        assert failure.reason == f"pod p0 was replaced: its uid is {uid}, not 11111111-1111-1111-1111-111111111111"
    # After an answer that was lost, the pod itself is compared: that proves it on every server.
    second = world.gang("second", 1)
    await world.make(second, "q0")
    client = Unclear(world.client)
    cluster = KubeCluster(client, SystemClock(), BinderConfig())
    cluster.nodes.replace((await world.client.get("/api/v1/nodes", Listed[NodeLean])).items or [])
    wrong = members_of(second, [(0, "p0", "22222222-2222-2222-2222-222222222222")])
    cluster.take_members(wrong)
    (failure,) = (await cluster.bind(second)).failures
    assert "was replaced" in failure.reason


async def test_after_an_answer_that_was_lost_the_pod_is_read_and_counts(world: World) -> None:
    gang = world.gang("job", 0)
    (uid,) = await world.make(gang, "p0")
    client = Unclear(world.client)
    cluster = KubeCluster(client, SystemClock(), BinderConfig())
    cluster.nodes.replace((await world.client.get("/api/v1/nodes", Listed[NodeLean])).items or [])
    cluster.take_members(members_of(gang, [(0, "p0", uid)]))
    assert await cluster.bind(gang) == GangBound(1)
    assert client.lost == 1


async def test_old_annotations_are_removed_by_name_uid_and_version(world: World) -> None:
    gang = world.gang("job", 0)
    old = {"huawei.com/AscendReal": "Ascend910-7", "huawei.com/schedule_policy": "chip4-node8"}
    body = a_pod("p0")
    made = await world.api.post(world.pods, {**body, "metadata": {"name": "p0", "annotations": old}})
    world.say(gang, ("p0", str(made["metadata"]["uid"])), stale=[0])
    assert await world.cluster.bind(gang) == GangBound(1)
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
    assert await world.cluster.bind(gang) == GangBound(2)
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

    async def is_known() -> bool:
        try:
            await world.client.get(f"{world.pods}/p0", NodeLean)
        except RefusedError as error:
            return error.status == 403
        return False

    await until_true(is_known, deadline_s=10, what="the server knows of the lost rights")
    with pytest.raises(TransientError, match=f'"{USER}" cannot create resource "pods/binding"'):
        await world.cluster.bind(gang)


async def test_who_waits_is_told_on_the_pod_and_in_events(world: World) -> None:
    gang = world.gang("job", 0, 1)
    uids = await world.make(gang, "p0", "p1")
    clock = SystemClock()
    loop = NoticeLoop(world.client, clock, BinderConfig(notices_per_s=200))
    loop.take_members(members_of(gang, [(0, "p0", uids[0]), (1, "p1", uids[1])]))
    told = JobStatus(world.namespace, "job", "uid-job", "waiting", 0, clock.now_ms(), sentence="0 of 3 nodes fit")
    loop.take_status(told)

    async def are_told() -> bool:
        conditions = [
            {item["type"]: item for item in (await world.pod(name))["status"].get("conditions", [])}
            for name in ("p0", "p1")
        ]
        return all(one.get("PodScheduled", {}).get("message") == "0 of 3 nodes fit" for one in conditions)

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(loop.run(), name="write")
        await until_true(are_told, deadline_s=10, what="conditions of the pods")
        writing.cancel()
    found = await world.api.items(f"/api/v1/namespaces/{world.namespace}/events")
    assert [(item["reason"], item["message"], item["involvedObject"]["name"]) for item in found] == [
        ("FailedScheduling", "0 of 3 nodes fit", "p0")
    ]


class Cell:
    """A ledger for a binder that runs as a process of its own."""

    def __init__(self, bus: NatsBus, world: World) -> None:
        self.bus = bus
        self.world = world
        self.records = 0

    async def append(self, record: Epoch | Round) -> None:
        self.records = await self.bus.append(encode(record), expected_seq=self.records)

    async def place(self, gang: Gang, count: int) -> None:
        rows = []
        for rank in range(count):
            made = await self.world.api.post(self.world.pods, a_pod(f"p{rank}"))
            rows.append((rank, f"p{rank}", str(made["metadata"]["uid"])))
        await self.bus.publish(self.bus.subjects.fact_member(gang.namespace, gang.name), encode(members_of(gang, rows)))
        await self.append(Epoch(1, 0, 0, 0, "me", Settings()))
        verdict = Verdict(gang.namespace, gang.name, gang.uid, 1, gang.placement)
        await self.append(Round(1, self.records, 0, 0, 1, verdicts=[verdict]))

    async def outcome(self, gang: Gang) -> OutcomeSeen | None:
        subject = self.bus.subjects.fact_outcome(gang.namespace, gang.name)
        stored = await self.bus.last(StreamName.FACTS, subject)
        return None if stored is None else decode(stored.data, OutcomeSeen)


async def all_bound(cell: Cell, gang: Gang, nodes: list[str]) -> None:
    """Wait for the outcome; every pod is where it belongs, with times that only grow on each node."""

    async def is_told() -> bool:
        return await cell.outcome(gang) is not None

    await until_true(is_told, deadline_s=40, what="an outcome")
    told = await cell.outcome(gang)
    assert told is not None
    assert (told.state, told.bound, told.failures) == ("bound", len(nodes), [])
    pods = [await cell.world.pod(f"p{rank}") for rank in range(len(nodes))]
    assert [pod["spec"]["nodeName"] for pod in pods] == nodes
    times = [(pod["spec"]["nodeName"], pod["metadata"]["annotations"]["predicate-time"]) for pod in pods]
    assert len(set(times)) == len(times)


@pytest.mark.parametrize("point", BINDER_POINTS)
async def test_killed_at_any_point_the_binder_goes_on_where_it_was(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path, *, point: str
) -> None:
    nodes = [world.node(rank % 3) for rank in range(12)]
    gang = a_gang("job", nodes, [(rank // 3,) for rank in range(12)], namespace=world.namespace)
    made = Cell(real_bus, world)
    settings: dict[str, Any] = {
        "kube": {"kubeconfig": str(kube_server.write_kubeconfig(tmp_path / "own", user=USER))},
        "one_at_a_time": False,
        "retry_wait_s": 0.05,
        "binds_at_once": 2,
    }
    with services(tmp_path, nats_server) as started:
        binder = started.service("binder", cell, **settings)
        count = 5 if point.startswith("bind") else 1
        binder.start(fault_point=f"{point}:{count}")
        await made.place(gang, 12)
        assert await binder.ended() < 0
        binder.start()
        await until(
            lambda: "ledger folded" in binder.log().partition("--- start 2")[2], deadline_s=20, what="a second start"
        )
        await all_bound(made, gang, nodes)
        await binder.stop()


@pytest.mark.timeout(120)
async def test_an_api_server_that_is_killed_in_the_middle_of_a_gang_is_waited_for(
    nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    async with KubeServer(tmp_path / "kube", users={USER: ()}, controllers=()) as server, KubeApi(server) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        await grant(api, USER, USER)
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig", user=USER)
        async with await Client.connect(KubeConfig(kubeconfig=kubeconfig), clock=SystemClock()) as client:
            world = await World(api, client, "ns").open()
            nodes = [world.node(rank % 3) for rank in range(60)]
            gang = a_gang("job", nodes, [(rank // 3,) for rank in range(60)], namespace="ns")
            made = Cell(real_bus, world)
            with services(tmp_path, nats_server) as started:
                settings: dict[str, Any] = {
                    "kube": {"kubeconfig": str(kubeconfig)},
                    "one_at_a_time": False,
                    "binds_at_once": 2,
                }
                binder = started.service("binder", cell, retry_wait_s=0.1, retry_wait_max_s=1, **settings)
                binder.start()
                await made.place(gang, 60)

                async def is_begun() -> bool:
                    return bool(await world.node_of("p5"))

                await until_true(is_begun, deadline_s=30, what="the first bindings")
                await server.kill_api()
                await server.restart_api()
                await all_bound(made, gang, nodes)
                await binder.stop()
