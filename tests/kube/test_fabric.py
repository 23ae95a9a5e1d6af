"""A fabric controller reads what it needs of a job: from its start over a restart to its end."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from berth.formats.kubernetes.objects import ConfigMap
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from tests.support.fabric import Fabric
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_volcano_job
from tests.support.processes import services
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)
SHARED = {"isSharedTor": "1", "sharedTorIp": "198.51.100.1"}
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces"


@asynccontextmanager
async def reading(api: KubeApi, folder: Path) -> AsyncIterator[Fabric]:
    """A fabric controller that watches while the block runs."""
    config = KubeConfig(kubeconfig=api.server.write_kubeconfig(folder / "fabric"))
    fabric = Fabric()
    async with await Client.connect(config, clock=SystemClock()) as client, asyncio.TaskGroup() as group:
        params = {"labelSelector": "outside-job-info=true"}
        reflection = client.reflect("/api/v1/configmaps", ConfigMap, fabric, params=params)
        task = group.create_task(reflection.run())
        await reflection.synced.wait()
        try:
            yield fabric
        finally:
            task.cancel()


@pytest.mark.processes
async def test_it_programs_a_running_job_a_restarted_one_and_sees_the_deletion(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        # A pod that takes a while to start is long enough away for the summary to say so.
        own: dict[str, Mapping[str, object]] = {"summary": {"kept_s": 2}, "nodesim": {"agents": {"start_s": 2}}}
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, settings=own)
        await world.start()
        async with reading(kube_api, tmp_path) as fabric:
            job = a_volcano_job("llm", 3, 8)
            job["spec"]["tasks"][0]["template"]["metadata"]["annotations"] |= SHARED
            await world.services["binder"].stop()  # so that the job is pending until it has been seen so
            made_job = await kube_api.post(f"{JOBS}/{namespace}/jobs", job)
            uid = made_job["metadata"]["uid"]
            await until(lambda: fabric.story.get(uid) == [("add", "pending")], deadline_s=40, what="the job is pending")
            world.services["binder"].start()
            await until(lambda: len(fabric.running.get(uid, [])) == 1, deadline_s=40, what="the job runs")
            pods = await world.until_pods(namespace, {"Running": 3})
            _is_right(fabric, uid, pods)
            assert fabric.running[uid][0].shared == ["198.51.100.1"]
            assert fabric.running[uid][0].master == pods[0]["status"]["hostIP"]

            # One pod is lost and comes again: elsewhere, and now with no switch to share.
            lost = pods[1]["metadata"]
            await kube_api.patch(f"{JOBS}/{namespace}/jobs/llm", _unshared(job))
            await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/{lost['name']}")
            await until(lambda: len(fabric.running.get(uid, [])) == 2, deadline_s=40, what="the job runs again")
            again = await world.until_pods(namespace, {"Running": 3})
            _is_right(fabric, uid, again)
            assert lost["uid"] not in {pod["metadata"]["uid"] for pod in again}

            await kube_api.delete(f"{JOBS}/{namespace}/jobs/llm")
            await until(lambda: uid in fabric.gone, deadline_s=40, what="the summary is deleted")
            states = fabric.story[uid]
            assert states[0] == ("add", "pending")
            assert [state for state in states if state[1] == "running"] == [("add", "running")] * 2
            assert states[-1] == ("delete", "failed")
        await world.stop()


def _unshared(job: dict[str, Any]) -> dict[str, Any]:
    """Patch after which pods of the job share no switch."""
    tasks: list[dict[str, Any]] = json.loads(json.dumps(job["spec"]["tasks"]))
    tasks[0]["template"]["metadata"]["annotations"] |= {"isSharedTor": "0"}
    return {"spec": {"tasks": tasks}}


def _is_right(fabric: Fabric, uid: str, pods: list[dict[str, Any]]) -> None:
    """See that what is programmed last is what the pods say of themselves."""
    found = fabric.running[uid][-1]
    by_rank = sorted(pods, key=lambda pod: int(pod["metadata"]["annotations"]["hccl/rankIndex"]))
    assert [server[0] for server in found.servers] == [pod["metadata"]["name"] for pod in by_rank]
    assert [server[1] for server in found.servers] == [pod["spec"]["nodeName"] for pod in by_rank]
    assert [server[3] for server in found.servers] == [pod["status"]["hostIP"] for pod in by_rank]
    assert all(server[2] for server in found.servers), "each server has its serial number"
    key = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
    devices = [device for pod in by_rank for device in json.loads(pod["metadata"]["annotations"][key])["devices"]]
    wanted = [(rank, device["device_id"], device["device_ip"]) for rank, device in enumerate(devices)]
    assert found.devices == wanted
