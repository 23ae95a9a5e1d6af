"""Controllers of jobs that nodesim plays, on a real API server; the scheduler is played by hand."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from tests.support.bound_pods import RESOURCE, bind
from tests.support.kube_api import KubeApi
from tests.support.played_cluster import QUICK, played
from tests.support.waiting import until_true

TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a2-{index}"}
"""
CONTROLLERS = replace(QUICK, controllers=["volcano", "ascend"])
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
TEMPLATE = {
    "spec": {
        "containers": [
            {"name": "c", "image": "none", "resources": {"limits": {"cpu": "500m", "memory": "1Gi", RESOURCE: "8"}}}
        ],
        "restartPolicy": "Never",
    }
}


@pytest.fixture
async def client(kube_server: KubeServer, kube_prepared: object, tmp_path: Path) -> AsyncIterator[Client]:
    assert kube_prepared
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig"))
    async with await Client.connect(config, clock=SystemClock(), user_agent="test") as found:
        yield found


def volcano_job(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "llm", "namespace": namespace, "labels": {"team": "a"}, "annotations": {"berth/run-for": "2s"}},
        "spec": {
            "schedulerName": "berth",
            "queue": "q",
            "priorityClassName": "high",
            "tasks": [{"name": "master", "replicas": 1, "template": TEMPLATE}, {"name": "worker", "replicas": 1, "template": TEMPLATE}],
        },
    }  # fmt: skip


def ascend_job(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": {"name": "llm", "namespace": namespace, "labels": {"framework": "pytorch"}},
        "spec": {
            "schedulerName": "berth",
            "runPolicy": {"backoffLimit": 2, "schedulingPolicy": {"minAvailable": 2, "queue": "q"}},
            "replicaSpecs": {
                "Worker": {"replicas": 1, "restartPolicy": "OnFailure", "template": TEMPLATE},
                "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": TEMPLATE},
            },
        },
    }


class Cluster:
    """What a scheduler and a user do."""

    def __init__(self, api: KubeApi, client: Client, namespace: str) -> None:
        self.api = api
        self.client = client
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.groups = GROUPS.format(namespace)

    async def group(self) -> dict[str, Any]:
        async def is_there() -> bool:
            return len(await self.api.items(self.groups)) == 1

        await until_true(is_there, deadline_s=20, what="one PodGroup")
        (found,) = await self.api.items(self.groups)
        return found

    async def let_in(self) -> None:
        name = (await self.group())["metadata"]["name"]
        await self.api.patch(f"{self.groups}/{name}", {"status": {"phase": "Inqueue"}})

    async def has_pods(self, *names: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}

        async def holds() -> bool:
            found.clear()
            found.update({pod["metadata"]["name"]: pod for pod in await self.api.items(self.pods)})
            return sorted(found) == sorted(names)

        await until_true(holds, deadline_s=20, what=f"pods {names}")
        return found

    async def until_phase(self, name: str, phase: str) -> None:
        async def holds() -> bool:
            pods = {pod["metadata"]["name"]: pod for pod in await self.api.items(self.pods)}
            return name in pods and pods[name]["status"]["phase"] == phase

        await until_true(holds, deadline_s=20, what=f"{name} {phase}")


