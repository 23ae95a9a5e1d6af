"""Jobs that are deleted, corrected and applied again: nothing of the deleted one holds chips, ranks or a place in line.

``vanished_s`` is 30 s here, and everything is waited for with a deadline well below: what follows from a deletion
follows from the deletion itself.
"""

from typing import Any, Final

import pytest

from berth.formats.ascend.pod_annotations import RANK_INDEX
from tests.support.invalid_input_cell import VOLCANO, InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec, a_volcano_job

pytestmark = pytest.mark.timeout(150)
LONG: Final = {"berth/run-for": "600s"}
GROUP: Final = "scheduling.k8s.io/group-name"
SOON_S: Final = 6.0
"""Far below ``vanished_s``; what is waited for takes a fraction of a second."""
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 1, name: "a2-{index}"}
"""
GANGS: Final[dict[str, object]] = {"groups_without_scheduler": True, "vanished_s": 30}

SETTLE_S: Final = 3.0
"""Longer than the pause between two pods that a test makes of one gang: nobody is told of a part of it."""


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    return target_of(TOPOLOGY, {"inventory": {"gangs": GANGS, "settle_s": SETTLE_S}})


async def make_gang(target: InvalidInputCell, name: str, pods: int, *, minimum: int, chips: int) -> None:
    """A PodGroup and pods of it, as one manifest has them."""
    await target.group(name, {"minMember": minimum})
    await add_pods(target, name, range(pods), chips)


async def add_pods(target: InvalidInputCell, name: str, numbers: range, chips: int) -> None:
    for number in numbers:
        await target.pod(f"{name}-{number}", a_spec(chips), annotations={**LONG, GROUP: name})


async def delete_gang(target: InvalidInputCell, name: str, pods: int) -> None:
    """What ``kubectl delete -f`` does with that manifest."""
    await target.api.delete(f"{VOLCANO}/{target.namespace}/podgroups/{name}")
    for number in range(pods):
        await target.drop_pod(f"{name}-{number}")


async def waits(target: InvalidInputCell, job: str) -> str:
    """Uid of a request that waits for chips."""
    status = await target.cell.until_status(target.namespace, job, "waiting")
    return status.uid


async def is_over(target: InvalidInputCell, job: str, uid: str) -> None:
    """The request does not wait any more."""

    async def over() -> bool:
        status = await target.status(job)
        return status is not None and (status.uid != uid or status.phase == "cancelled")

    await target.until(f"{job} is withdrawn", over, deadline_s=SOON_S)


async def nodes_of(target: InvalidInputCell, name: str, pods: int) -> list[str]:
    path = f"/api/v1/namespaces/{target.namespace}/pods"
    found = [await target.api.get(f"{path}/{name}-{number}") for number in range(pods)]
    return [pod["spec"].get("nodeName", "") for pod in found]


async def ranks_of(target: InvalidInputCell, name: str, pods: int) -> list[str]:
    path = f"/api/v1/namespaces/{target.namespace}/pods"
    found = [await target.api.get(f"{path}/{name}-{number}") for number in range(pods)]
    return [pod["metadata"]["annotations"].get(RANK_INDEX, "") for pod in found]


async def held_with(target: InvalidInputCell, name: str, pods: int, sentence: str) -> None:
    """PodGroup and pods say why they wait, soon."""

    async def told() -> bool:
        group = await target.podgroup(name)
        messages = [one.get("message", "") for one in group["status"].get("conditions", ())]
        conditions = [await target.condition(f"{name}-{number}") for number in range(pods)]
        return messages == [sentence] and {one[2] for one in conditions} == {sentence}

    await target.until(f"{name} says {sentence}", told, deadline_s=SOON_S)


async def test_a_job_that_is_deleted_corrected_and_applied_again_starts_as_it_is_written_now(
    target: InvalidInputCell,
) -> None:
    await target.cell.start()
    await target.pod("holder", a_spec(8), annotations=LONG)
    await target.until_running("holder")
    await make_gang(target, "llm", 4, minimum=4, chips=2)
    ghost = await waits(target, "podgroup.llm")
    await delete_gang(target, "llm", 4)
    await make_gang(target, "llm", 2, minimum=3, chips=2)
    await is_over(target, "podgroup.llm", ghost)
    await held_with(target, "llm", 2, "2 of at least 3 pods exist")
    await target.drop_pod("holder")
    await target.pod("other", a_spec(4), annotations=LONG)
    await target.until_running("other")  # the chips are free, and a gang below its minimum takes none
    assert await nodes_of(target, "llm", 2) == ["", ""]
    await target.drop_pod("other")
    await add_pods(target, "llm", range(2, 3), 2)
    await target.until_running("llm-0", "llm-1", "llm-2")
    assert await ranks_of(target, "llm", 3) == ["0", "1", "2"]
    assert await target.cell.check_chips(target.namespace) == 6
    await target.cell.stop()


@pytest.mark.processes
async def test_what_is_deleted_holds_nothing_also_when_nobody_watched(target: InvalidInputCell) -> None:
    await target.cell.start()
    await target.pod("holder", a_spec(8), annotations=LONG)
    await target.until_running("holder")
    await make_gang(target, "llm", 2, minimum=2, chips=4)
    await target.pod("solo", a_spec(8), annotations=LONG)
    ghosts = {job: await waits(target, job) for job in ("podgroup.llm", "pod.solo")}
    await target.cell.services["inventory"].stop()
    await delete_gang(target, "llm", 2)
    await target.drop_pod("solo")
    await make_gang(target, "llm", 2, minimum=3, chips=4)
    await target.cell.start("inventory")
    for job, uid in ghosts.items():
        await is_over(target, job, uid)
    await held_with(target, "llm", 2, "2 of at least 3 pods exist")
    await target.drop_pod("holder")
    await target.pod("other", a_spec(8), annotations=LONG)
    await target.until_running("other")
    assert await nodes_of(target, "llm", 2) == ["", ""]
    await target.cell.stop()


async def test_a_pod_and_a_volcano_job_that_are_corrected_run(target: InvalidInputCell) -> None:
    await target.cell.start()
    nowhere: dict[str, Any] = a_spec(4) | {"nodeSelector": {"accelerator-type": "module-910b-8", "zone": "nowhere"}}
    await target.pod("solo", nowhere, annotations=LONG)
    job = a_volcano_job("llm", 2, 2, run_for="600s")
    job["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"]["zone"] = "nowhere"
    path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs"
    await target.api.post(path, job)
    ghosts = {name: await waits(target, name) for name in ("pod.solo", "vcjob.llm")}
    await target.drop_pod("solo")
    await target.api.delete(f"{path}/llm")
    await gone(target, "llm-worker-0")
    await target.pod("solo", a_spec(4), annotations=LONG)
    await target.api.post(path, a_volcano_job("llm", 2, 2, run_for="600s"))
    for name, uid in ghosts.items():
        await is_over(target, name, uid)
    await target.until_running("solo", "llm-worker-0", "llm-worker-1")
    assert await target.cell.check_chips(target.namespace) == 8
    await target.cell.stop()


async def gone(target: InvalidInputCell, pod: str) -> None:
    """Wait until the garbage collector has taken a pod of a deleted job."""

    async def absent() -> bool:
        return await target.api.status_of("GET", f"/api/v1/namespaces/{target.namespace}/pods/{pod}") == 404

    await target.until(f"{pod} is gone", absent)
