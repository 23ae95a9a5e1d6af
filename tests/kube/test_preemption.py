"""Jobs of high priority on an API server: others end for them, are made again by their controller, and come back."""

from collections.abc import Mapping
from typing import Final

import pytest

from berth.formats.ascend.pod_annotations import JOB, RANK_INDEX
from berth.lab.servers.kube_server import KubeServer
from tests.kube.test_contract_details import CLASSES, GANGS
from tests.kube.test_native_gangs import LONG, make_group, make_pod, notes
from tests.kube.test_superpod_jobs import in_blocks
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec, a_volcano_job

pytestmark = pytest.mark.timeout(150)
_JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces"
_SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "inventory": {"gangs": {**GANGS, "preempt": True}},
    "dispatcher": {"decisions": {"preempt": 2}},
}
_NODES: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 3, name: "a2-{index}"}
"""
_LEAVES: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2}}
"""
_SUPERPODS: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: superpod910a3x16, count: 6, name: "a3-{index}", superpod: {size: 3}}
"""

_OF_SMALL: Final = {"volcano.sh/job-name": "small"}


async def job(target: InvalidInputCell, name: str, *, replicas: int = 1, chips: int = 8, high: bool = False) -> str:
    """A Volcano Job; the name of its request."""
    body = a_volcano_job(name, replicas, chips, run_for="600s")
    if high:
        body["spec"]["priorityClassName"] = "urgent"
    await target.api.post(f"{_JOBS}/{target.namespace}/jobs", body)
    return f"vcjob.{name}"


async def urgent(target: InvalidInputCell) -> None:
    """A PriorityClass."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    await target.api.post(CLASSES, body)


async def removed(target: InvalidInputCell, name: str) -> None:
    """Delete a job; its chips are free in the ledger afterwards."""
    await target.api.delete(f"{_JOBS}/{target.namespace}/jobs/{name}")
    await target.cell.until_status(target.namespace, f"vcjob.{name}", "cancelled", "failed")


async def uid_of(target: InvalidInputCell, pod: str) -> str:
    found = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    return next((one["metadata"]["uid"] for one in found if one["metadata"]["name"] == pod), "")


async def test_a_job_gets_a_node_by_the_end_of_the_job_that_loses_least_and_that_one_comes_back(
    target_of: TargetOf,
) -> None:
    target = target_of(_NODES, _SETTINGS)
    await urgent(target)
    await target.cell.start()
    await job(target, "wide", replicas=2)
    await target.until_running("wide-worker-0", "wide-worker-1")
    await job(target, "small")
    await target.until_running("small-worker-0")
    wide, small = await uid_of(target, "wide-worker-0"), await uid_of(target, "small-worker-0")
    await job(target, "high", high=True)
    await target.until_running("high-worker-0", "wide-worker-0", "wide-worker-1")
    assert await uid_of(target, "wide-worker-0") == wide

    async def is_made_again() -> bool:
        return await uid_of(target, "small-worker-0") not in {"", small}

    await target.until("the controller makes the pod again", is_made_again)
    status = await target.cell.until_status(target.namespace, "vcjob.small", "waiting")
    assert status.recovery is not None
    assert status.recovery.cause == "preempted for a job of priority 1000, above 0, that needs 8 chips in one node"
    await target.api.delete(f"{_JOBS}/{target.namespace}/jobs/high")
    await target.until_running("small-worker-0", "wide-worker-0")
    assert await target.cell.check_chips(target.namespace) == 24
    await target.cell.stop()


async def test_a_job_whose_disruption_budget_allows_nothing_is_spared_if_another_one_makes_room(
    target_of: TargetOf,
) -> None:
    target = target_of(_NODES, _SETTINGS)
    await urgent(target)
    keep = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": _OF_SMALL}}}
    await target.api.post(f"/apis/policy/v1/namespaces/{target.namespace}/poddisruptionbudgets", keep)
    await target.cell.start()
    await job(target, "wide", replicas=2)
    await target.until_running("wide-worker-0", "wide-worker-1")
    await job(target, "small")
    await target.until_running("small-worker-0")
    small = await uid_of(target, "small-worker-0")
    await job(target, "high", high=True)
    await target.until_running("high-worker-0")
    status = await target.cell.until_status(target.namespace, "vcjob.wide", "waiting")
    assert status.recovery is not None
    assert status.recovery.for_job == f"{target.namespace}/vcjob.high"
    assert await uid_of(target, "small-worker-0") == small
    await target.cell.stop()


