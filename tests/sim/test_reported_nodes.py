"""Situations from public reports about nodes that change or reject pods, each by its name."""

from typing import Any

import pytest

from berth.runtime.kube.port import RefusedError
from tests.sim.scene import ALONE, Scene, a_volcano_job, owned_by, topology

VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "repair", "effect": "NoSchedule"}]}},
        {"metadata": {"labels": {"accelerator-type": "module-910b-16"}}},
    ],
    ids=["cordoned", "tainted", "relabelled"],
)
def test_a_node_that_changed_since_the_decision_gets_no_pod(change: dict[str, Any]) -> None:
    scene = Scene(topology(2), agents={"controllers": ["volcano"]})
    before: list[str] = []

    async def script(scene: Scene) -> None:
        scene.cell.stop("binder")
        await scene.after(1)
        scene.put(VOLCANO_JOBS, a_volcano_job("gang", 1, chips=8))
        await scene.after(3)
        scene.cell.kill("inventory")  # so that the binder alone sees the change
        before.extend(scene.decided())
        scene.patch(f"/api/v1/nodes/{before[0]}", change)
        scene.cell.start("binder")
        await scene.after(3)
        before.append(scene.node_of("gang-worker-0"))
        scene.cell.start("inventory")
        await scene.after(20)

    scene.play(script)
    assert before == ["n0", ""]
    assert (scene.node_of("gang-worker-0"), scene.running(), scene.deleted) == ("n1", ["gang-worker-0"], [])


DEVICES = ("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to rpc error: no device plug-in answers")
NUMA = ("TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality")


def test_28_a_node_whose_device_plugin_is_broken_takes_no_flood_of_pods() -> None:
    scene = Scene(topology(2), agents=ALONE)
    said: list[str] = []

    async def script(scene: Scene) -> None:
        scene.rejects["n0"] = DEVICES
        for name in ("a", "b", "c"):
            scene.pod(name, 8)
            await scene.after(3)
        said.append(scene.said_of("n0"))
        scene.pod("d", 8)
        await scene.after(40)
        said.append(scene.node_of("d"))
        scene.rejects.clear()
        await scene.after(40)
        said.append(scene.said_of("n0"))

    scene.play(script)
    assert [scene.node_of(name) for name in "abcd"] == ["n0", "n0", "n1", "n0"]
    assert said[0].startswith("its kubelet rejected pods of 2 owners for their devices, no new work until ")
    assert (said[1:], scene.running()) == (["", ""], ["c", "d"])


@pytest.mark.parametrize("rejection", [DEVICES, NUMA])
def test_28_an_owner_whose_pod_was_rejected_tries_that_node_last(rejection: tuple[str, str]) -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        made = scene.put(REPLICA_SETS, {"metadata": {"name": "dep"}, "spec": {"replicas": 1, "template": {}}})
        scene.rejects["n0"] = rejection
        for name in ("dep-0", "dep-1"):
            scene.pod(name, 2, owner=owned_by(made, "ReplicaSet", "apps/v1"))
            await scene.after(5)
        scene.rejects.clear()
        for number in range(2, 6):
            scene.pod(f"dep-{number}", 2, owner=owned_by(made, "ReplicaSet", "apps/v1"))
            await scene.after(5)

    scene.play(script)
    assert [scene.node_of(f"dep-{number}") for number in range(6)] == ["n0", "n1", "n1", "n1", "n1", "n0"]


def test_a_rank_whose_node_changed_after_others_were_bound_gets_another_place_alone() -> None:
    scene = Scene(topology(3), agents=ALONE)
    denied = RefusedError("admission webhook denied the request", status=422)

    async def script(scene: Scene) -> None:
        scene.group("pg", 2)
        scene.kube.fail(denied, method="POST", part="p-1/binding", times=6)
        for name in ("p-0", "p-1"):
            scene.pod(name, 8, group="pg")
        await scene.after(2)
        assert (scene.node_of("p-0"), scene.node_of("p-1")) == ("n0", "")
        scene.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        await scene.after(30)

    scene.play(script)
    assert (scene.deleted, scene.running(), scene.node_of("p-1")) == ([], ["p-0", "p-1"], "n2")


def test_a_rank_whose_node_changed_waits_for_another_one() -> None:
    scene = Scene(topology(2), agents=ALONE)
    denied = RefusedError("admission webhook denied the request", status=422)

    async def script(scene: Scene) -> None:
        scene.group("pg", 2)
        scene.kube.fail(denied, method="POST", part="p-1/binding", times=6)
        for name in ("p-0", "p-1"):
            scene.pod(name, 8, group="pg")
        await scene.after(2)
        scene.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        await scene.after(30)
        assert (scene.deleted, scene.running()) == ([], ["p-0"])
        scene.pod("later", 8)
        await scene.after(2)
        scene.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
        await scene.after(20)

    scene.play(script)
    assert (scene.deleted, scene.running(), scene.node_of("p-1")) == ([], ["p-0", "p-1"], "n1")
