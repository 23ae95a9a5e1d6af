"""A gang is undone only where its bound pods are made anew: what nobody makes again stays."""

from typing import Any

import pytest

from berth.runtime.errors import TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.facts import PodPhase
from berth.services.binder.cluster import Gang, NotYetError
from tests.support.binder_world import World, bound, made, uid_of
from tests.support.kube_binder import a_gang, a_pod, members_of, owned, pods_of

PODS = "/api/v1/namespaces/ns/pods"
REFUSED = RefusedError("admission webhook denied the request", status=422)


@pytest.fixture
async def world() -> World:
    return await made(bind_give_up_s=300)


async def half_bound(world: World) -> Gang:
    """A gang of which p0 is bound and p1 has been refused for longer than anybody waits."""
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    world.kube.fail(REFUSED, part="p1/binding", times=99)
    return gang


async def late(world: World, gang: Gang) -> None:
    """Let the time pass in which a refused binding is tried again."""
    with pytest.raises(TransientError, match="denied"):
        await world.cluster.bind(gang)
    world.clock.advance(300)


async def test_a_pod_without_a_controller_stays_and_the_others_are_tried_on(world: World) -> None:
    gang = await half_bound(world)
    await late(world, gang)
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    assert world.node_of("p0") == "n0"
    world.kube.confirm(f"{PODS}/p1")
    world.kube.put(PODS, a_pod("p1b"))
    rows = [(0, "p0", uid_of(world, "p0")), (1, "p1b", uid_of(world, "p1b"))]
    world.cluster.take_members(members_of(gang, rows))
    assert await world.cluster.bind(gang) == bound(2)
    assert world.node_of("p1b") == "n1"


async def test_an_event_of_every_pod_says_once_what_is_refused_and_why_pods_stay(world: World) -> None:
    gang = await half_bound(world)
    for _ in range(3):
        await late(world, gang)
        with pytest.raises(NotYetError):
            await world.cluster.bind(gang)
    why = "pod p1 is refused: admission webhook denied the request"
    kept = "the pods that are bound stay: pod p0 has no controller that makes it anew"
    assert [said for said in world.told if said[2].startswith("rank")] == [
        (pod, "FailedBinding", f"rank 1 of the gang cannot be bound: {why}; {kept}") for pod in ("p0", "p1")
    ]


POLICY = {"event": "PodEvicted", "action": "RestartJob"}
TORCH: dict[str, Any] = {
    "kind": "PyTorchJob",
    "version": "kubeflow.org/v1",
    "pytorchReplicaSpecs": {"Master": {}, "Worker": {"restartPolicy": "OnFailure"}},
}


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ({"kind": "Job", "version": "batch/v1"}, "Job owner counts a deleted pod as failed"),
        ({"kind": "PyTorchJob", "version": "kubeflow.org/v1"}, "it is not known whether PyTorchJob owner makes"),
        ({"kind": "Job", "version": "batch.volcano.sh/v1alpha1", "policies": [POLICY]}, "a policy of Job owner acts"),
        (
            {"kind": "Job", "version": "batch.volcano.sh/v1alpha1", "tasks": [{"policies": [{"events": ["*"]}]}]},
            "a policy of Job owner acts on deleted pods",
        ),
        ({"kind": "TFJob", "version": "kubeflow.org/v1"}, "TFJob owner counts a deleted pod as failed"),
        ({"kind": "MPIJob", "version": "kubeflow.org/v2beta1"}, "it is not known whether MPIJob owner makes"),
        (TORCH | {"runPolicy": {"backoffLimit": 3}}, r"PyTorchJob owner counts a deleted pod \(backoffLimit 3\)"),
        (
            TORCH | {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"restartPolicy": "Never"}}},
            r"PyTorchJob owner does not restart Worker pods \(Never\)",
        ),
        (
            TORCH | {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "ExitCode"}}},
            r"PyTorchJob owner does not restart Worker pods \(ExitCode\)",
        ),
    ],
)
async def test_pods_stay_whose_controller_makes_no_others_or_counts_it(
    world: World, owner: dict[str, Any], why: str
) -> None:
    gang = await half_bound(world)
    owned(world.kube, "p0", "p1", **owner)
    await late(world, gang)
    with pytest.raises(NotYetError, match=why):
        await world.cluster.bind(gang)


async def test_pods_stay_whose_owner_is_gone(world: World) -> None:
    gang = await half_bound(world)
    owned(world.kube, "p0", "p1")
    world.kube.confirm("/apis/apps/v1/namespaces/ns/replicasets/owner")
    await late(world, gang)
    with pytest.raises(NotYetError, match="ReplicaSet owner is gone"):
        await world.cluster.bind(gang)


@pytest.mark.parametrize(
    "owner",
    [
        {},
        {"kind": "StatefulSet"},
        {"kind": "Job", "version": "batch.volcano.sh/v1alpha1", "policies": [{"event": "PodFailed"}]},
        {"kind": "AscendJob", "version": "mindxdl.gitee.com/v1"},
        {"kind": "RayCluster", "version": "ray.io/v1"},
        {"kind": "RayCluster", "version": "ray.io/v1alpha1"},
        TORCH,
        {"kind": "PaddleJob", "version": "kubeflow.org/v1", "paddleReplicaSpecs": {"Worker": {}}},
    ],
)
async def test_a_gang_is_undone_whose_pods_are_made_anew(world: World, owner: dict[str, Any]) -> None:
    gang = await half_bound(world)
    owned(world.kube, "p0", "p1", **owner)
    await late(world, gang)
    assert await world.cluster.bind(gang) == bound(1, (1, "pod p1 is refused: admission webhook denied the request"))


async def test_pods_stay_also_where_another_rank_never_gets_a_pod(world: World) -> None:
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    world.kube.confirm(f"{PODS}/p1")
    with pytest.raises(
        NotYetError, match="rank 1 of the gang cannot be bound: pod p1 is gone; the pods that are bound"
    ):
        await world.cluster.bind(gang)
    assert world.node_of("p0") == "n0"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_pod_that_runs_counts_as_bound_also_after_a_restart(world: World, *, is_restarted: bool) -> None:
    gang = await half_bound(world)
    with pytest.raises(TransientError, match="denied"):
        await world.cluster.bind(gang)
    runs = pods_of(gang, [(0, "n0", PodPhase.RUNNING, 1, True)])
    world.cluster.take_pods(runs)
    world.kube.confirm(f"{PODS}/p1")
    if is_restarted:
        world.restart()
        await world.sync()
        world.cluster.take_pods(runs)
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))]))
    await world.cluster.begin([gang], after_ms=0, wake=world.woken.extend)
    with pytest.raises(NotYetError, match="no pod yet"):
        await world.cluster.bind(gang)
    world.clock.advance(world.config.members_wait_s + 1)
    with pytest.raises(NotYetError, match="the pods that are bound stay"):
        await world.cluster.bind(gang)


async def test_nothing_stands_in_the_way_where_no_pod_is_bound(world: World) -> None:
    gang = a_gang("job", ["n0"], [(0,)])
    world.pods(gang, "p0")
    world.kube.fail(REFUSED, part="p0/binding", times=2)
    await late(world, gang)
    assert await world.cluster.bind(gang) == bound(0, (0, "pod p0 is refused: admission webhook denied the request"))