async def test_a_group_gives_up_the_pod_beyond_its_minimum_and_gets_one_again(
    kube_server: KubeServer, target_of: TargetOf
) -> None:
    if kube_server.minor < 36:
        pytest.skip("this server has no PodGroups of its own")
    target = target_of(_NODES, _SETTINGS)
    await urgent(target)
    await target.cell.start()
    for number in range(3):
        await make_pod(target, f"llm-{number}", "llm")
    await make_group(target, "llm", {"gang": {"minCount": 2}})
    await target.until_running("llm-0", "llm-1", "llm-2")
    before = [await uid_of(target, f"llm-{number}") for number in range(2)]
    await target.pod("high", a_spec(8) | {"priorityClassName": "urgent"}, annotations=LONG)
    await target.until_running("high", "llm-0", "llm-1")
    assert [await uid_of(target, f"llm-{number}") for number in range(3)] == [*before, ""]
    status = await target.cell.until_status(target.namespace, "native.llm", "running")
    assert status.recovery is not None
    assert (status.recovery.given_up, status.recovery.for_job) == ([2], f"{target.namespace}/pod.high")
    await make_pod(target, "llm-3", "llm")
    await target.drop_pod("high")
    await target.until_running("llm-0", "llm-1", "llm-3")
    assert (await notes(target, RANK_INDEX))["llm-3"] == "2"
    assert (await notes(target, JOB))["llm-3"] == "native.llm"
    await target.cell.stop()


async def test_a_job_gets_a_leaf_by_the_end_of_the_job_on_one(target_of: TargetOf) -> None:
    """Each leaf has a job on one of its two nodes: as many nodes are free as it needs, and no leaf is."""
    target = target_of(_LEAVES, _SETTINGS)
    await urgent(target)
    await target.cell.start()
    names = ("one", "two", "three", "four")
    for name in names:
        await job(target, name)
        await target.until_running(f"{name}-worker-0")
    pods = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    on_node = {pod["spec"]["nodeName"]: pod["metadata"]["name"].removesuffix("-worker-0") for pod in pods}
    for node in ("a2-0", "a2-2"):
        await removed(target, on_node[node])
    body = a_volcano_job("high", 2, 8, run_for="600s")
    body["spec"]["priorityClassName"] = "urgent"
    body["metadata"]["labels"] |= {"tor-affinity": "large-model-schema"}
    body["spec"]["tasks"][0]["template"]["metadata"]["labels"] = {"tor-affinity": "large-model-schema"}
    await target.api.post(f"{_JOBS}/{target.namespace}/jobs", body)
    await target.until_running("high-worker-0", "high-worker-1")
    found = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    homes = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}
    assert {homes["high-worker-0"], homes["high-worker-1"]} in ({"a2-0", "a2-1"}, {"a2-2", "a2-3"})
    left = [on_node[node] for node in ("a2-1", "a2-3")]
    await target.until_running(*(f"{name}-worker-0" for name in left))  # one of them on the free node of the other leaf
    await target.cell.stop()


async def test_a_job_gets_a_block_in_one_superpod_by_the_end_of_one_job(target_of: TargetOf) -> None:
    """One node of each SuperPoD is free: as many as the block needs, and no SuperPoD has both."""
    decisions = {"preempt": 2, "super_pod_size": 3}
    target = target_of(_SUPERPODS, {**_SETTINGS, "dispatcher": {"decisions": decisions}})
    await urgent(target)
    await target.cell.start()
    names = [f"low{number}" for number in range(6)]
    for name in names:
        await target.api.post(f"{_JOBS}/{target.namespace}/jobs", in_blocks(name, 1, 1))
        await target.until_running(f"{name}-worker-0")
    pods = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    on_node = {pod["spec"]["nodeName"]: pod["metadata"]["name"].removesuffix("-worker-0") for pod in pods}
    for node in ("a3-0", "a3-3"):
        await removed(target, on_node.pop(node))
    before = {name: await uid_of(target, f"{name}-worker-0") for name in on_node.values()}
    body = in_blocks("high", 2, 2)
    body["spec"]["priorityClassName"] = "urgent"
    await target.api.post(f"{_JOBS}/{target.namespace}/jobs", body)
    await target.until_running("high-worker-0", "high-worker-1")
    found = await target.api.items(f"/api/v1/namespaces/{target.namespace}/pods")
    homes = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}
    superpods = {int(homes[f"high-worker-{rank}"].removeprefix("a3-")) // 3 for rank in (0, 1)}
    assert len(superpods) == 1
    await target.until_running(
        *(f"{name}-worker-0" for name in before)
    )  # one of them on the other SuperPoD's free node
    after = {name: await uid_of(target, f"{name}-worker-0") for name in before}
    assert sum(after[name] != before[name] for name in before) == 1
    assert await target.cell.check_chips(target.namespace) == 6 * 16
    await target.cell.stop()
