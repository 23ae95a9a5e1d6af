"""Pods on drained nodes: they are evicted, disruption budgets may hold them back, and the outcome says so."""

import pytest

from berth.runtime.errors import TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.facts import RankFailure
from berth.schemas.recovery import DRAIN, Recovery, Scope
from berth.services.binder.cluster import HELD_RETRY_S, HeldBackError, Leave
from berth.services.binder.recoveries.recovery_work import leaves_of, manner_of_end
from tests.support.binder_world import World, made, uid_of
from tests.unit.services.binder.test_loop import KEY
from tests.unit.services.binder.test_recoveries_on_kube import asked, running
from tests.unit.services.binder.test_recovery_loop import CAUSE, Desk, places, said

WHY = "pod of rank 1 on n1: its node is drained"
BUDGET = TransientError(
    "POST pods/p1/eviction: HTTP 429: Cannot evict pod as it would violate the pod's disruption budget."
)
HELD = [RankFailure(1, BUDGET.reason)]


@pytest.fixture
async def world() -> World:
    return await made(one_at_a_time=False)


def leave(*ranks: int, late: bool = False) -> dict[int, Leave]:
    return {rank: Leave(1, "", at_once=late, reason=WHY, evicts=True) for rank in ranks}


# On the API server.


async def test_a_pod_is_evicted_with_its_uid_and_an_event(world: World) -> None:
    gang = await running(world, "n0", "n1")
    await world.cluster.remove(gang, leave(1))
    ((path, body),) = asked(world, "POST")
    assert path == "p1/eviction"
    assert body["kind"] == "Eviction"
    assert body["deleteOptions"] == {"preconditions": {"uid": uid_of(world, "p1")}}
    assert (asked(world, "DELETE"), asked(world, "PATCH")) == ([], [])
    assert world.told == [("p1", "Evict", WHY)]
    assert world.job_uids == {gang.uid}
    assert "deletionTimestamp" in world.pod("p1")["metadata"]
    await world.cluster.remove(gang, leave(1))
    assert len(asked(world, "POST")) == 1, "a pod that ends already is left alone"


async def test_a_pod_that_still_ends_when_its_time_is_over_is_deleted_at_once(world: World) -> None:
    gang = await running(world, "n0", "n1")
    await world.cluster.remove(gang, leave(1))
    await world.cluster.remove(gang, leave(1, late=True))
    assert [path for path, _ in asked(world, "DELETE")] == ["p1"]
    assert asked(world, "DELETE")[0][1]["gracePeriodSeconds"] == 0


async def test_a_budget_holds_one_pod_back_and_the_others_go(world: World) -> None:
    gang = await running(world, "n0", "n1", "n2")
    world.kube.fail(BUDGET, method="POST", part="p1/eviction")
    with pytest.raises(HeldBackError) as caught:
        await world.cluster.remove(gang, leave(0, 1, 2))
    assert (caught.value.held, caught.value.retry_after_s) == (HELD, HELD_RETRY_S)
    assert {name for name in ("p0", "p1", "p2") if "deletionTimestamp" in world.pod(name)["metadata"]} == {"p0", "p2"}
    assert world.counted("leaving_pods_total", manner="evict") == 2
    assert world.counted("held_evictions_total") == 1
    assert ("p1", "EvictionHeldBack", f"{WHY}; {BUDGET.reason}") in world.told
    assert world.job_uids == {gang.uid}
    await world.cluster.remove(gang, leave(0, 1, 2))
    assert "deletionTimestamp" in world.pod("p1")["metadata"]


