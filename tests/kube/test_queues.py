"""Queues of Volcano on an API server: they limit jobs, follow their objects, and are shown with what they hold."""

from typing import Final

import pytest

from berth.schemas.envelope import decode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.subjects import StreamName
from tests.kube.queue_cells import CHIPS, declare, queued_cell
from tests.kube.test_contract_details import LONG, QUEUES
from tests.support.faulty_cell import Ask
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec

pytestmark = pytest.mark.timeout(150)
TEAM: Final = LONG | {"scheduling.volcano.sh/queue-name": "team"}


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    return queued_cell(target_of, nodes=3, level=1)


async def told(target: InvalidInputCell, name: str) -> list[QueueSeen]:
    """Facts about a queue."""
    found = await target.bus.read(StreamName.FACTS, filters=(target.bus.subjects.fact_queue(name),))
    return [decode(stored.data, QueueSeen) for stored in found]


async def test_a_job_waits_for_its_queue_until_the_queue_may_hold_more(target: InvalidInputCell, ask: Ask) -> None:
    await declare(target, "team", capability={CHIPS: "8"})
    await target.cell.start()
    await target.pod("first", a_spec(8), annotations=TEAM)
    await target.until_running("first")
    await target.pod("second", a_spec(8), annotations=TEAM)
    waits = await target.cell.until_status(target.namespace, "pod.second", "waiting")
    assert waits.sentence == f"queue team holds 8 of 8 {CHIPS}; the job asks for 8"
    assert [reason for reason, _, _ in await target.events("Pod", "second") if reason == "QueueIgnored"] == []
    tree = {queue["name"]: queue for queue in (await ask("queues"))["queues"]}
    assert (tree["team"]["held"][CHIPS], tree["team"]["running"], tree["team"]["waiting"]) == (800, 1, 1)
    await target.api.patch(f"{QUEUES}/team/status", {"status": {"running": 3, "allocated": {}}})
    await target.api.patch(f"{QUEUES}/team", {"spec": {"capability": {CHIPS: "16"}}})
    await target.until_running("second")

    async def is_allocated() -> bool:
        found = (await target.api.get(f"{QUEUES}/team"))["status"]
        return (found["allocated"].get(CHIPS), found["allocated"].get("pods"), found["running"]) == ("16", "2", 3)

    await target.until("the status of the queue has what it holds, and what others wrote", is_allocated)
    assert [(fact.source, fact.queue.capability) for fact in await told(target, "team")] == [
        ("kubernetes", {CHIPS: 800}),
        ("kubernetes", {CHIPS: 1_600}),
    ]
    await target.api.delete(f"{QUEUES}/team")

    async def is_gone() -> bool:
        return (await told(target, "team"))[-1].gone

    await target.until("the fact of the queue is withdrawn", is_gone)
