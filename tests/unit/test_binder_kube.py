"""Binding and evicting gangs on an API server in memory: what goes well, and each way in which it does not."""

import json
from typing import Any

import pytest

from berth.formats.kube_events import Involved
from berth.formats.kube_objects import Listed, Meta
from berth.formats.pod_annotations import CONSUMED
from berth.runtime.errors import AmbiguousError, PoisonError, TransientError
from berth.runtime.kube_port import RefusedError
from schemas.facts import PodPhase, RankFailure
from schemas.simulation import GangBound
from services.binder.cluster import Gang, NotYetError
from services.binder.config import BinderConfig
from services.binder.kube_cluster import KubeCluster
from services.binder.node_book import NodeLean
from services.binder.work import AttemptKey
from tests.support.clock import ManualClock
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import RESOURCE, a_gang, a_node, a_pod, members_of, pods_of

PODS = "/api/v1/namespaces/ns/pods"


class World:
    """A cluster with three nodes of eight chips, and a binder's view of it."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self.clock = ManualClock()
        self.kube = FakeKube(clock=self.clock)
        self.config = BinderConfig(**settings)
        self.told: list[tuple[str, str, str]] = []
        self.woken: list[AttemptKey] = []
        self.cluster = self.restart()
        for number in range(3):
            self.kube.put("/api/v1/nodes", a_node(f"n{number}"))

    def restart(self) -> KubeCluster:
        self.cluster = KubeCluster(self.kube, self.clock, self.config, tell=self._tell)
        self.cluster.wake = self.woken.extend
        return self.cluster

    def _tell(self, involved: Involved, reason: str, message: str) -> None:
        self.told.append((involved.name, reason, message))

    async def sync(self) -> None:
        """Let the binder see the nodes as they are."""
        found = await self.kube.get("/api/v1/nodes", Listed[NodeLean])
        self.cluster.nodes.replace(found.items or [])

    def pods(self, gang: Gang, *names: str, chips: int = 1, **changes: object) -> None:
        """Make a pod for each rank, and say so."""
        rows = []
        for rank, name in enumerate(names):
            made = self.kube.put(PODS, a_pod(name, chips=chips))
            rows.append((rank, name, made["metadata"]["uid"]))
        self.cluster.take_members(members_of(gang, rows, **changes))  # type: ignore[arg-type]  # fields of the fact

    def pod(self, name: str) -> dict[str, Any]:
        return self.kube.object(f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.pod(name)["metadata"].get("annotations", {})
        return found

    def bindings(self) -> int:
        return sum(call.method == "POST" and call.path.endswith("/binding") for call in self.kube.calls)


@pytest.fixture
async def world() -> World:
    found = World()
    await found.sync()
    return found


async def made(**settings: Any) -> World:  # noqa: ANN401 - fields of the settings
    found = World(**settings)
    await found.sync()
    return found


async def test_a_gang_is_bound_with_one_request_a_pod_and_nothing_is_read(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(1, 0), (2, 3)])
    world.pods(gang, "p0", "p1", chips=2, distributed=True, rank_index=["4", ""])
    world.kube.calls.clear()
    assert await world.cluster.bind(gang) == bound(2)
    assert [(call.method, call.path) for call in world.kube.calls] == [
        ("POST", f"{PODS}/p0/binding"),
        ("POST", f"{PODS}/p1/binding"),
    ]
    sent = world.kube.calls[0].body
    assert sent["metadata"]["uid"] == world.pod("p0")["metadata"]["uid"]
    assert sent["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    assert (world.node_of("p0"), world.node_of("p1")) == ("n0", "n1")
    assert world.annotations("p0") == {
        "berth/job": "job",
        "berth/uid": "uid-job",
        "berth/attempt": "1",
        "berth/rank": "0",
        RESOURCE: "Ascend910-1,Ascend910-0",
        "predicate-time": str(world.clock.now_ms() * 1_000_000),
        "distributed-job": "true",
        "hccl/rankIndex": "4",
    }
    assert "hccl/rankIndex" not in world.annotations("p1")


def bound(count: int, *failures: tuple[int, str]) -> GangBound:
    return GangBound(count, [RankFailure(rank, reason) for rank, reason in failures])


async def test_pods_of_whole_nodes_and_of_the_operator_get_real_chips_and_the_configuration(world: World) -> None:
    whole = a_gang("whole", ["n0"], [tuple(range(8))])
    world.pods(whole, "w", chips=8)
    part = a_gang("part", ["n1"], [(5,)])
    world.pods(part, "p", writes_real=True)
    await world.cluster.bind(whole)
    await world.cluster.bind(part)
    assert world.annotations("w")["huawei.com/AscendReal"].count("Ascend910-") == 8
    configuration = json.loads(world.annotations("p")["ascend.kubectl.kubernetes.io/ascend-910-configuration"])
    assert configuration["server_id"] == world.pod("p")["metadata"]["uid"]
    assert (configuration["host_ip"], configuration["super_pod_id"], configuration["server_index"]) == (
        "10.1.1.1",
        -2,
        "3",
    )


async def test_binding_again_is_harmless(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    await world.cluster.bind(gang)
    before = world.annotations("p0")
    world.restart()
    await world.sync()
    world.cluster.take_members(members_of(gang, [(rank, f"p{rank}", uid_of(world, f"p{rank}")) for rank in (0, 1)]))
    assert await world.cluster.bind(gang) == bound(2)
    assert world.annotations("p0") == before


def uid_of(world: World, name: str) -> str:
    return str(world.pod(name)["metadata"]["uid"])


async def test_a_gang_waits_for_its_pods_and_fails_when_they_do_not_come() -> None:
    world = await made(members_wait_s=30)
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    with pytest.raises(NotYetError, match="2 ranks have no pod yet"):
        await world.cluster.bind(gang)
    world.pods(gang, "p0")
    world.clock.advance(20)
    with pytest.raises(NotYetError) as caught:
        await world.cluster.bind(gang)
    assert caught.value.retry_after_s == 10
    assert world.bindings() == 0
    world.clock.advance(10)
    result = await world.cluster.bind(gang)
    assert result == bound(
        0, (1, "no pod has stood for this rank for 30 s"), (0, "not bound: the gang cannot be bound whole")
    )
    assert world.bindings() == 0


async def test_what_can_be_bound_is_bound_where_a_gang_may_be_left_in_part() -> None:
    world = await made(members_wait_s=0, partial="leave")
    gang = a_gang("job", ["n0", "gone", "n1"], [(0,), (0,), (0,)])
    world.pods(gang, "p0", "p1")
    result = await world.cluster.bind(gang)
    assert (result.bound, [failure.rank for failure in result.failures]) == (1, [1, 2])
    assert "node gone is not there any more" in result.failures[0].reason
    assert world.node_of("p0") == "n0"


async def test_members_of_another_request_do_not_count(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0", uid="uid-before")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)


async def test_released_ranks_are_left_alone(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    part = Gang(gang.namespace, gang.name, gang.uid, 1, gang.placement, gone=(0,))
    assert await world.cluster.bind(part) == bound(1)
    assert (world.node_of("p0"), world.node_of("p1")) == ("", "n1")


async def test_a_node_that_is_gone_is_not_bound_to(world: World) -> None:
    gang = a_gang("job", ["gone"], [(0,)])
    world.pods(gang, "p0")
    result = await world.cluster.bind(gang)
    assert result == bound(0, (0, "node gone is not there any more"))
    assert world.bindings() == 0


# Each way in which the server says no.


async def test_a_pod_that_another_bound_fails_with_who_has_it(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    world.kube.put(PODS, a_pod("p0", node="n2", berth__uid="u9", berth__job="other", berth__attempt="3"))
    result = await world.cluster.bind(gang)
    assert result == bound(0, (0, "pod p0 is on node n2 already, bound by other (u9), attempt 3"))
    world.pods(gang, "p0")
    world.kube.put(PODS, a_pod("p0", node="n0"))
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))]))
    assert "on node n0 already, bound by another scheduler" in (await world.cluster.bind(gang)).failures[0].reason


async def test_a_pod_that_is_gone_fails(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    world.kube.confirm(f"{PODS}/p0")
    assert await world.cluster.bind(gang) == bound(0, (0, "pod p0 is gone"))
    assert world.told == [("p0", "FailedBinding", "pod p0 is gone")]


async def test_a_pod_that_is_being_deleted_fails(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    pod = world.pod("p0")
    world.kube.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-20T00:00:00Z"}})
    assert await world.cluster.bind(gang) == bound(0, (0, "pod p0 is being deleted"))


async def test_a_pod_with_a_gate_fails(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    pod = world.pod("p0")
    world.kube.put(PODS, {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "quota"}]}})
    assert await world.cluster.bind(gang) == bound(0, (0, "pod p0 has the scheduling gate quota"))


def replace(world: World, name: str) -> str:
    """Another pod gets the name."""
    world.kube.confirm(f"{PODS}/{name}")
    return str(world.kube.put(PODS, a_pod(name))["metadata"]["uid"])


async def test_another_pod_under_the_name_fails_unless_members_know_it(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    old, new = uid_of(world, "p0"), replace(world, "p0")
    result = await world.cluster.bind(gang)
    assert result == bound(0, (0, f"pod p0 was replaced: its uid is {new}, not {old}"))
    assert world.node_of("p0") == ""


async def test_a_pod_that_was_replaced_meanwhile_gives_way_to_the_new_one(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    fact = members_of(gang, [(0, "p0", replace(world, "p0"))])
    original = world.kube.create

    async def create(path: str, body: Any) -> bytes:  # noqa: ANN401 - as the port
        world.cluster.take_members(fact)  # it comes while the request is under way
        return await original(path, body)

    world.kube.create = create  # type: ignore[method-assign]  # a moment in the middle
    assert await world.cluster.bind(gang) == bound(1)
    assert world.node_of("p0") == "n0"


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_the_server_will_never_do_fails_with_its_words(world: World, status: int) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    world.kube.fail(RefusedError("no pods/binding for you", status=status), part="p0/binding")
    result = await world.cluster.bind(gang)
    assert result == bound(1, (0, "pod p0 is refused: no pods/binding for you"))


async def test_what_is_forbidden_for_a_moment_is_tried_again_and_fails_in_the_end(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    for error in (RefusedError("not you", status=403), RefusedError("taken", status=409)):
        world.kube.fail(error, method="POST", part="p0/binding")
    world.kube.fail(RefusedError("nor reading", status=403), method="GET", part="p0")
    for words in ("not you", "nor reading"):
        with pytest.raises(TransientError, match=words):
            await world.cluster.bind(gang)
        world.clock.advance(29)
    world.kube.fail(RefusedError("not you", status=403), method="POST", part="p0/binding")
    assert await world.cluster.bind(gang) == bound(0, (0, "pod p0 is refused: not you"))
    world.pods(gang, "p0")
    assert await world.cluster.bind(gang) == bound(1)


@pytest.mark.parametrize("landed", [False, True])
async def test_after_an_answer_that_never_came_the_pod_is_read(world: World, *, landed: bool) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    world.kube.fail(AmbiguousError("no answer in time"), part="/binding", landed=landed)
    world.kube.calls.clear()
    assert await world.cluster.bind(gang) == bound(1)
    assert [call.method for call in world.kube.calls] == (["POST", "GET"] if landed else ["POST", "GET", "POST"])
    assert world.node_of("p0") == "n0"


async def test_a_server_that_is_busy_is_asked_again_when_it_said(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    world.kube.fail(TransientError("429", retry_after_s=0.01), part="/binding", times=3)
    assert await world.cluster.bind(gang) == bound(1)
    assert world.bindings() == 4


async def test_a_server_that_is_away_is_asked_again_later_and_bound_pods_are_not(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    world.kube.fail(TransientError("away", retry_after_s=0.001), part="p1/binding", times=4)
    with pytest.raises(TransientError, match="away"):
        await world.cluster.bind(gang)
    world.kube.calls.clear()
    assert await world.cluster.bind(gang) == bound(2)
    assert [call.path for call in world.kube.calls] == [f"{PODS}/p1/binding"]


async def test_damaged_members_fail_the_gang_and_no_more(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0", pod_uids=[])
    with pytest.raises(PoisonError):
        await world.cluster.bind(gang)


# Old annotations.


async def test_annotations_of_an_attempt_that_was_rolled_back_are_removed_first(world: World) -> None:
    gang = a_gang("job", ["n0"], [(3,)])
    old: dict[str, Any] = {
        "huawei.com__AscendReal": "Ascend910-7",
        "predicate-time": "5",
        "huawei.com__schedule_policy": "x",
    }
    uid = world.kube.put(PODS, a_pod("p0", **old))["metadata"]["uid"]
    world.cluster.take_members(members_of(gang, [(0, "p0", uid)], stale=[0]))
    assert await world.cluster.bind(gang) == bound(1)
    found = world.annotations("p0")
    assert "huawei.com/AscendReal" not in found
    assert found["huawei.com/schedule_policy"] == "x"
    assert found[RESOURCE] == "Ascend910-3"
    (patch,) = [call.body for call in world.kube.calls if call.method == "PATCH"]
    assert patch["metadata"]["uid"] == uid


async def test_annotations_of_a_pod_that_is_bound_are_never_removed(world: World) -> None:
    gang = a_gang("job", ["n0"], [(3,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
    before = world.annotations("p0")
    world.restart()
    await world.sync()
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))], stale=[0]))
    assert await world.cluster.bind(gang) == bound(1)
    assert world.annotations("p0") == before


# One after another.


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
    with pytest.raises(NotYetError):
        await world.cluster.bind(second)
    world.clock.advance(60)
    result = await world.cluster.bind(second)
    assert result.bound == 0
    assert "another pod with 1 chips (rank 0 of uid-a, attempt 1)" in result.failures[0].reason


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


# Eviction.


async def test_exactly_the_pods_of_the_attempt_are_deleted(world: World) -> None:
    gang = a_gang("job", ["n0", "n1", "n2", "n2"], [(0,), (0,), (0,), (0,)])
    world.pods(gang, "p0", "p1", "p2", "p3")
    first = Gang(gang.namespace, gang.name, gang.uid, 1, gang.placement, gone=(3,))
    assert (await world.cluster.bind(first)).bound == 3
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
    for name in ("p0", "p2"):
        world.kube.confirm(f"{PODS}/{name}")
    await world.cluster.evict(first, reason="cancelled")


async def test_pods_that_nobody_names_are_found_on_their_nodes(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    await world.cluster.bind(gang)
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
