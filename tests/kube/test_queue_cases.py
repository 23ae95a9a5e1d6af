"""Cases of Volcano's issue tracker on an API server: Volcano Jobs, their PodGroups and a hierarchy of Queues.

The numbers are those of the issues.
"""

import pytest

from tests.kube.queue_cells import CHIPS, declare, queued_cell
from tests.kube.test_contract_details import QUEUES
from tests.support.faulty_cell import Ask
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import Tree, a_volcano_job

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    """Two nodes of 8 chips."""
    return queued_cell(target_of, nodes=2)


async def job(target: InvalidInputCell, name: str, queue: str, *, replicas: int = 1, chips: int = 8) -> str:
    """A Volcano Job; the name of its request."""
    body = a_volcano_job(name, replicas, chips, run_for="600s", queue=queue)
    await target.api.post(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs", body)
    return f"vcjob.{name}"


async def group_of(target: InvalidInputCell, name: str) -> Tree:
    """Status of the PodGroup of a Volcano Job; empty while it has none."""
    found = await target.api.items(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{target.namespace}/podgroups")
    own = [one for one in found if one["metadata"]["name"].startswith(f"{name}-")]
    return own[0].get("status", {}) if own else {}


async def until_group(target: InvalidInputCell, name: str, phase: str, words: str = "") -> None:
    """The PodGroup has a phase, and says the words."""

    async def is_so() -> bool:
        status = await group_of(target, name)
        told = [one.get("message", "") for one in status.get("conditions", [])]
        return status.get("phase") == phase and (not words or any(words in text for text in told))

    await target.until(f"PodGroup of {name} is {phase}: {words}", is_so)


async def pods_of(target: InvalidInputCell, name: str) -> int:
    path = f"/api/v1/namespaces/{target.namespace}/pods"
    return sum(pod["metadata"]["name"].startswith(f"{name}-") for pod in await target.api.items(path))


async def test_4673_wrong_queues_hold_back_their_own_jobs_alone(target: InvalidInputCell, ask: Ask) -> None:
    await declare(target, "lab", capability={CHIPS: "16"})
    await declare(target, "good", parent="lab", capability={CHIPS: "8"})
    await declare(target, "amount", parent="lab", capability={CHIPS: "eight"})
    await declare(target, "orphan", parent="nowhere")
    await declare(target, "ring-a", parent="ring-b")
    await declare(target, "ring-b", parent="ring-a")
    await target.cell.start()
    for name, words in (
        ("amount", "queue amount is not valid: spec.capability"),
        ("orphan", "queue orphan is not valid: its parent nowhere does not exist"),
        ("ring-a", "queue ring-a is not valid: a cycle of parents"),
        ("lab", "queue lab has child queues"),
    ):
        await job(target, f"in-{name}", name)
        await until_group(target, f"in-{name}", "Pending", words)
        assert await pods_of(target, f"in-{name}") == 0
    await job(target, "well", "good")
    await target.until_running("well-worker-0")
    await target.api.patch(f"{QUEUES}/amount", {"spec": {"capability": {CHIPS: "8"}}})
    await target.until_running("in-amount-worker-0")
    tree = {one["name"]: one for one in (await ask("queues"))["queues"]}
    assert [name for name, one in tree.items() if not one["is_valid"]] == ["orphan", "ring-a", "ring-b"]
    await target.cell.stop()


async def test_5001_no_more_is_admitted_than_the_quota_and_jobs_without_chips_are_not_held_back(
    target: InvalidInputCell, ask: Ask
) -> None:
    """The chips of the cluster are free for one more job, those of the queue are not: others have no pods."""
    await declare(target, "team", capability={CHIPS: "8", "cpu": "100", "memory": "1Ti"}, deserved={CHIPS: "8"})
    await target.cell.start()
    await job(target, "first", "team", chips=4, replicas=2)
    await target.until_running("first-worker-0", "first-worker-1")
    for name in ("second", "third"):
        await job(target, name, "team")
        words = f"gangs of queue team need at least 8 of 8 {CHIPS}; the job asks for 8"
        await until_group(target, name, "Pending", words)
    await job(target, "plain", "team", chips=0)
    await target.until_running("plain-worker-0")
    assert [await pods_of(target, name) for name in ("second", "third")] == [0, 0]
    (held,) = [one["held"][CHIPS] for one in (await ask("queues"))["queues"] if one["name"] == "team"]
    assert held == 800
    assert await target.cell.check_chips(target.namespace) == 8
    await target.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs/first")
    await target.until_running("second-worker-0")
    assert (await group_of(target, "third")).get("phase") == "Pending"
    await target.cell.stop()


async def test_5881_a_queue_below_its_entitlement_is_admitted_and_served_before_those_that_borrow(
    target: InvalidInputCell,
) -> None:
    """The cluster is full of borrowers. Nothing is evicted; what they give back is not theirs again."""
    await declare(target, "low", deserved={CHIPS: "0"}, capability={CHIPS: "16"})
    await declare(target, "high", deserved={CHIPS: "16"}, capability={CHIPS: "16"}, priority=10)
    await target.cell.start()
    for name in ("low-a", "low-b"):
        await job(target, name, "low")
        await target.until_running(f"{name}-worker-0")
    await job(target, "low-c", "low")
    await until_group(target, "low-c", "Pending", f"gangs of queue low need at least 16 of 16 {CHIPS}")
    await target.cell.until_status(target.namespace, await job(target, "high-a", "high"), "waiting")
    await until_group(target, "high-a", "Inqueue")
    await target.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs/low-a")
    await target.until_running("high-a-worker-0", "low-b-worker-0")
    waits = await target.cell.until_status(target.namespace, "vcjob.low-c", "waiting")
    assert waits.refusal is not None
    assert waits.refusal.code == "no-room"
    await target.cell.stop()
