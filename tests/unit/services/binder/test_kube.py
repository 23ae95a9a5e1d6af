"""Binding gangs on an API server in memory: what goes well, and each way in which it does not."""

import asyncio
import json
from typing import Any

import pytest

from berth.formats.kubernetes.lean import Meta
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.port import RefusedError
from berth.services.binder.cluster import Gang, NotYetError
from berth.services.binder.pod_binding import PodBindRequest, PodLean, PodSpecLean, Verdict, judge
from tests.support.binder_world import World, bound, made, replace, uid_of
from tests.support.kube_binder import RESOURCE, a_gang, a_pod, members_of, owned

PODS = "/api/v1/namespaces/ns/pods"


@pytest.fixture
async def world() -> World:
    return await made()


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
    world.clock.advance(9.5)
    with pytest.raises(NotYetError, match="1 rank has no pod yet"):
        await world.cluster.bind(gang)
    assert world.bindings() == 0
    world.clock.advance(0.5)
    result = await world.cluster.bind(gang)
    assert result == bound(
        0, (1, "this rank has had no pod for 30 s"), (0, "not bound: the gang cannot be bound whole")
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
    assert world.job_uids == {gang.uid}


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_pod_that_goes_while_a_later_attempt_binds_it_is_awaited(world: World, *, is_replaced: bool) -> None:
    gang = a_gang("job", ["n0"], [(0,)], attempt=2)
    world.pods(gang, "p0")
    original = world.kube.create

    async def create(path: str, body: Any) -> bytes:  # noqa: ANN401 - as the port
        world.kube.create = original  # type: ignore[method-assign]  # once
        world.kube.confirm(f"{PODS}/p0")
        if is_replaced:
            world.kube.put(PODS, a_pod("p0"))
        return await original(path, body)

    world.kube.create = create  # type: ignore[method-assign]  # a moment in the middle
    with pytest.raises(NotYetError, match="1 rank has no pod yet"):
        await world.cluster.bind(gang)
    assert world.told == []
    world.pods(gang, "p1")
    assert await world.cluster.bind(gang) == bound(1)


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


async def test_another_pod_under_the_name_fails_unless_members_know_it(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    old, new = uid_of(world, "p0"), replace(world, "p0")
    result = await world.cluster.bind(gang)
    assert result == bound(0, (0, f"pod p0 was replaced: its uid is {new}, not {old}"))
    assert world.node_of("p0") == ""


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_pod_that_was_replaced_meanwhile_gives_way_to_the_new_one(world: World, *, is_over: bool) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    fact = members_of(gang, [(0, "p0", replace(world, "p0"))])
    original = world.kube.create

    async def create(path: str, body: Any) -> bytes:  # noqa: ANN401 - as the port
        world.cluster.take_members(fact)  # it comes while the request is under way
        if is_over:
            world.cluster.forget(gang.key)
        return await original(path, body)

    world.kube.create = create  # type: ignore[method-assign]  # a moment in the middle
    assert (await world.cluster.bind(gang)).bound == (not is_over)
    assert world.node_of("p0") == ("" if is_over else "n0"), "of an attempt that has ended nothing is bound any more"


@pytest.mark.parametrize("status", [400, 403, 413, 422])
async def test_what_the_server_refuses_for_long_fails_with_its_words(world: World, status: int) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    owned(world.kube, "p0", "p1")
    world.kube.fail(RefusedError("no pods/binding for you", status=status), part="p0/binding", times=2)
    with pytest.raises(TransientError, match="no pods/binding for you"):
        await world.cluster.bind(gang)
    assert (world.node_of("p0"), world.node_of("p1")) == ("", "n1")
    assert world.told == [("p0", "FailedBinding", "pod p0 is refused: no pods/binding for you; it is tried again")]
    world.clock.advance(300)
    assert await world.cluster.bind(gang) == bound(1, (0, "pod p0 is refused: no pods/binding for you"))


async def test_what_is_refused_for_a_moment_is_tried_again_and_fails_in_the_end(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    for error in (RefusedError("not you", status=403), RefusedError("taken", status=409)):
        world.kube.fail(error, method="POST", part="p0/binding")
    world.kube.fail(RefusedError("nor reading", status=403), method="GET", part="p0")
    for words in ("not you", "nor reading"):
        with pytest.raises(TransientError, match=words):
            await world.cluster.bind(gang)
        world.clock.advance(150)
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


@pytest.mark.parametrize("damage", [{"pod_uids": []}, {"rank": b"abc"}, {"rank_index": ["0", "1"]}])
async def test_damaged_members_change_nothing(world: World, damage: dict[str, object]) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    rows = [(0, "p0", "u0")]
    with pytest.raises(ValueError, match=r"members of ns/job: .* expected 1, as pods"):
        world.cluster.take_members(members_of(gang, rows, **damage))  # type: ignore[arg-type]  # fields of the fact
    await world.cluster.recover([gang])
    assert await world.cluster.bind(gang) == bound(2)


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


@pytest.mark.parametrize(("attempt", "rank"), [("2", "0"), ("1", "1")])
async def test_a_pod_bound_on_the_same_node_by_another_attempt_or_as_another_rank_is_not_done(
    world: World, attempt: str, rank: str
) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    marks = {"berth__uid": "uid-job", "berth__attempt": attempt, "berth__rank": rank}
    made_pod = world.kube.put(PODS, a_pod("p0", node="n0", **marks))  # type: ignore[arg-type]  # annotations
    world.cluster.take_members(members_of(gang, [(0, "p0", made_pod["metadata"]["uid"])]))
    (failure,) = (await world.cluster.bind(gang)).failures
    assert f"attempt {attempt}" in failure.reason


async def test_a_binding_of_an_earlier_run_that_lands_meanwhile_keeps_its_annotations(world: World) -> None:
    gang = a_gang("job", ["n0"], [(3,)])
    old: dict[str, Any] = {"huawei.com__AscendReal": "Ascend910-7", "predicate-time": "5"}
    uid = world.kube.put(PODS, a_pod("p0", **old))["metadata"]["uid"]
    world.cluster.take_members(members_of(gang, [(0, "p0", uid)], stale=[0]))
    patch = world.kube.patch
    marks = {"berth/uid": "uid-job", "berth/attempt": "1", "berth/rank": "0", "predicate-time": "7"}

    async def late(path: str, body: Any, **options: Any) -> bytes:  # noqa: ANN401 - as the port
        binding = {"metadata": {"name": "p0", "annotations": marks}, "target": {"kind": "Node", "name": "n0"}}
        await world.kube.create(f"{PODS}/p0/binding", binding)
        return await patch(path, body, **options)

    world.kube.patch = late  # type: ignore[method-assign]  # a moment in the middle
    assert await world.cluster.bind(gang) == bound(1)
    assert world.annotations("p0")["predicate-time"] == "7"


def test_a_pod_that_the_same_attempt_bound_on_another_node_is_not_done() -> None:
    written = {"berth/uid": "uid-job", "berth/attempt": "1", "berth/rank": "0"}
    wish = PodBindRequest("ns", "p0", "u0", "n0", written)
    there = PodLean(Meta(name="p0", uid="u0", annotations=written), PodSpecLean(node_name="n1"))
    verdict = judge(there, wish)
    assert verdict is not None
    assert verdict.state == "failed"
    assert "is on node n1 already" in verdict.reason
    assert judge(PodLean(there.metadata, PodSpecLean(node_name="n0")), wish) == Verdict(
        "bound", pod=PodLean(there.metadata, PodSpecLean(node_name="n0"))
    )


async def test_a_pod_that_stands_for_another_rank_than_it_was_bound_for_is_not_taken_for_bound(world: World) -> None:
    gang = a_gang("job", ["n0", "n0"], [(0, 1), (2, 3)])
    world.pods(gang, "p0", "p1", chips=2)
    with pytest.raises(NotYetError):  # the second waits for its turn
        await world.cluster.bind(gang)
    assert world.annotations("p0")["berth/rank"] == "0"
    for rank, expected in ((1, set()), (0, {0})):
        cluster = world.restart()
        await world.sync()
        cluster.take_members(members_of(gang, [(rank, "p0", uid_of(world, "p0"))]))
        await cluster.recover([gang])
        assert cluster._recovery.take_bound(gang.key) == expected


async def test_an_attempt_that_ends_while_a_binding_is_answered_does_not_end_the_binder(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    async with asyncio.TaskGroup() as group:
        binding = group.create_task(world.cluster.bind(gang))
        while not world.bindings():
            await asyncio.sleep(0)
        world.cluster.forget(gang.key)
    assert binding.result() == bound(1)
    other = a_gang("other", ["n0"], [(0,)])
    world.pods(other, "p1")
    assert await world.cluster.bind(other) == bound(1)
