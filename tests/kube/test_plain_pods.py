"""Pods without chips as a user of a cluster sees them: masters, a scheduler task, plain pods, a reservation."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.formats.ascend.pod_annotations import JOB, PREDICATE_TIME, RANK_INDEX
from berth.runtime.bus.nats_bus import NatsBus
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, Tree, a_container, a_spec
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(180)
TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2}}
"""
TWO_NODES = TOPOLOGY.replace("count: 4", "count: 2")
LONG = {"berth/run-for": "600s"}
CPUS = 192


def template(chips: int, *, cpu: str = "1", policy: str = "Never", **labels: str) -> Tree:
    spec = a_spec(chips, policy=policy) | {"containers": [a_container(chips, cpu=cpu)]}
    if not chips:
        del spec["nodeSelector"]
    return {"metadata": {"labels": labels, "annotations": LONG}, "spec": spec}


def an_object(kind: str, version: str, name: str, spec: Tree, **metadata: object) -> Tree:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "annotations": LONG, **metadata},
        "spec": spec,
    }


def volcano_job() -> Tree:
    tasks = [
        {"name": "master", "replicas": 1, "template": template(0)},
        {"name": "worker", "replicas": 2, "template": template(8)},
    ]
    spec = {"schedulerName": "berth", "minAvailable": 3, "tasks": tasks}
    return an_object("Job", "batch.volcano.sh/v1alpha1", "vc", spec, labels={"framework": "pytorch"})


def ascend_job() -> Tree:
    specs = {"Scheduler": {"replicas": 1, "template": template(0)}, "Worker": {"replicas": 2, "template": template(8)}}
    spec = {"schedulerName": "berth", "runPolicy": {"schedulingPolicy": {"minAvailable": 3}}, "replicaSpecs": specs}
    return an_object("AscendJob", "mindxdl.gitee.com/v1", "ac", spec, labels={"framework": "mindspore"})


def deployment(name: str, replicas: int) -> Tree:
    made = template(0, policy="Always", app=name)
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": made}
    return an_object("Deployment", "apps/v1", name, spec)


def plain_pod(name: str, *, cpu: str = "1", group: str = "") -> Tree:
    made = template(0, cpu=cpu)
    annotations = LONG | ({"scheduling.k8s.io/group-name": group} if group else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": made["spec"],
    }


