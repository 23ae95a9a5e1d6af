"""Places held for a job that starts anew as a whole, on a real API server with all services."""

from collections.abc import Mapping
from typing import Final

import pytest

from berth.schemas.ledger import Round
from berth.schemas.recovery import HeldPlaces
from berth.schemas.simulation import BreakNode
from tests.support.faulty_cell import (
    DEADLINE_S,
    FAULTS,
    Ask,
    RunningCell,
    Seat,
    a2_nodes,
    break_node,
    pods_of,
    rounds_of,
    settings,
    submit,
    submit_pod,
    until_seats,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(150)
JOB: Final = "vcjob.llm"
RIVAL: Final = "pod.rival"
FOR_EVER_MS: Final = 3_600_000
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs/{}"


def holding_for(hold_ms: int) -> dict[str, Mapping[str, object]]:
    own = settings()
    # Healthy pods leave although there is no place for all: with a plan the job would wait for one, and hold nothing.
    own["dispatcher"] = {"decisions": {**FAULTS, "hold_places_ms": hold_ms, "plan_before_delete": False}}
    return own


async def holds_of(world: KubeCell) -> list[HeldPlaces]:
    """Entries of all records about held places, oldest first."""
    return [held for record in await rounds_of(world) for held in record.held]


async def placings_of(world: KubeCell, job: str) -> list[Round]:
    """Records that place a job, oldest first."""
    return [
        record
        for record in await rounds_of(world)
        if any(one.name == job and one.placement is not None for one in record.verdicts)
    ]


async def until_reserved(ask: Ask, *nodes: str) -> None:
    """All chips of these nodes are reserved, and none of others, as ``berth nodes`` shows them."""

    async def is_shown() -> bool:
        found = {row["name"]: [one["chips"] for one in row["reserved"]] for row in await ask("nodes")}
        return {node: chips for node, chips in found.items() if chips} == {node: [list(range(8))] for node in nodes}

    await until_true(is_shown, deadline_s=20, what=f"the reserved nodes are {nodes}")


async def restarted(world: KubeCell, namespace: str, old: dict[int, Seat], rank: int) -> HeldPlaces:
    """A chip of the node of a rank breaks, both old pods are gone, and two new ones wait; what is held is returned."""
    before = len(await holds_of(world))
    await break_node(world, BreakNode(old[rank].node, "chip", [3]))

    async def wait() -> bool:
        pods = await pods_of(world.api, namespace, "llm")
        uids = {pod["metadata"]["uid"] for pod in pods}
        is_new = len(uids) == 2 and not uids & {seat.uid for seat in old.values()}
        return is_new and not any("nodeName" in pod["spec"] for pod in pods) and len(await holds_of(world)) > before

    await until_true(wait, deadline_s=DEADLINE_S, what="the new pods wait, and a healthy place is held")
    held = (await holds_of(world))[before]
    assert (held.name, held.ranks) == (JOB, [1 - rank])
    return held


@pytest.mark.processes
async def test_healthy_places_of_a_job_that_restarts_are_held_and_it_returns_to_them(
    running: RunningCell, namespace: str, kube_api: KubeApi, ask: Ask
) -> None:
    async with running(a2_nodes(2), holding_for(FOR_EVER_MS)) as world:
        await submit(world, namespace, "llm", 2, fault_scheduling="force")
        old = await until_seats(world, namespace, "llm", 2)
        await submit_pod(world, namespace, "rival")
        await world.until_status(namespace, RIVAL, "waiting")
        await restarted(world, namespace, old, 0)
        await until_reserved(ask, old[1].node)
        await world.restart("dispatcher")
        await submit_pod(world, namespace, "later")
        await world.until_status(namespace, "pod.later", "waiting")  # decided by the dispatcher that was started
        assert (await world.until_status(namespace, RIVAL, "waiting")).placement is None

        await break_node(world, BreakNode(old[0].node, "chip", [3], repair=True))
        now = await until_seats(world, namespace, "llm", 2)
        assert (now[1].node, now[1].chips) == (old[1].node, old[1].chips)
        assert (now[0].node, now[0].uid == old[0].uid) == (old[0].node, False)
        assert await placings_of(world, RIVAL) == await placings_of(world, "pod.later") == []
        await until_reserved(ask)

        # A job that is deleted meanwhile holds nothing.
        await restarted(world, namespace, now, 1)
        assert await placings_of(world, RIVAL) == []
        await kube_api.delete(JOBS.format(namespace, "llm"))
        (seat,) = (await until_seats(world, namespace, "rival", 1)).values()
        assert seat.node == now[0].node
        await world.until_status(namespace, JOB, "cancelled")
        await until_reserved(ask)
        assert await world.check_chips(namespace) == 8


async def test_at_the_deadline_others_get_the_places_and_the_job_any_that_are_free(
    running: RunningCell, namespace: str, kube_api: KubeApi
) -> None:
    async with running(a2_nodes(2), holding_for(2_000)) as world:
        await submit(world, namespace, "llm", 2, fault_scheduling="force")
        old = await until_seats(world, namespace, "llm", 2)
        await submit_pod(world, namespace, "rival")
        await world.until_status(namespace, RIVAL, "waiting")
        held = await restarted(world, namespace, old, 0)
        (seat,) = (await until_seats(world, namespace, "rival", 1)).values()
        assert (seat.node, seat.chips) == (old[1].node, 0xFF)
        (record,) = await placings_of(world, RIVAL)
        assert record.at_ms >= held.until_ms
        assert await holds_of(world) == [held, HeldPlaces(held.namespace, held.name, held.uid, held.attempt)]

        await break_node(world, BreakNode(old[0].node, "chip", [3], repair=True))
        await world.until_status(namespace, JOB, "waiting")
        await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/rival")
        now = await until_seats(world, namespace, "llm", 2)
        assert {seat.node for seat in now.values()} == {seat.node for seat in old.values()}
        assert await world.check_chips(namespace) == 16
