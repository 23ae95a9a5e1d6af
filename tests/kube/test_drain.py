"""Drains on a real API server: jobs move, pods are evicted, and a PodDisruptionBudget holds one back.

No controller of budgets runs here: the server itself refuses while a budget has not been processed.
"""

from typing import Final

import pytest

from berth.runtime.clock import SystemClock
from berth.schemas.recovery import DRAIN, Recovery
from tests.support.binder_story import LEFT, STAY, Story
from tests.support.faulty_cell import Ask, RunningCell, submit, until_seats
from tests.support.kube_binder import a_placement
from tests.support.processes import Service
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(120)
WHY = "pod of rank 1 on n1: its node is drained, and 1 more"
RUNS = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


async def drain(story: Story, until_ms: int) -> None:
    gang, world = story.gang, story.world
    placement = a_placement([world.node(0), world.node(2)], [(1,), (0,)])
    step = Recovery(
        gang.namespace, gang.name, gang.uid, 1, 1, DRAIN, WHY, "pod", "grace", list(LEFT), list(LEFT), 1, until_ms,
        placement,
    )  # fmt: skip
    await story.record(recoveries=[step])


async def held(story: Story) -> list[int]:
    told = await story.cell.outcome(story.gang)
    return [one.rank for one in told.held] if told is not None else []


async def test_what_a_budget_holds_back_stays_until_it_is_let_go(story: Story, binder: Service) -> None:
    world = story.world
    budgets = f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets"
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"keep": "me"}}},
    }
    binder.start()
    await story.run()
    for rank in range(4):
        await world.api.patch(f"{world.pods}/p{rank}/status", RUNS)
    await world.api.patch(f"{world.pods}/p1", {"metadata": {"labels": {"keep": "me"}}})
    story.before = {rank: await world.pod(f"p{rank}") for rank in range(4)}
    await world.api.post(budgets, budget)
    await drain(story, until_ms=SystemClock().now_ms() + 3_000)

    async def is_held() -> bool:
        return await held(story) == [1]

    await until_true(is_held, deadline_s=30, what="the outcome names the pod that is held back")
    told = await story.cell.outcome(story.gang)
    assert told is not None
    assert (told.step, told.state) == (1, "bound")
    assert "disruption budget" in told.held[0].reason

    async def is_reported() -> bool:
        events = await world.api.items(f"/api/v1/namespaces/{world.namespace}/events")
        found = {one["reason"] for one in events}
        return {"Evict", "EvictionHeldBack"} <= found

    await until_true(is_reported, deadline_s=20, what="Events of both pods")
    await story.until_gone(2)  # after the grace period it is deleted at once
    assert "deletionTimestamp" not in (await world.pod("p1"))["metadata"], "the budget counts also then"
    await binder.kill()
    binder.start()
    await world.api.delete(f"{budgets}/keep")

    async def is_evicted() -> bool:
        return await story.is_gone(1) or "deletionTimestamp" in (await world.pod("p1"))["metadata"]

    await until_true(is_evicted, deadline_s=30, what="the pod is evicted")

    async def is_clear() -> bool:
        return await held(story) == []

    await until_true(is_clear, deadline_s=30, what="the outcome names nothing more")
    if not await story.is_gone(1):
        await world.api.delete(f"{world.pods}/p1")
    await story.until_gone(*LEFT)
    for rank in STAY:
        assert await world.pod(f"p{rank}") == story.before[rank]
    await binder.stop()


TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 8, name: "a2-{index}", leaf: {size: 2, name: "leaf-{index}"}}
"""


async def test_jobs_on_a_drained_node_or_leaf_move_and_come_back_after_an_undrain(
    running: RunningCell, namespace: str, ask: Ask
) -> None:
    async with running(TOPOLOGY) as one:
        await submit(one, namespace, "alone", 2, fault_scheduling="force", pod_rescheduling="on")
        await submit(one, namespace, "whole", 2)
        old = {name: await until_seats(one, namespace, name, 2) for name in ("alone", "whole")}
        drained = await ask("drain", old["alone"][1].node, "--grace", "30s")
        assert [job["ranks"] for job in drained["jobs"]] == [[1]]
        now = await until_seats(one, namespace, "alone", 2, without=frozenset({old["alone"][1].uid}))
        assert now[0] == old["alone"][0], "a healthy rank keeps its place"
        assert now[1].node not in {old["alone"][1].node, old["alone"][0].node}
        leaves = {node["name"]: node["leaf"] for node in await ask("nodes")}
        leaf = leaves[old["whole"][1].node]
        drained = await ask("drain", leaf, "--kind", "leaf")
        assert drained["nodes"] == sorted(node for node, below in leaves.items() if below == leaf)
        again = await until_seats(
            one, namespace, "whole", 2, without=frozenset(seat.uid for seat in old["whole"].values())
        )
        assert leaf not in {leaves[seat.node] for seat in again.values()}

        async def is_empty() -> bool:
            return all(not drain["jobs"] for drain in (await ask("faults"))["drains"])

        await until_true(is_empty, deadline_s=20, what="no job is on what is drained")
        await one.check_chips(namespace)
        await ask("undrain", leaf)
        await ask("undrain", old["alone"][1].node)
        assert (await ask("faults"))["drains"] == []