async def test_a_pod_that_is_held_back_is_not_deleted_when_its_time_is_over(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.fail(BUDGET, method="POST", part="p1/eviction")
    with pytest.raises(HeldBackError):
        await world.cluster.remove(gang, leave(1, late=True))
    assert asked(world, "DELETE") == []
    assert "deletionTimestamp" not in world.pod("p1")["metadata"]


async def test_a_whole_job_is_evicted_too(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.fail(BUDGET, method="POST", part="p1/eviction")
    with pytest.raises(HeldBackError, match=r"^pod of rank 1: .*disruption budget") as caught:
        await world.cluster.evict(gang, reason=WHY, manner="evict")
    assert caught.value.held == HELD
    await world.cluster.evict(gang, reason=WHY, manner="evict")
    assert [path for path, _ in asked(world, "POST")] == ["p0/eviction", "p1/eviction", "p1/eviction"]
    await world.cluster.evict(gang, reason=WHY, manner="evict-late")
    assert world.kube.objects("/api/v1/namespaces/default/pods") == []


async def test_a_server_that_is_overloaded_is_no_budget(world: World) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.fail(TransientError("HTTP 429: too many requests"), method="POST", part="p1/eviction")
    with pytest.raises(TransientError, match="too many requests") as caught:
        await world.cluster.remove(gang, leave(1))
    assert not isinstance(caught.value, HeldBackError)
    assert world.told == []


@pytest.mark.parametrize("status", [404, 409])
async def test_a_pod_that_is_gone_or_another_by_now_counts(world: World, status: int) -> None:
    gang = await running(world, "n0", "n1")
    world.kube.fail(RefusedError("no", status=status), method="POST", part="p1/eviction")
    await world.cluster.remove(gang, leave(1))
    assert world.told == []


# In the loop.


def drained(desk: Desk, *ranks: int, until_ms: int, scope: Scope = "pod", place: str = "") -> None:
    step = desk.work.attempts[KEY].holding.step + 1
    placement = places(place) if place else None
    recovery = Recovery(
        "ns", "job-a", "a", 1, step, DRAIN, WHY, scope, "grace", list(ranks), [ranks[0]], 5, until_ms, placement
    )
    desk.write(recoveries=[recovery])


async def test_the_outcome_names_what_is_held_back_until_it_is_not() -> None:
    desk = await Desk().bound()
    drained(desk, 1, until_ms=desk.server.clock.now_ms() + 900_000, place="n5")
    desk.cluster.errors = [HeldBackError(HELD)]
    outcome = await desk.go()
    assert (said(outcome), outcome.held) == (("bound", 3, [], 1, 0), HELD)
    assert [leaves[1].manner for leaves in desk.cluster.removed] == ["evict"]
    assert desk.waits == [HELD_RETRY_S]
    assert desk.work.next_step(KEY, desk.server.clock.now_ms()) is None, "it waits"
    count = len(await desk.outcomes())
    desk.server.clock.advance(HELD_RETRY_S)
    desk.cluster.errors = [HeldBackError(HELD)]
    await desk.go()
    assert len(await desk.outcomes()) == count, "the same is not published again"
    desk.server.clock.advance(HELD_RETRY_S)
    assert (await desk.go()).held == []
    assert len(desk.cluster.removed) == 3
    assert desk.waits[-1] == 900 - 2 * HELD_RETRY_S


async def test_others_are_bound_while_one_is_held_back() -> None:
    desk = await Desk().bound()
    drained(desk, 1, until_ms=desk.server.clock.now_ms() + 900_000)
    desk.cluster.errors = [HeldBackError(HELD)]
    await desk.go()
    desk.recover(2, nodes=("n5",))
    desk.work.attempts[KEY].recovery = None
    await desk.go()
    assert desk.work.attempts[KEY].taken_up == 2


async def test_after_a_restart_what_may_be_held_back_is_tried_again() -> None:
    desk = await Desk().bound()
    now_ms = desk.server.clock.now_ms()
    drained(desk, 1, until_ms=now_ms + 900_000)
    await desk.go()
    attempt = desk.work.attempts[KEY]
    assert not attempt.unevicted()
    attempt.evicted.clear()
    assert leaves_of(attempt, now_ms)[1].manner == "evict"
    assert desk.work.next_step(KEY, now_ms) is not None


async def test_a_held_back_pod_is_tried_again_after_its_time_and_never_in_between() -> None:
    desk = await Desk().bound()
    drained(desk, 1, until_ms=desk.server.clock.now_ms() + 2_000)
    desk.cluster.errors = [HeldBackError(HELD)]
    await desk.go()
    desk.server.clock.advance(2)
    desk.cluster.errors = [HeldBackError(HELD)]
    await desk.go()
    assert desk.waits == [2, HELD_RETRY_S], "no tight loop at the end of the grace period"
    assert [leaves[1].manner for leaves in desk.cluster.removed] == ["evict", "evict-late"]


async def test_a_whole_job_that_is_held_back_ends_later() -> None:
    desk = await Desk().bound()
    drained(desk, 0, 1, 2, until_ms=desk.server.clock.now_ms() + 3_000, scope="job")
    assert manner_of_end(desk.work.attempts[KEY], desk.server.clock.now_ms()) == "evict"
    desk.cluster.errors = [HeldBackError(HELD)]
    outcome = await desk.go()
    assert (outcome.state, outcome.held) == ("bound", HELD)
    assert desk.work.due_in_s(KEY, desk.server.clock.now_ms()) == 3
    desk.server.clock.advance(3)
    desk.cluster.errors = [HeldBackError(HELD)]
    await desk.go()
    assert desk.work.due_in_s(KEY, desk.server.clock.now_ms()) is None, "no tight loop when its time is over"
    assert desk.waits == [HELD_RETRY_S, HELD_RETRY_S]
    desk.server.clock.advance(HELD_RETRY_S)
    outcome = await desk.go()
    assert (outcome.state, outcome.held) == ("evicted", [])
    assert desk.cluster.asked[1:] == ["evict a with evict", "evict a with evict-late", "evict a with evict-late"]


async def test_a_fault_after_a_drain_deletes_its_own_ranks_and_the_others_are_still_evicted() -> None:
    desk = await Desk().bound()
    until_ms = desk.server.clock.now_ms() + 900_000
    drained(desk, 1, 2, until_ms=until_ms)
    desk.cluster.errors = [HeldBackError([*HELD, RankFailure(2, BUDGET.reason)])]
    await desk.go()
    desk.recover(0, 2)
    leaves = leaves_of(desk.work.attempts[KEY], desk.server.clock.now_ms())
    found = {rank: (leave.step, leave.manner, leave.reason) for rank, leave in leaves.items()}
    assert found == {0: (2, "force", CAUSE), 1: (1, "evict", WHY), 2: (2, "force", CAUSE)}
    desk.cluster.errors = [HeldBackError(HELD)]
    outcome = await desk.go()
    assert (outcome.step, outcome.held) == (2, HELD)
    desk.server.clock.advance(HELD_RETRY_S)
    await desk.go()
    assert {rank: leave.manner for rank, leave in desk.cluster.removed[-1].items()} == {1: "evict"}


def test_pods_of_faults_leave_as_before() -> None:
    assert Leave(1, "n", at_once=False, reason="").manner == "grace"
    assert Leave(1, "n", at_once=True, reason="").manner == "force"
