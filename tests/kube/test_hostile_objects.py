"""Objects of one tenant that are larger than any may be, on a real API server, and how long a pod of another waits."""

import asyncio
from typing import Any, Final

import pytest

from berth.runtime.clock import SystemClock
from berth.schemas.intake import SHAPES
from tests.hostile.measuring import Beside, Compared
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec
from tests.support.waiting import pause, until_true

TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}"}
  - {product: module910x8, count: 4, name: "a1-{index}"}
"""
BYSTANDER: Final = "default"
"""Namespace of the other tenant, whose pods ask for nodes of another kind."""
PODS: Final = 2_000
"""Of the hostile group: nearly twice as many as a gang may have that all differ."""
DECENT_PODS: Final = 512
"""Of the tenant that behaves well, which makes as many at once: they keep the cell busy while jobs are timed."""
AT_ONCE: Final = 16
ANNOTATIONS: Final = {f"a.b/{number}": "" for number in range(16_000)}
GANG_PODS: Final = 4
Tree = dict[str, Any]


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    return target_of(TOPOLOGY)


def spec_of(number: int) -> Tree:
    """Spec of a pod that asks for what no other asks for."""
    spec = a_spec(1)
    spec["containers"][0]["resources"]["requests"] = {"cpu": f"{number + 1}m"}
    return spec


async def make(target: InvalidInputCell, pods: int, groups: int, *, is_hostile: bool) -> None:
    """Make the pods of a tenant: in one group, each another; or in some groups, all alike."""
    name = "large" if is_hostile else "usual"
    for group in range(groups):
        spec = {"minMember": pods // groups}
        await target.group(f"{name}-{group}", spec, annotations=ANNOTATIONS if is_hostile else {})
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            annotations = {"scheduling.k8s.io/group-name": f"{name}-{number % groups}", "berth/run-for": "600s"}
            spec = spec_of(number) if is_hostile else a_spec(8)
            await target.pod(f"{name}-{number}", spec, annotations=annotations)

    async with asyncio.TaskGroup() as tasks:
        for number in range(pods):
            tasks.create_task(one(number))


async def bind_one(target: InvalidInputCell, name: str) -> float:
    """Make a pod of the bystander; seconds until it has a node."""
    clock, path = SystemClock(), f"/api/v1/namespaces/{BYSTANDER}/pods"
    spec = a_spec(1) | {"nodeSelector": {"accelerator-type": "module"}}
    began_s = clock.monotonic_s()
    await target.api.post(path, {"metadata": {"name": name, "annotations": {"berth/run-for": "1s"}}, "spec": spec})

    async def has_node() -> bool:
        return bool((await target.api.get(f"{path}/{name}"))["spec"].get("nodeName"))

    await until_true(has_node, deadline_s=30, what=f"{name} has a node")
    return clock.monotonic_s() - began_s


async def beside(target: InvalidInputCell, pods: int, groups: int, *, is_hostile: bool) -> Beside:
    """Bind pods of the bystander one after the other while those of the tenant are made, and a moment longer."""
    took_s: list[float] = []
    async with asyncio.TaskGroup() as group:
        made = group.create_task(make(target, pods, groups, is_hostile=is_hostile))
        while not made.done() or len(took_s) < 8:
            took_s.append(await bind_one(target, f"mine-{'hostile' if is_hostile else 'decent'}-{len(took_s)}"))
            await pause(0.1)
    return Beside(pods, took_s)


@pytest.mark.timeout(180)
async def test_many_kinds_of_pods_and_annotations_of_one_group_delay_no_pod_of_another_tenant(
    target: InvalidInputCell,
) -> None:
    await target.cell.start()
    await bind_one(target, "first")
    decent = await beside(target, DECENT_PODS, DECENT_PODS // GANG_PODS, is_hostile=False)
    hostile = await beside(target, PODS, 1, is_hostile=True)
    found = Compared("objects", decent, hostile)
    assert found.faults == [], found.line
    words = f"no request is made for so large a gang: tasks is {PODS} shapes, expected at most {SHAPES.most}"

    async def is_told() -> bool:
        conditions = (await target.podgroup("large-0"))["status"].get("conditions", ())
        return any(words in one.get("message", "") for one in conditions)

    await target.until("the large group says why its pods wait", is_told)
