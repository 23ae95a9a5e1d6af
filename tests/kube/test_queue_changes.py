"""A PodGroup whose queue or minimum changes, on an API server: nothing is deleted, and no request is refused."""

from typing import Any

import pytest

from berth.schemas.envelope import decode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.kube.queue_cells import CHIPS, declare, queued_cell
from tests.kube.test_contract_details import GROUP, LONG, QUEUES
from tests.support.faulty_cell import Ask
from tests.support.invalid_input_cell import VOLCANO, InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
async def target(target_of: TargetOf) -> InvalidInputCell:
    """A cell with a full queue of 8 chips, in which a gang runs, and an empty one."""
    found = queued_cell(target_of, nodes=3)
    for name in ("full", "empty"):
        await declare(found, name, capability={CHIPS: "8"})
    await found.cell.start()
    await gang(found, "runs", 8)
    await found.until_running("runs-0")
    return found


async def gang(target: InvalidInputCell, name: str, *chips: int, is_admitted: bool = False) -> None:
    """A PodGroup of queue ``full`` and its pods.

    Args:
        target: The cell.
        name: Its name.
        chips: Of each pod.
        is_admitted: It is admitted while the queue has room, which is then cut: that takes no admission back.
    """
    resources = {"minResources": {CHIPS: str(sum(chips))}} if is_admitted else {}
    if is_admitted:
        await cut(target, 16)
    await target.group(name, {"minMember": len(chips), "queue": "full", **resources})
    if is_admitted:
        await target.until("it is admitted", lambda: phase_is(target, name, "Inqueue"))
        await cut(target, 8)
    for at, count in enumerate(chips):
        await target.pod(f"{name}-{at}", a_spec(count), annotations={**LONG, GROUP: name})


async def cut(target: InvalidInputCell, chips: int) -> None:
    """Change the capability of queue ``full``; returns once the cell knows."""
    await target.api.patch(f"{QUEUES}/full", {"spec": {"capability": {CHIPS: str(chips)}}})

    async def is_known() -> bool:
        found = await target.bus.read(StreamName.FACTS, filters=(target.bus.subjects.fact_queue("full"),))
        return decode(found[-1].data, QueueSeen).queue.capability == {CHIPS: chips * CHIP}

    await target.until(f"queue full has {chips} chips", is_known)


async def phase_is(target: InvalidInputCell, name: str, phase: str, why: str = "") -> bool:
    status = (await target.api.get(f"{VOLCANO}/{target.namespace}/podgroups/{name}")).get("status", {})
    told = [one.get("message", "") for one in status.get("conditions", [])]
    return status.get("phase") == phase and (not why or any(why in text for text in told))


async def change(target: InvalidInputCell, name: str, **spec: object) -> None:
    await target.api.patch(f"{VOLCANO}/{target.namespace}/podgroups/{name}", {"spec": spec})


async def held(ask: Ask) -> dict[str, tuple[float, int]]:
    """Chips that each queue holds, and jobs that wait there."""
    found: list[dict[str, Any]] = (await ask("queues"))["queues"]
    return {one["name"]: (one["held"][CHIPS], one["waiting"]) for one in found}


async def test_a_gang_that_waits_goes_to_the_queue_that_it_names_and_one_that_runs_stays(
    target: InvalidInputCell, ask: Ask
) -> None:
    await gang(target, "waits", 4, 4, is_admitted=True)
    waits = await target.cell.until_status(target.namespace, "podgroup.waits", "waiting")
    runs = await target.cell.until_status(target.namespace, "podgroup.runs", "running")
    assert waits.sentence == f"queue full holds 8 of 8 {CHIPS}; the job asks for 8"
    await change(target, "waits", queue="empty")
    await target.until_running("waits-0", "waits-1")
    placed = await target.cell.until_status(target.namespace, "podgroup.waits", "running")
    assert (placed.uid, placed.attempt) == (waits.uid, waits.attempt), "it is the same request"
    await change(target, "runs", queue="empty")

    async def is_told() -> bool:
        status = await target.status("podgroup.runs")
        return status is not None and status.queue == "empty"

    await target.until("the queue of its next attempt is told", is_told)
    still = await target.status("podgroup.runs")
    assert isinstance(still, JobStatus)
    assert (still.uid, still.phase, still.attempt, still.rejection) == (runs.uid, "running", runs.attempt, None)
    assert still.warning == "it is charged to queue full; queue empty counts from its next attempt on"
    found = await held(ask)
    assert (found["full"], found["empty"]) == ((800, 0), (800, 0)), "charged to the queue that placed it"
    await target.cell.stop()


async def test_a_gang_goes_back_to_pending_with_a_queue_that_does_not_let_it_in_and_on_with_another(
    target: InvalidInputCell,
) -> None:
    await gang(target, "waits", 8, is_admitted=True)
    await target.cell.until_status(target.namespace, "podgroup.waits", "waiting")
    uid = (await target.api.get(f"/api/v1/namespaces/{target.namespace}/pods/waits-0"))["metadata"]["uid"]
    await change(target, "waits", queue="nowhere")
    why = "queue nowhere does not exist"
    await target.until("it goes back", lambda: phase_is(target, "waits", "Pending", why))
    await change(target, "waits", queue="empty")
    await target.until_running("waits-0")
    pod = await target.api.get(f"/api/v1/namespaces/{target.namespace}/pods/waits-0")
    assert pod["metadata"]["uid"] == uid, "its pod is the one that waited"
    await target.cell.stop()


async def test_a_minimum_that_is_raised_while_a_gang_is_partly_there_or_runs_deletes_nothing(
    target: InvalidInputCell,
) -> None:
    await target.group("grows", {"minMember": 1, "queue": "empty"})
    await target.pod("grows-0", a_spec(4), annotations={**LONG, GROUP: "grows"})
    await target.until_running("grows-0")
    await change(target, "grows", minMember=2)
    await change(target, "runs", minMember=3)
    await target.pod("grows-1", a_spec(4), annotations={**LONG, GROUP: "grows"})
    await target.until_running("grows-1", "grows-0", "runs-0")
    for name in ("grows", "runs"):
        status = await target.cell.until_status(target.namespace, f"podgroup.{name}", "running")
        assert status.attempt == 1
    await target.cell.stop()
