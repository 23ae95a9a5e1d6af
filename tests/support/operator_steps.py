"""What tests of operators do in the same way with PodGroups and without."""

from collections.abc import Sequence

from tests.support.kustomize import Tree
from tests.support.operator_objects import a_ray_cluster
from tests.support.real_workloads import Workloads

WORKER = "ray-w-worker-"
HEAD = ["ray-head-"]


async def suspend_and_resume(
    workloads: Workloads,
    body: Tree,
    policy: str,
    names: Sequence[str],
    before: Sequence[Tree],
    beside: Sequence[str] = (),
) -> None:
    """A workload that is suspended holds nothing, and comes back whole; then it ends.

    Args:
        workloads: Workloads of the test.
        body: The workload, which runs.
        policy: Field of its spec that has ``suspend``; empty for the spec itself.
        names: Beginnings of the names of its pods with chips, by rank.
        before: These pods.
        beside: Beginnings of the names of its pods without chips.
    """
    for is_suspended in (True, False):
        field: Tree = {"suspend": is_suspended}
        await workloads.change(body, {"spec": {policy: field} if policy else field})
        if is_suspended:
            await workloads.until_over()
    await workloads.until_whole(*names, beside=beside, without=before)
    await workloads.end(body)


async def suspend_cluster(workloads: Workloads) -> None:
    """As :func:`suspend_and_resume`, of a RayCluster."""
    body = a_ray_cluster(2)
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 2, beside=HEAD)
    await suspend_and_resume(workloads, body, "", [WORKER] * 2, before, HEAD)


async def crowd_out_cluster(workloads: Workloads, why: str) -> None:
    """A RayCluster without room waits whole until another one ends.

    Args:
        workloads: Workloads of the test.
        why: Part of what its pods are told meanwhile.
    """
    first, second = a_ray_cluster(3), a_ray_cluster(4)
    second["metadata"]["name"] = "second"
    await workloads.make(first)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.make(second)
    await workloads.until_told("second-", why)
    await workloads.drop(first)
    await workloads.until_whole(*["second-w-worker-"] * 4, beside=["second-head-"], without=before)
    await workloads.end(second)
