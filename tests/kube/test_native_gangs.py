"""PodGroups of Kubernetes itself on a real API server that serves them."""

from typing import Any, Final

import pytest

from berth.formats.ascend.pod_annotations import JOB, RANK_INDEX
from berth.lab.servers.kube_server import KubeServer
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec

pytestmark = pytest.mark.timeout(150)
LONG: Final = {"berth/run-for": "600s"}
GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces"
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}"}
"""


@pytest.fixture
def target(kube_server: KubeServer, target_of: TargetOf) -> InvalidInputCell:
    if kube_server.minor < 36:
        pytest.skip("this server has no PodGroups of its own")
    return target_of(TOPOLOGY, {"inventory": {"gangs": {"look_again_s": 1}}})


async def make_group(target: InvalidInputCell, name: str, policy: dict[str, Any]) -> None:
    """Make a PodGroup of Kubernetes."""
    body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
    await target.api.post(f"{GROUPS}/{target.namespace}/podgroups", body)


async def make_pod(target: InvalidInputCell, name: str, group: str) -> None:
    """Make a pod of a group, with all chips of a node."""
    await target.pod(name, a_spec(8) | {"schedulingGroup": {"podGroupName": group}}, annotations=LONG)


async def notes(target: InvalidInputCell, note: str) -> dict[str, str]:
    """An annotation of all pods, by name."""
    pods = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    return {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(note, "") for pod in pods}


async def test_a_gang_starts_with_its_last_pod(target: InvalidInputCell) -> None:
    await target.cell.start()
    await make_group(target, "llm", {"gang": {"minCount": 4}})
    for number in range(3):
        await make_pod(target, f"llm-{number}", "llm")
    await target.until_told([f"llm-{number}" for number in range(3)], "3 of at least 4 pods exist")
    await make_pod(target, "llm-3", "llm")
    await target.until_running(*[f"llm-{number}" for number in range(4)])
    assert await notes(target, RANK_INDEX) == {f"llm-{number}": str(number) for number in range(4)}
    assert set((await notes(target, JOB)).values()) == {"native.llm"}


async def test_a_group_is_told_that_there_is_no_room_and_that_it_is_scheduled(target: InvalidInputCell) -> None:
    await target.cell.start()
    await target.pod("before", a_spec(8), annotations=LONG)
    await target.until_running("before")
    await make_group(target, "llm", {"gang": {"minCount": 4}})
    for number in range(4):
        await make_pod(target, f"llm-{number}", "llm")

    async def says(status: str, reason: str) -> bool:
        group = await target.api.get(f"{GROUPS}/{target.namespace}/podgroups/llm")
        found = group.get("status", {}).get("conditions", [])
        return [(one["type"], one["status"], one["reason"]) for one in found] == [("PodGroupScheduled", status, reason)]

    await target.until("the group has no room", lambda: says("False", "Unschedulable"))
    await target.drop_pod("before")
    await target.until_running(*[f"llm-{number}" for number in range(4)])
    await target.until("the group is scheduled", lambda: says("True", "Scheduled"))


async def test_pods_wait_for_a_group_that_comes_later(target: InvalidInputCell) -> None:
    await target.cell.start()
    for number in range(2):
        await make_pod(target, f"late-{number}", "late")

    async def waits() -> bool:
        _, _, why = await target.condition("late-0")
        return "late does not exist" in str(why)

    await target.until("late-0 says what is missing", waits)
    await make_group(target, "late", {"gang": {"minCount": 2}})
    await target.until_running("late-0", "late-1")
    assert set((await notes(target, JOB)).values()) == {"native.late"}


async def test_pods_of_a_group_without_a_gang_start_one_by_one(target: InvalidInputCell) -> None:
    await target.cell.start()
    await make_group(target, "loose", {"basic": {}})
    for number in range(5):
        await make_pod(target, f"loose-{number}", "loose")

    async def four_run() -> bool:
        pods = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
        return len([pod for pod in pods if pod["status"]["phase"] == "Running"]) == 4

    await target.until("as many run as there are nodes", four_run)
    assert len(set((await notes(target, JOB)).values()) - {""}) == 4


async def test_a_group_that_is_deleted_leaves_its_pods_running(target: InvalidInputCell) -> None:
    await target.cell.start()
    await make_group(target, "llm", {"gang": {"minCount": 2}})
    for number in range(2):
        await make_pod(target, f"llm-{number}", "llm")
    await target.until_running("llm-0", "llm-1")
    before = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    path = f"{GROUPS}/{target.namespace}/podgroups"
    await target.api.delete(f"{path}/llm")
    (group,) = await target.api.items(path)
    assert group["metadata"]["deletionTimestamp"], "its finalizer holds it while it has pods"
    await target.pod("after", a_spec(8), annotations=LONG)
    await target.until_running("after")
    after = {pod["metadata"]["uid"] for pod in await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")}
    assert {pod["metadata"]["uid"] for pod in before} <= after
    for number in range(2):
        await target.drop_pod(f"llm-{number}")

    async def is_gone() -> bool:
        return not await target.api.items(path)

    await target.until("the group is gone with its last pod", is_gone)