async def summary_of(api: KubeApi, namespace: str, job: str) -> dict[str, Any]:
    """Rank table of a job's summary, once the job is said to run."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/job-summary-{job}"
    found: dict[str, str] = {}

    async def runs() -> bool:
        nonlocal found
        found = await api.data(path)
        return found.get("job_status") == "running"

    await until_true(runs, deadline_s=30, what=f"the summary of {job} says that it runs")
    table: dict[str, Any] = json.loads(found["hccl.json"])
    return table


async def replaced(api: KubeApi, namespace: str, pod: Tree) -> Tree:
    """Delete a pod; the one that its controller makes in its place, once it runs."""
    path, found = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", pod
    await api.delete(path)

    async def runs() -> bool:
        nonlocal found
        found = await api.get(path) if await api.status_of("GET", path) == 200 else pod
        is_new = bool(found["metadata"]["uid"] != pod["metadata"]["uid"])
        return is_new and bool(found["status"]["phase"] == "Running")

    await until_true(runs, deadline_s=60, what=f"{path} runs again")
    return found


async def test_masters_and_plain_pods_run_beside_pods_with_chips(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TOPOLOGY)
        await world.start()
        of = f"namespaces/{namespace}"
        await kube_api.post(f"/apis/batch.volcano.sh/v1alpha1/{of}/jobs", volcano_job())
        await kube_api.post(f"/apis/mindxdl.gitee.com/v1/{of}/ascendjobs", ascend_job())
        await kube_api.post(f"/apis/apps/v1/{of}/deployments", deployment("web", 3))
        group = an_object("PodGroup", "scheduling.volcano.sh/v1beta1", "pair", {"minMember": 2})
        await kube_api.post(f"/apis/scheduling.volcano.sh/v1beta1/{of}/podgroups", group)
        for name in ("pair-0", "pair-1"):
            await kube_api.post(f"/api/v1/{of}/pods", plain_pod(name, group="pair"))
        await kube_api.post(f"/api/v1/{of}/pods", plain_pod("alone"))
        pods = {
            pod["metadata"]["name"]: pod for pod in await world.until_pods(namespace, {"Running": 12}, deadline_s=90)
        }
        assert await world.check_chips(namespace) == 32

        notes = {name: pod["metadata"]["annotations"] for name, pod in pods.items()}
        nodes = {name: pod["spec"]["nodeName"] for name, pod in pods.items()}
        ranks = {name: found[RANK_INDEX] for name, found in notes.items() if RANK_INDEX in found}
        assert ranks == {"vc-worker-0": "0", "vc-worker-1": "1", "ac-worker-0": "0", "ac-worker-1": "1"}
        assert all(PREDICATE_TIME not in found for name, found in notes.items() if name not in ranks)
        assert notes["vc-master-0"][JOB] == notes["vc-worker-0"][JOB] == "vcjob.vc"
        assert nodes["vc-master-0"] in {nodes["vc-worker-0"], nodes["vc-worker-1"]}
        assert nodes["ac-scheduler-0"] in {nodes["ac-worker-0"], nodes["ac-worker-1"]}
        assert notes["pair-0"][JOB] == notes["pair-1"][JOB] == "podgroup.pair"
        assert len({found[JOB] for name, found in notes.items() if name.startswith("web-")}) == 3

        for job in ("vc", "ac"):
            table = await summary_of(kube_api, namespace, job)
            servers = table["server_list"]
            assert [server["pod_name"] for server in servers] == [f"{job}-worker-0", f"{job}-worker-1"]
            assert [device["rank_id"] for server in servers for device in server["device"]] == [
                str(n) for n in range(16)
            ]
            assert table["server_count"] == "2"

        async def all_run() -> bool:
            groups = await kube_api.items(f"/apis/scheduling.volcano.sh/v1beta1/{of}/podgroups")
            return {group["status"]["phase"] for group in groups} == {"Running"}

        await until_true(all_run, deadline_s=20, what="all PodGroups to say that they run")
        master = await replaced(kube_api, namespace, pods["vc-master-0"])
        assert master["spec"]["nodeName"] in {nodes["vc-worker-0"], nodes["vc-worker-1"]}
        assert RANK_INDEX not in master["metadata"]["annotations"]
        await kube_api.delete(f"/apis/batch.volcano.sh/v1alpha1/{of}/jobs/vc")
        await world.until_pods(namespace, {"Running": 9}, deadline_s=60)
        assert await world.check_chips(namespace) == 16
        await world.stop()


async def test_a_plain_job_starts_beside_a_head_that_waits_and_leaves_it_its_cpu(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    decisions = {"queue_policy": "easy", "reserve_chips": 16}
    settings: dict[str, dict[str, object]] = {
        "dispatcher": {"decisions": decisions},
        "inventory": {"gangs": {"vanished_s": 0.5}},
        "binder": {"notice_again_s": 1},
    }
    with services(tmp_path, nats_server) as made:
        world = KubeCell(
            made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TWO_NODES, settings=settings
        )
        await world.start()
        of = f"namespaces/{namespace}"
        path = f"/api/v1/{of}/pods"
        runs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runs"}} | template(8)
        runs["metadata"] = {"name": "runs", "annotations": LONG}
        await kube_api.post(path, runs)
        await world.until_status(namespace, "pod.runs", "running")
        spec = {
            "replicas": 2,
            "serviceName": "head",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "head"}},
            "template": template(8, cpu="100", policy="Always", app="head"),
        }
        await kube_api.post(f"/apis/apps/v1/{of}/statefulsets", an_object("StatefulSet", "apps/v1", "head", spec))
        head = await world.until_status(namespace, "statefulset.head", "waiting")
        assert "room is reserved for it from" in head.sentence

        await kube_api.post(path, plain_pod("small"))
        await world.until_status(namespace, "pod.small", "running")
        await kube_api.post(path, plain_pod("large", cpu="150"))
        large = await world.until_status(namespace, "pod.large", "waiting")
        assert f"room is reserved for {namespace}/statefulset.head" in large.sentence
        assert (await world.until_status(namespace, "statefulset.head", "waiting")).sentence == head.sentence

        async def says_so() -> bool:
            conditions = (await kube_api.get(f"{path}/large"))["status"].get("conditions", [])
            return any(
                "room is reserved" in one.get("message", "") for one in conditions if one["type"] == "PodScheduled"
            )

        await until_true(says_so, deadline_s=30, what="the pod says why it waits")
        await kube_api.delete(f"/apis/apps/v1/{of}/statefulsets/head")
        await world.until_status(namespace, "pod.large", "running", deadline_s=60)
        await world.stop()


async def test_a_minimum_that_leaves_the_master_out_starts_without_it(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    """``minAvailable`` 2 of a master and two workers are the workers; with 3 they wait for the master, too."""
    with services(tmp_path, nats_server) as made:
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TWO_NODES)
        await world.start()
        jobs = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
        job = volcano_job()
        master = job["spec"]["tasks"][0]["template"]["spec"]
        master["nodeSelector"] = {"zone": "nowhere"}
        await kube_api.post(jobs, job)
        whole = await world.until_status(namespace, "vcjob.vc", "waiting")
        assert whole.sentence.startswith("2 of 3 pods find room, and 0 of 2 nodes fit"), whole.sentence
        await world.until_pods(namespace, {"Pending": 3})
        await kube_api.delete(f"{jobs}/vc")
        await world.until_pods(namespace, {})
        job["spec"]["minAvailable"] = 2
        await kube_api.post(jobs, job)
        pods = await world.until_pods(namespace, {"Running": 2, "Pending": 1}, deadline_s=60)
        ranks = {pod["metadata"]["name"]: pod["metadata"]["annotations"].get(RANK_INDEX) for pod in pods}
        assert ranks == {"vc-master-0": None, "vc-worker-0": "0", "vc-worker-1": "1"}
        assert await world.check_chips(namespace) == 16
        await world.stop()
