"""Pods that leave a rank, and their successors, on an API server in memory.

Longer than 400 lines because all cases share one API server in memory, and are told apart by what it does next.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from berth.runtime.errors import TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.columns import pack
from berth.schemas.facts import PodPhase
from berth.services.binder.cluster import BindResult, Gang, Leave, NotYetError
from berth.services.binder.work import Clearing
from tests.support.binder_world import PODS, World, made, uid_of
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import a_gang, a_node, a_placement, a_pod, members_of, pods_of

pytestmark = pytest.mark.usefixtures("world")
WHY = "pod of rank 1: its chip 0 on node n1 is unhealthy"


@pytest.fixture
async def world() -> World:
    return await made(one_at_a_time=False)


async def running(world: World, *nodes: str) -> Gang:
    """A gang that is bound, and facts that say so."""
    gang = a_gang("job", nodes, [(0,)] * len(nodes))
    world.pods(gang, *(f"p{rank}" for rank in range(len(nodes))))
    assert (await world.cluster.bind(gang)).bound == len(nodes)
    tell(world, gang)
    world.kube.calls.clear()
    return gang


def tell(world: World, gang: Gang, *, gone: tuple[int, ...] = (), phase: PodPhase = PodPhase.RUNNING) -> None:
    """Let facts speak of all pods of a gang."""
    rows = [
        (rank, node, PodPhase.GONE if rank in gone else phase, 1, True)
        for rank, node in enumerate(gang.placement.names())
    ]
    world.cluster.take_pods(pods_of(gang, rows))


def leave(rank: int, *, step: int = 1, at_once: bool = True, node: str = "") -> dict[int, Leave]:
    return {rank: Leave(step, node, at_once=at_once, reason=WHY)}


def renewed(gang: Gang, *ranks: int, step: int = 1, nodes: tuple[str, ...] = ()) -> Gang:
    """The gang after a step gave some ranks their places: those that they had, or others."""
    names = gang.placement.names()
    for rank, node in zip(ranks, nodes, strict=False):
        names[rank] = node
    placement = a_placement(names, [(0,)] * len(names))
    steps = dict.fromkeys(ranks, step)
    return Gang(
        gang.namespace, gang.name, gang.uid, 1, placement, step=step, steps=steps, todo=ranks, recovers=True
    )  # fmt: skip


def succeed(world: World, gang: Gang, *ranks: int, name: str = "p{}") -> list[str]:
    """New pods take ranks; returns the uids."""
    for rank in ranks:
        world.kube.confirm(f"{PODS}/p{rank}")
        world.kube.put(PODS, a_pod(name.format(rank)))
    names = [name.format(rank) if rank in ranks else f"p{rank}" for rank in range(gang.placement.pods())]
    rows = [(rank, pod, uid_of(world, pod)) for rank, pod in enumerate(names)]
    world.cluster.take_members(members_of(gang, rows))
    return [rows[rank][2] for rank in ranks]


def asked(world: World, method: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.path.removeprefix(f"{PODS}/"), call.body) for call in world.kube.calls if call.method == method]


# How pods leave.


async def test_with_grace_a_pod_is_told_and_ends_in_its_own_time(world: World) -> None:
    gang = await running(world, "n0", "n1")
    uid = uid_of(world, "p1")
    await world.cluster.remove(gang, leave(1, at_once=False, node="n1"))
    pod = world.pod("p1")
    told = {
        one["type"]: (one["status"], one["reason"], one["message"])
        for one in pod["status"]["conditions"]
        if "reason" in one
    }
    assert told["Ready"] == ("False", "Evict", WHY)
    assert told["DisruptionTarget"] == ("True", "PreemptionByScheduler", WHY)
    assert world.told == [("p1", "Evict", WHY)]
    assert world.job_uids == {gang.uid}
    assert [path for path, _ in asked(world, "PATCH")] == ["p1/status"]
    assert world.counted("leaving_pods_total", manner="grace") == 1
    assert world.counted("leaving_pods_total", manner="force") is None
    ((path, body),) = asked(world, "DELETE")
    assert (path, body["preconditions"], "gracePeriodSeconds" in body) == ("p1", {"uid": uid}, False)
    assert "deletionTimestamp" in pod["metadata"]
    assert "deletionTimestamp" not in world.pod("p0")["metadata"]

    # It ends already: it is not told again. Late, it is deleted at once.
    world.kube.calls.clear()
    await world.cluster.remove(gang, leave(1, at_once=False, node="n1"))
    assert (asked(world, "PATCH"), asked(world, "DELETE")) == ([], [])
    await world.cluster.remove(gang, leave(1, node="n1"))
    ((_, body),) = asked(world, "DELETE")
    assert (body["preconditions"], body["gracePeriodSeconds"]) == ({"uid": uid}, 0)
    assert world.counted("leaving_pods_total", manner="force") == 1
    assert [pod["metadata"]["name"] for pod in world.kube.objects(PODS)] == ["p0"]


async def test_by_force_a_pod_is_deleted_at_once_by_its_uid(world: World) -> None:
    gang = await running(world, "n0", "n1")
    uid = uid_of(world, "p1")
    await world.cluster.remove(gang, leave(1, node="n1"))
    ((path, body),) = asked(world, "DELETE")
    assert (path, body["preconditions"], body["gracePeriodSeconds"]) == ("p1", {"uid": uid}, 0)
    assert (asked(world, "PATCH"), world.told) == ([], [("p1", "Evicted", WHY)])
    assert world.job_uids == {gang.uid}


@pytest.mark.parametrize("case", ["gone", "not ready", "unknown"])
async def test_node_gone_x_grace_is_grace_0(world: World, case: str) -> None:
    gang = await running(world, "n0", "n1")
    if case == "gone":
        world.kube.confirm("/api/v1/nodes/n1")
    else:
        condition = {"type": "Ready", "status": "False" if case == "not ready" else "Unknown"}
        node = a_node("n1")
        node["status"]["conditions"] = [{"type": "MemoryPressure", "status": "False"}, condition]
        world.kube.put("/api/v1/nodes", node)
    await world.sync()
    await world.cluster.remove(gang, leave(1, at_once=False, node="n1"))
    ((_, body),) = asked(world, "DELETE")
    assert (body["gracePeriodSeconds"], asked(world, "PATCH")) == (0, [])


async def test_conditions_that_are_refused_hold_no_deletion_up(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.fail(RefusedError("no", status=403), method="PATCH")
    await world.cluster.remove(gang, leave(1, at_once=False, node="n1"))
    assert len(asked(world, "DELETE")) == 1
    assert world.told == []


async def test_the_pod_of_a_later_step_stays_and_so_does_another_ones(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    succeed(world, gang, 1)
    again = renewed(gang, 1)
    assert await world.cluster.bind(again) == BindResult(1)
    world.kube.put(PODS, a_pod("stranger", node="n1", berth__uid="uid-job", berth__attempt="2", berth__rank="1"))
    world.kube.calls.clear()
    tell(world, gang)
    for node in ("", "n1"):
        await world.cluster.remove(again, leave(1, step=1, node=node))
    assert asked(world, "DELETE") == []
    await world.cluster.remove(again, leave(1, step=2, node="n1"))
    assert [path for path, _ in asked(world, "DELETE")] == ["p1"]


async def test_a_pod_that_members_name_no_more_is_found_on_its_node(world: World) -> None:
    gang = await running(world, "n0", "n1")
    rows = [(0, "p0", uid_of(world, "p0")), (1, "new", str(world.kube.put(PODS, a_pod("new"))["metadata"]["uid"]))]
    world.cluster.take_members(members_of(gang, rows))
    await world.cluster.remove(gang, leave(1, node="n1"))
    assert [path for path, _ in asked(world, "DELETE")] == ["p1"]


async def test_an_ended_pod_is_deleted_too(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.put(PODS, {**world.pod("p1"), "status": {"phase": "Failed"}})
    await world.cluster.remove(gang, leave(1, at_once=False))
    ((_, body),) = asked(world, "DELETE")
    assert body["gracePeriodSeconds"] == 0


async def test_a_pod_that_no_fact_reports_is_waited_for(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.cluster.take_pods(pods_of(gang, [(0, "n0", PodPhase.RUNNING, 1, True)]))
    with pytest.raises(NotYetError, match="no fact reports 1 of the pods"):
        await world.cluster.remove(gang, leave(1, at_once=False, node="n1"))
    assert len(asked(world, "DELETE")) == 1
    tell(world, gang, phase=PodPhase.TERMINATING)
    assert gang.key in world.woken
    await world.cluster.remove(gang, leave(1, at_once=False, node="n1"))
    assert len(asked(world, "DELETE")) == 1


async def test_an_error_of_one_pod_holds_no_other_up(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    world.kube.fail(TransientError("busy"), method="DELETE", part="p0")
    leaves = leave(0, node="n0") | leave(1, node="n1") | leave(2, node="n2")
    with pytest.raises(TransientError, match="busy"):
        await world.cluster.remove(gang, leaves)
    assert sorted(path for path, _ in asked(world, "DELETE")) == ["p0", "p1", "p2"]
    assert [pod["metadata"]["name"] for pod in world.kube.objects(PODS)] == ["p0"]
    await world.cluster.remove(gang, leaves)
    assert world.kube.objects(PODS) == []


class SlowKube(FakeKube):
    """Counts deletions in flight."""

    now = most = 0

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None, propagation: str = "") -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        await super().delete(path, uid=uid, grace_s=grace_s, propagation=propagation)
        self.now -= 1


async def test_of_201_pods_at_most_50_are_being_deleted_at_a_time() -> None:
    world = World(one_at_a_time=False)
    world.kube = kube = SlowKube(clock=world.clock)
    world.restart()
    for number in range(3):
        kube.put("/api/v1/nodes", a_node(f"n{number}"))
    await world.sync()
    gang = await running(world, *(f"n{rank % 3}" for rank in range(201)))
    leaves = {rank: Leave(1, f"n{rank % 3}", at_once=True, reason=WHY) for rank in range(201)}
    await world.cluster.remove(gang, leaves)
    assert (kube.objects(PODS), kube.most) == ([], 50)


async def test_a_whole_job_leaves_with_its_ended_pods(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    world.kube.put(PODS, {**world.pod("p1"), "status": {"phase": "Failed"}})
    tell(world, gang)
    part = Gang(gang.namespace, gang.name, gang.uid, 1, gang.placement, gone=(1,))
    await world.cluster.evict(part, reason=WHY, manner="grace")
    graces = {path: body.get("gracePeriodSeconds") for path, body in asked(world, "DELETE")}
    assert graces == {"p0": None, "p1": 0, "p2": None}
    assert sorted(world.told) == [("p0", "Evict", WHY), ("p2", "Evict", WHY)]
    await world.cluster.evict(part, reason=WHY, manner="force")
    assert world.kube.objects(PODS) == []


async def test_a_job_that_starts_anew_is_cleared_of_ended_pods_of_earlier_attempts_alone(world: World) -> None:
    def bound(name: str, phase: str, uid: str, attempt: str) -> None:
        marks = {"berth__uid": uid, "berth__attempt": attempt, "berth__rank": "0"}
        world.kube.put(PODS, {**a_pod(name, node="n0", **marks), "status": {"phase": phase}})  # type: ignore[arg-type]  # marks

    bound("failed", "Failed", "uid-job", "1")
    bound("older", "Succeeded", "uid-job", "2")
    bound("runs", "Running", "uid-job", "1")
    bound("next", "Failed", "uid-job", "3")
    bound("another", "Failed", "uid-other", "1")
    world.kube.put(PODS, a_pod("plain"))
    await world.cluster.clear(Clearing("ns", "job", "uid-job", 3))
    left = sorted(pod["metadata"]["name"] for pod in world.kube.objects(PODS))
    assert left == ["another", "next", "plain", "runs"]
    assert all(body["preconditions"]["uid"] for _, body in asked(world, "DELETE"))


# Marks.


async def test_a_mark_is_written_on_the_pod_and_nothing_is_deleted(world: World) -> None:
    gang = await running(world, "n0", "n1")
    await world.cluster.mark(renewed(gang, step=1), [1], "CardUnhealthy")
    assert world.annotations("p1")["huawei.com/pod-status"] == "Unhealthy-CardUnhealthy"
    assert "huawei.com/pod-status" not in world.annotations("p0")
    ((path, body),) = asked(world, "PATCH")
    assert (path, body["metadata"]["uid"]) == ("p1", uid_of(world, "p1"))
    assert asked(world, "DELETE") == []


async def test_a_mark_is_tried_three_times_and_given_up_for_a_pod_that_is_gone(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.fail(TransientError("busy"), method="PATCH", times=2)
    await world.cluster.mark(renewed(gang, step=1), [1], "pod-failed")
    assert len(asked(world, "PATCH")) == 3
    world.kube.calls.clear()
    world.kube.fail(TransientError("busy"), method="PATCH", times=9)
    with pytest.raises(TransientError, match="busy"):
        await world.cluster.mark(renewed(gang, step=1), [1], "pod-failed")
    assert len(asked(world, "PATCH")) == 3
    world.kube.forgive()
    world.kube.calls.clear()
    world.kube.fail(RefusedError("gone", status=404), method="PATCH")
    await world.cluster.mark(renewed(gang, step=1), [1], "pod-failed")
    assert len(asked(world, "PATCH")) == 1


# Their successors.


async def test_only_the_new_pod_is_bound_with_the_step_and_as_one_in_place(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    before = {name: world.pod(name) for name in ("p0", "p2")}
    await world.cluster.remove(gang, leave(1, node="n1"))
    tell(world, gang, gone=(1,))
    world.kube.put(PODS, a_pod("p1"))
    succeed(world, gang, 1)
    world.kube.calls.clear()
    assert await world.cluster.bind(renewed(gang, 1, step=3)) == BindResult(1)
    assert world.node_of("p1") == "n1"
    written = world.annotations("p1")
    assert (written["berth/step"], written["reschedule-in-place"], written["berth/rank"]) == ("3", "true", "1")
    assert [path for path, _ in asked(world, "POST")] == ["p1/binding"]
    assert {name: world.pod(name) for name in ("p0", "p2")} == before
    assert not {"berth/step", "reschedule-in-place"} & world.annotations("p0").keys()


@pytest.mark.parametrize(("name", "node"), [("p1", "n0"), ("other", "n1")])
async def test_a_pod_with_another_name_or_node_is_not_in_place(world: World, name: str, node: str) -> None:
    gang = await running(world, "n0", "n1")
    await world.cluster.remove(gang, leave(1, node="n1"))
    tell(world, gang, gone=(1,))
    world.kube.put(PODS, a_pod("p1"))
    succeed(world, gang, 1, name=name)
    assert await world.cluster.bind(renewed(gang, 1, nodes=(node,))) == BindResult(1)
    assert world.node_of(name) == node
    assert "reschedule-in-place" not in world.annotations(name)


async def test_after_a_restart_the_facts_tell_which_node_a_pod_left(world: World) -> None:
    gang = await running(world, "n0", "n1")
    await world.cluster.remove(gang, leave(1, node="n1"))
    world.kube.put(PODS, a_pod("p1"))
    world.restart()
    await world.sync()
    tell(world, gang, gone=(1,))
    succeed(world, gang, 1)
    await world.cluster.begin([renewed(gang, 1)], after_ms=0, wake=world.woken.extend)
    assert await world.cluster.bind(renewed(gang, 1)) == BindResult(1)
    assert world.annotations("p1")["reschedule-in-place"] == "true"


async def test_ranks_wait_for_their_pods_without_a_limit_and_each_is_bound_when_it_comes(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    await world.cluster.remove(gang, leave(1, node="n1") | leave(2, node="n2"))
    world.kube.put(PODS, a_pod("p1"))
    world.kube.put(PODS, a_pod("p2"))
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))]))
    both = renewed(gang, 1, 2)
    for _ in range(3):
        with pytest.raises(NotYetError, match="no pod yet"):
            await world.cluster.bind(both)
        world.clock.advance(1_000)
    world.cluster.take_members(members_of(gang, [(2, "p2", uid_of(world, "p2"))]))
    with pytest.raises(NotYetError):
        await world.cluster.bind(both)
    assert (world.node_of("p2"), world.node_of("p1")) == ("n2", "")
    succeed(world, gang, 1)
    assert await world.cluster.bind(both) == BindResult(2)
    assert world.bindings() == 2, "each was asked for once"


async def test_a_former_pod_that_has_failed_is_not_taken_for_the_new_one(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.put(PODS, {**world.pod("p1"), "status": {"phase": "Failed"}})
    again = renewed(gang, 1)
    with pytest.raises(NotYetError):
        await world.cluster.bind(again)
    succeed(world, gang, 1)
    assert await world.cluster.bind(again) == BindResult(1)
    assert world.annotations("p1")["berth/step"] == "1"


async def test_a_rank_that_cannot_be_bound_is_told_while_others_wait(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    succeed(world, gang, 1, 2)
    world.cluster.take_members(members_of(gang, [(1, "p1", uid_of(world, "p1"))]))
    moved = renewed(gang, 1, 2, nodes=("n9", "n2"))
    result = await world.cluster.bind(moved)
    assert (result.bound, result.waiting) == (0, (2,))
    assert [(one.rank, one.reason) for one in result.failures] == [(1, "node n9 is not there any more")]
    # It has been reported; the other goes on, and a later step has another place.
    rest = Gang(
        gang.namespace, gang.name, gang.uid, 1, moved.placement, step=1, steps=moved.steps, todo=(2,), recovers=True
    )
    with pytest.raises(NotYetError):
        await world.cluster.bind(rest)
    succeed(world, gang, 2)
    later = renewed(gang, 1, 2, nodes=("n0", "n2"), step=2)
    assert await world.cluster.bind(later) == BindResult(2)
    assert [world.node_of(name) for name in ("p1", "p2")] == ["n0", "n2"]


async def test_a_pod_that_is_refused_is_tried_for_a_while_before_it_fails(world: World) -> None:
    gang = await running(world, "n0", "n1")
    succeed(world, gang, 1)
    again = renewed(gang, 1)
    world.kube.fail(RefusedError("a webhook says no", status=422), method="POST", times=9)
    for _ in range(2):
        with pytest.raises(TransientError, match="a webhook says no"):
            await world.cluster.bind(again)
        world.clock.advance(150)
    result = await world.cluster.bind(again)
    assert [(one.rank, one.reason) for one in result.failures] == [(1, "pod p1 is refused: a webhook says no")]
    assert (result.bound, result.waiting) == (0, ())


async def test_a_rank_that_recovers_waits_for_a_gate_of_its_pod_as_long_as_for_the_pod(world: World) -> None:
    gang = await running(world, "n0", "n1")
    succeed(world, gang, 1)
    world.pod("p1")["spec"]["schedulingGates"] = [{"name": "quota"}]
    again = renewed(gang, 1)
    for waited_s in (world.config.members_wait_s - 0.5, 0.5):
        with pytest.raises(TransientError, match="pod p1 has the scheduling gate quota"):
            await world.cluster.bind(again)
        world.clock.advance(waited_s)
    assert [one.rank for one in (await world.cluster.bind(again)).failures] == [1]


async def test_a_restarted_binder_binds_no_pod_twice(world: World) -> None:
    gang = await running(world, "n0", "n1")
    uids = succeed(world, gang, 1)
    again = renewed(gang, 1)
    assert await world.cluster.bind(again) == BindResult(1)
    bound = world.pod("p1")
    world.restart()
    await world.sync()
    succeeded = [(0, "p0", uid_of(world, "p0")), (1, "p1", uids[0])]
    world.cluster.take_members(members_of(gang, succeeded))
    await world.cluster.begin([again], after_ms=0, wake=world.woken.extend)
    assert await world.cluster.bind(again) == BindResult(1)
    assert world.pod("p1") == bound


async def test_the_turn_of_a_new_pod_is_not_taken_from_the_fact_about_the_former_one() -> None:
    """A pod that has failed waits for no chips; its successor does, behind another pod with as many."""
    world = await made()
    gang = await running(world, "n0", "n1")
    first = a_gang("first", ["n1"], [(3,)])
    world.pods(first, "q0")
    assert (await world.cluster.bind(first)).bound == 1
    tell(world, gang, phase=PodPhase.FAILED)
    succeed(world, gang, 1)
    again = renewed(gang, 1)
    with pytest.raises(NotYetError, match="turn"):
        await world.cluster.bind(again)
    fact = pods_of(first, [(0, "n1", PodPhase.RUNNING, 8, True)])
    world.cluster.take_pods(fact)
    assert again.key in world.woken
    assert await world.cluster.bind(again) == BindResult(1)
    # A fact about the new pod itself counts.
    rows = [(0, "n0", PodPhase.FAILED, 1, True), (1, "n1", PodPhase.RUNNING, 1, True)]
    world.cluster.take_pods(msgspec.structs.replace(pods_of(gang, rows), steps=pack([0, 1], 4)))
    assert world.cluster._chip_slots.is_served("ns", "job", (*gang.key, 1), step=1)
    assert not world.cluster._chip_slots.is_served("ns", "job", (*gang.key, 0), step=1)
