"""A storm on a real API server: a report that would restart all jobs restarts none until a person approves it."""

from typing import Final

import pytest

from berth.schemas.simulation import BreakNode
from tests.support.faulty_cell import (
    DEADLINE_S,
    FAULTS,
    JOBS,
    Ask,
    RunningCell,
    Seat,
    break_node,
    settings,
    statuses_of,
    until_seats,
    unusable_chips,
)
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_volcano_job
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(180)
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 1, name: "a2-{index}", leaf: {size: 1, name: "leaf-{index}"}}
"""
NAMES: Final = ("a", "b", "c", "d")


async def until_held(world: KubeCell, count: int) -> list[str]:
    """Wait until the restarts of so many jobs are held back; returns what their statuses say."""

    async def there() -> bool:
        world.check()
        return sum(bool(status.restart_held) for status in await statuses_of(world)) == count

    await until_true(there, deadline_s=DEADLINE_S, what=f"{count} jobs whose restart is held back")
    return [status.restart_held for status in await statuses_of(world)]


async def until_events(world: KubeCell, namespace: str) -> None:
    """Wait until an Event of each job says what helps."""

    async def there() -> bool:
        events = await world.api.items(f"/api/v1/namespaces/{namespace}/events")
        found = [event for event in events if event["reason"] == "RestartHeldBack"]
        about = {event["involvedObject"]["uid"] for event in found}
        return len(about) == len(NAMES) and all("berth faults approve Card" in event["message"] for event in found)

    await until_true(there, deadline_s=DEADLINE_S, what="an Event of each job")


@pytest.mark.processes
async def test_a_report_that_would_restart_all_jobs_waits_for_an_approval(
    running: RunningCell, namespace: str, kube_api: KubeApi, ask: Ask
) -> None:
    faults = FAULTS | {"restarts_at_once": 2, "restart_share_percent": 20}
    async with running(TOPOLOGY, settings() | {"dispatcher": {"decisions": faults}}) as one:

        async def seats(*without: Seat) -> dict[str, Seat]:
            gone = frozenset(seat.uid for seat in without)
            return {name: (await until_seats(one, namespace, name, 1, without=gone))[0] for name in NAMES}

        for name in NAMES:
            job = a_volcano_job(name, 1, 1, run_for="3600s")
            job["metadata"]["labels"]["fault-scheduling"] = "force"
            await kube_api.post(JOBS.format(namespace), job)
        before = await seats()
        broken = sum(seat.chips for seat in before.values())
        chips = [chip for chip in range(8) if broken >> chip & 1]
        await break_node(one, BreakNode("a2-0", "chip", chips))
        (why,) = set(await until_held(one, len(NAMES)))
        assert "only the device plug-in reports it" in why
        assert await unusable_chips(one, "a2-0") & broken == broken

        await until_events(one, namespace)
        assert await seats() == before
        told = await ask("faults")
        assert {(row["kind"], row["approvable"]) for row in told["held"]} == {("CardUnhealthy", True)}
        assert len(told["held"]) == len(NAMES)
        await one.restart("dispatcher")
        (approval,) = await ask("faults", "approve", "CardUnhealthy", "--reason", "seen on site")
        assert approval["domain"] == told["held"][0]["domain"]
        after = await seats(*before.values())
        assert not sum(seat.chips for seat in after.values()) & broken
        await until_held(one, 0)
        told = await ask("faults")
        assert (told["held"], [row["reason"] for row in told["approvals"]]) == ([], ["seen on site"])
        assert await one.check_chips(namespace) == len(NAMES)