async def test_a_volcano_job_gets_pods_only_after_the_scheduler_lets_its_group_in(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    cluster = Cluster(kube_api, client, namespace)
    jobs = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
    async with played(client, TOPOLOGY, agents=CONTROLLERS):
        job = await kube_api.post(jobs, volcano_job(namespace))
        group = await cluster.group()
        assert group["metadata"]["name"] == f"llm-{job['metadata']['uid']}"
        assert group["metadata"]["labels"] == {"team": "a"}
        assert group["status"] == {}
        assert group["spec"] == {
            "minMember": 2,
            "minTaskMember": {"master": 1, "worker": 1},
            "queue": "q",
            "priorityClassName": "high",
            "minResources": {"cpu": "1000m", "memory": "2048Mi", RESOURCE: "16"},
        }
        await has_state(kube_api, f"{jobs}/llm", "Pending")
        assert await kube_api.items(cluster.pods) == []
        await cluster.let_in()
        pods = await cluster.has_pods("llm-master-0", "llm-worker-0")
        worker = pods["llm-worker-0"]
        assert worker["spec"]["schedulerName"] == "berth"
        assert worker["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
        assert worker["metadata"]["annotations"]["volcano.sh/task-spec"] == "worker"
        assert {"name": "VC_TASK_INDEX", "value": "0"} in worker["spec"]["containers"][0]["env"]
        assert worker["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        for node, name in (("a2-0", "llm-master-0"), ("a2-1", "llm-worker-0")):
            await bind(client, namespace, name, node, list(range(8)), at="100")
        await has_state(kube_api, f"{jobs}/llm", "Running")
        await has_state(kube_api, f"{jobs}/llm", "Completed")
        status = (await kube_api.get(f"{jobs}/llm"))["status"]
        assert (status["succeeded"], status["retryCount"]) == (2, 0)
        await kube_api.delete(f"{jobs}/llm")
        await cluster.has_pods()

        async def is_gone() -> bool:
            return await kube_api.items(cluster.groups) == []

        await until_true(is_gone, deadline_s=20, what="the PodGroup gone")


async def has_state(api: KubeApi, path: str, phase: str) -> None:
    async def holds() -> bool:
        return bool((await api.get(path)).get("status", {}).get("state", {}).get("phase") == phase)

    await until_true(holds, deadline_s=20, what=f"job {phase}")


async def test_an_ascend_job_gets_ranked_pods_and_failed_or_evicted_ones_come_back_with_their_rank(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    cluster = Cluster(kube_api, client, namespace)
    jobs = f"/apis/mindxdl.gitee.com/v1/namespaces/{namespace}/ascendjobs"
    async with played(client, TOPOLOGY, agents=replace(CONTROLLERS, preset_virtual_devices=False)):
        await kube_api.post(jobs, ascend_job(namespace))
        group = await cluster.group()
        assert group["spec"]["minMember"] == 2
        assert group["spec"]["minTaskMember"] == {"master": 1, "worker": 1}
        assert group["metadata"]["labels"] == {"framework": "pytorch"}
        assert await kube_api.items(cluster.pods) == []
        await cluster.let_in()
        pods = await cluster.has_pods("llm-master-0", "llm-worker-0")
        assert {name: pod["metadata"]["annotations"]["hccl/rankIndex"] for name, pod in pods.items()} == {
            "llm-master-0": "0",
            "llm-worker-0": "1",
        }
        labels = pods["llm-worker-0"]["metadata"]["labels"]
        assert labels["training.kubeflow.org/replica-type"] == "worker"
        assert labels["training.kubeflow.org/operator-name"]
        uid = pods["llm-worker-0"]["metadata"]["uid"]
        await bind(client, namespace, "llm-worker-0", "a2-1", [0, 1], at="100")  # two chips do not match eight

        async def is_new() -> bool:
            found = {pod["metadata"]["name"]: pod for pod in await kube_api.items(cluster.pods)}
            return "llm-worker-0" in found and found["llm-worker-0"]["metadata"]["uid"] != uid

        await until_true(is_new, deadline_s=20, what="another worker")
        pods = await cluster.has_pods("llm-master-0", "llm-worker-0")
        assert pods["llm-worker-0"]["metadata"]["annotations"]["hccl/rankIndex"] == "1"
        for node, name in (("a2-0", "llm-master-0"), ("a2-1", "llm-worker-0")):
            await bind(client, namespace, name, node, list(range(8)), at="200")
            await cluster.until_phase(name, "Running")
        uid = pods["llm-worker-0"]["metadata"]["uid"]
        await kube_api.post(f"{cluster.pods}/llm-worker-0/eviction", eviction(kube_api, namespace, "llm-worker-0"))
        await until_true(is_new, deadline_s=20, what="another worker")


def eviction(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    version = "policy/v1" if api.server.minor >= 22 else "policy/v1beta1"
    return {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}


async def test_pods_of_other_workloads_get_a_group_of_their_owner(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    async with played(client, TOPOLOGY, agents=replace(QUICK, controllers=["podgroup"], scheduler_names=["volcano"])):
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "j",
                "namespace": namespace,
                "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
            },
            "spec": {
                "parallelism": 2,
                "completions": 2,
                "template": {"spec": {**TEMPLATE["spec"], "schedulerName": "volcano"}},
            },
        }
        job = await kube_api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", body)
        name = f"podgroup-{job['metadata']['uid']}"

        async def are_grouped() -> bool:
            pods = await kube_api.items(f"/api/v1/namespaces/{namespace}/pods")
            notes = [pod["metadata"].get("annotations", {}) for pod in pods]
            return [note.get("scheduling.k8s.io/group-name") for note in notes] == [name, name]

        await until_true(are_grouped, deadline_s=20, what="both pods in the group")
        group = await kube_api.get(f"{GROUPS.format(namespace)}/{name}")
        assert group["spec"]["minMember"] == 2
        assert group["metadata"]["ownerReferences"][0]["kind"] == "Job"


async def test_a_pod_of_another_operator_lives_beside_the_played_one(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    """Case b/30."""
    cluster = Cluster(kube_api, client, namespace)
    labels = {"training.kubeflow.org/job-name": "mine", "training.kubeflow.org/replica-type": "master"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine-master-0", "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "pytorch", "image": "x"}]},
    }
    before = await kube_api.post(cluster.pods, pod)
    async with played(client, TOPOLOGY, agents=CONTROLLERS):
        await kube_api.post(f"/apis/mindxdl.gitee.com/v1/namespaces/{namespace}/ascendjobs", ascend_job(namespace))
        await cluster.let_in()
        found = await cluster.has_pods("llm-master-0", "llm-worker-0", "mine-master-0")
    assert found["mine-master-0"]["metadata"] == before["metadata"]
