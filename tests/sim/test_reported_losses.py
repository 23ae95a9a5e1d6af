"""What nobody makes again stays, whatever becomes of controllers, services and other pods."""

from typing import Any

import pytest

from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.subjects import Subjects
from tests.sim.kube import finished
from tests.sim.scene import ALONE, PODS, Scene, owned_by, topology

STATEFUL_SETS = "/apis/apps/v1/namespaces/ns/statefulsets"
REFUSED = RefusedError("admission webhook denied the request", status=422)


def delete(scene: Scene, path: str, **more: Any) -> None:  # noqa: ANN401 - as the server takes it
    finished(scene.kube.delete(path, **more))


def drain(scene: Scene, node: str) -> None:
    seen = DrainSeen("node", node, since_ms=round(scene.now_s * 1000))
    scene.cell.server.store(Subjects(scene.cell.ground.cell).fact_drain("node", node), encode(seen), None, None)


@pytest.mark.parametrize("are_orphans", [False, True])
def test_a_drain_leaves_pods_whose_controller_is_gone(*, are_orphans: bool) -> None:
    scene = Scene(topology(6), agents=ALONE)

    async def script(scene: Scene) -> None:
        template = {"spec": {"schedulerName": "berth"}}
        spec = {"replicas": 2, "podManagementPolicy": "Parallel", "template": template}
        made = scene.put(STATEFUL_SETS, {"metadata": {"name": "web"}, "spec": spec})
        for index in (0, 1):
            scene.pod(f"web-{index}", 8, owner=owned_by(made, "StatefulSet", "apps/v1"))
        await scene.after(4)
        if are_orphans:
            for index in (0, 1):
                scene.patch(f"{PODS}/web-{index}", {"metadata": {"ownerReferences": None}})
            delete(scene, f"{STATEFUL_SETS}/web")
        await scene.after(5)
        for node in {scene.node_of(f"web-{index}"): None for index in (0, 1)}:
            drain(scene, node)
        await scene.after(90)

    scene.play(script)
    assert sorted(scene.deleted) == ([] if are_orphans else ["web-0", "web-1"])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_pod_that_runs_stays_also_if_the_binder_begins_again(*, is_restarted: bool) -> None:
    scene = Scene(topology(3), agents=ALONE)

    async def script(scene: Scene) -> None:
        scene.group("pg", 2)
        scene.kube.fail(REFUSED, method="POST", part="p-1/binding", times=999)
        for index in (0, 1):
            scene.pod(f"p-{index}", 8, group="pg")
        await scene.after(4)
        delete(scene, f"{PODS}/p-1", grace_s=0)
        if is_restarted:
            scene.cell.kill("binder")
            await scene.after(0.5)
            scene.cell.start("binder")
        await scene.after(60)

    scene.play(script)
    assert ("p-0" in scene.running(), "p-0" in scene.deleted) == (True, False)
