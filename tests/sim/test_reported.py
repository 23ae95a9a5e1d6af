"""Situations from public reports, each by its name: what is made, and what would be right."""

import pytest

from berth.runtime.kube.port import RefusedError
from tests.sim.kube import finished
from tests.sim.scene import PODS, Scene, a_volcano_job, owned_by, topology

ALONE: dict[str, list[str]] = {"controllers": []}
"""Agents of nodes alone: the script plays the controllers."""
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"


def test_02_a_running_gang_below_its_minimum_comes_before_younger_work() -> None:
    scene = Scene(topology(2), agents={"controllers": ["volcano"]})

    async def script(scene: Scene) -> None:
        scene.put(VOLCANO_JOBS, a_volcano_job("gang", 2, chips=8))
        await scene.after(10)
        node = scene.node_of("gang-worker-1")
        scene.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        await scene.after(1)
        for number in range(3):
            scene.pod(f"filler{number}", 8)
        await scene.after(4)
        finished(scene.kube.delete(f"{PODS}/gang-worker-1"))
        await scene.after(10)
        scene.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
        await scene.after(20)

    scene.play(script)
    assert scene.running() == ["gang-worker-0", "gang-worker-1"]


@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_02_the_place_of_a_deleted_pod_is_kept_until_its_controller_makes_it_again(times: int, *, faults: bool) -> None:
    own = {"faults": {"enabled": True}} if faults else {}
    scene = Scene(topology(2), agents={"controllers": ["volcano"]}, **own)

    async def script(scene: Scene) -> None:
        scene.put(VOLCANO_JOBS, a_volcano_job("gang", 2, chips=8))
        await scene.after(10)
        scene.pod("filler", 8)
        await scene.after(5)
        for _ in range(times):
            finished(scene.kube.delete(f"{PODS}/gang-worker-1"))
            await scene.after(20)

    scene.play(script)
    assert scene.running() == ["gang-worker-0", "gang-worker-1"]


def test_02_the_place_of_a_pod_that_nobody_makes_again_is_kept_for_a_moment_only() -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        made = scene.put(REPLICA_SETS, {"metadata": {"name": "dep"}, "spec": {"replicas": 2, "template": {}}})
        for name in ("dep-0", "dep-1"):
            scene.pod(name, 8, owner=owned_by(made, "ReplicaSet", "apps/v1"))
        await scene.after(10)
        scene.pod("filler", 8)
        await scene.after(2)
        scene.put(REPLICA_SETS, {"metadata": {"name": "dep"}, "spec": {"replicas": 1, "template": {}}})
        finished(scene.kube.delete(f"{PODS}/dep-1"))
        await scene.after(12)

    scene.play(script)
    assert scene.running() == ["dep-0", "filler"]


@pytest.mark.parametrize(("count", "step_s"), [(4, 0.005), (4, 0.05), (16, 0.02), (16, 0.1), (16, 0.5)])
def test_04_a_group_name_that_is_written_late_ends_no_pod(count: int, step_s: float) -> None:
    scene = Scene(topology(4), agents=ALONE)
    names = [f"dep-{index:02}" for index in range(count)]

    async def script(scene: Scene) -> None:
        made = scene.put(REPLICA_SETS, {"metadata": {"name": "dep"}, "spec": {"replicas": count, "template": {}}})
        owner = owned_by(made, "ReplicaSet", "apps/v1")
        for name in names:
            scene.pod(name, 1, owner=owner)
        group = f"podgroup-{owner['uid']}"
        scene.group(group, 1, owner=owner)
        for name in names:
            await scene.after(step_s)
            scene.patch(f"{PODS}/{name}", {"metadata": {"annotations": {"scheduling.k8s.io/group-name": group}}})
        await scene.after(60)

    scene.play(script)
    assert (scene.deleted, scene.running()) == ([], names)


@pytest.mark.parametrize(("status", "times"), [(422, 1), (400, 1), (403, 3), (500, 2)])
def test_05_a_binding_that_is_refused_for_a_moment_ends_no_pod(status: int, times: int) -> None:
    scene = Scene(topology(3), agents=ALONE)

    async def script(scene: Scene) -> None:
        scene.group("pg", 2)
        refused = RefusedError("admission webhook denied the request", status=status)
        scene.kube.fail(refused, method="POST", part="p-1/binding", times=times)
        for name in ("p-0", "p-1"):
            scene.pod(name, 8, group="pg")
        await scene.after(60)

    scene.play(script)
    assert (scene.deleted, scene.running()) == ([], ["p-0", "p-1"])


def test_05_pods_without_a_controller_stay_while_the_binding_of_another_is_refused() -> None:
    scene = Scene(topology(3), agents=ALONE, binder={"bind_give_up_s": 30.0})
    denied = RefusedError("admission webhook denied the request", status=422)

    async def script(scene: Scene) -> None:
        scene.group("pg", 2)
        scene.kube.fail(denied, method="POST", part="p-1/binding", times=40)
        for name in ("p-0", "p-1"):
            scene.pod(name, 8, group="pg")
        await scene.after(120)
        why = "rank 1 of the gang cannot be bound: pod p-1 is refused: admission webhook denied the request"
        assert {name for name, said in scene.events("FailedBinding") if said.startswith(why)} == {"p-0", "p-1"}
        assert (scene.deleted, scene.running()) == ([], ["p-0"])
        await scene.after(900)

    scene.play(script)
    assert (scene.deleted, scene.running()) == ([], ["p-0", "p-1"])
