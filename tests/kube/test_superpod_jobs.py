"""Jobs with SuperPoD affinity on a real API server: annotations of blocks, pieces, services, a full restart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import ORDER, KubeCell, a_container
from tests.support.processes import services

pytestmark = pytest.mark.timeout(240)
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: superpod910a3x16, count: 24, name: "a3-{index:02}", superpod: {size: 8}}
"""
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces"
CHIPS: Final = 16
Tree = dict[str, Any]


def in_blocks(name: str, replicas: int, block: int, labels: Mapping[str, str] | None = None) -> Tree:
    """A Volcano job of whole nodes in logical SuperPoDs."""
    annotations = {
        "berth/run-for": "600s",
        "huawei.com/schedule_policy": "chip2-node16-sp",
        "sp-block": str(CHIPS * block),
    }
    spec = {
        "schedulerName": "berth",
        "restartPolicy": "Never",
        "nodeSelector": {"accelerator-type": "module-a3-16-super-pod"},
        "containers": [a_container(CHIPS)],
    }
    template = {"metadata": {"annotations": annotations, "labels": dict(labels or {})}, "spec": spec}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations, "labels": {"framework": "pytorch", **(labels or {})}},
        "spec": {
            "schedulerName": "berth",
            "minAvailable": replicas,
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
        },
    }


async def run(world: KubeCell, namespace: str, job: Tree) -> dict[str, set[str]]:
    """Run a job; SuperPoDs of each block by the annotations of its pods, which must be those of their nodes."""
    await world.api.post(f"{JOBS}/{namespace}/jobs", job)
    name, replicas = job["metadata"]["name"], job["spec"]["minAvailable"]
    selector = f"volcano.sh/job-name={name}"
    pods = await world.until_pods(namespace, {"Running": replicas}, selector=selector, deadline_s=60)
    found: dict[str, set[str]] = {}
    for pod in pods:
        meta, node = pod["metadata"]["annotations"], pod["spec"]["nodeName"]
        assert meta["super-pod-id"] == str(int(node.removeprefix("a3-")) // 8)
        found.setdefault(meta["super-pod-rank"], set()).add(meta["super-pod-id"])
    assert len({pod["spec"]["nodeName"] for pod in pods}) == replicas
    return found


@pytest.mark.processes
async def test_blocks_pieces_and_services_over_a_restart_of_everything(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        decisions = {"super_pod_size": 8, "shard_retry_ms": 100}
        settings: dict[str, Mapping[str, object]] = {
            "dispatcher": {"lease_s": 1, "snapshot_records": 20, "decisions": decisions}
        }
        world = KubeCell(
            made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TOPOLOGY, settings=settings
        )
        await world.start()
        blocks = await run(world, namespace, in_blocks("blocks", 12, 3))
        assert sorted(blocks) == ["0", "1", "2", "3"]
        assert all(len(superpods) == 1 for superpods in blocks.values())
        chat = {"inferserviceid": "chat"}
        first = await run(world, namespace, in_blocks("chat-a", 2, 2, chat))
        for name in ORDER:
            await world.services[name].kill()
        await world.start()
        assert await run(world, namespace, in_blocks("chat-b", 2, 2, chat)) == first
        soft = await run(world, namespace, in_blocks("soft", 8, 8, {"super-pod-affinity": "soft"}))
        assert len(soft) > 1  # no SuperPoD has eight nodes left
        assert await world.check_chips(namespace) == 24 * CHIPS
        await world.stop()
