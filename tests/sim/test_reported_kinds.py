"""Situations from public reports about kinds of owners and groups, each by its name."""

import pytest

from tests.sim.kube import finished
from tests.sim.scene import ALONE, GROUPS, NAMESPACE, PODS, Scene, owned_by, topology

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
STATEFUL_SETS = "/apis/apps/v1/namespaces/ns/statefulsets"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"
NATIVE_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups"
RAY_CLUSTERS = "/apis/ray.io/v1/namespaces/ns/rayclusters"
LEADER_WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets"


def test_10_a_leader_starts_at_once_and_its_workers_together_when_it_is_ready() -> None:
    scene = Scene(topology(3), agents=ALONE)
    mark = "leaderworkerset.sigs.k8s.io"

    async def script(scene: Scene) -> None:
        template = {"size": 3, "workerTemplate": {}}
        spec = {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": template}
        scene.put(LEADER_WORKER_SETS, {"metadata": {"name": "serve"}, "spec": spec})
        for index in range(3):
            labels = {f"{mark}/name": "serve", f"{mark}/group-index": "0", f"{mark}/group-key": "k0"}
            marks = {"labels": labels | {f"{mark}/worker-index": str(index)}, "annotations": {f"{mark}/size": "3"}}
            scene.pod(f"serve-{index}", 8, marks=marks)
            await scene.after(10)
            assert len(scene.running()) == (1, 1, 3)[index]

    scene.play(script)
    assert scene.deleted == []


def test_11_a_native_group_with_a_constraint_on_the_topology_is_held_and_the_field_is_named() -> None:
    scene = Scene(topology(4), agents=ALONE)

    async def script(scene: Scene) -> None:
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        constraint = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
        scene.put(NATIVE_GROUPS, {"metadata": {"name": "g"}, "spec": policy | constraint})
        for name in ("p-0", "p-1"):
            scene.pod(name, 8, spec={"schedulingGroup": {"podGroupName": "g"}})
        await scene.after(30)

    scene.play(script)
    assert scene.running() == []
    named = "PodGroup g has spec.schedulingConstraints.topology[0].key rack"
    assert all(named in scene.why(name) for name in ("p-0", "p-1"))
    assert all(named in said for _, said in scene.events("FailedScheduling"))


@pytest.mark.parametrize(("nodes", "there"), [(8, 6), (5, 5), (3, 0)])
def test_11_pods_beyond_the_minimum_of_a_native_group_start_with_it_where_they_fit(nodes: int, there: int) -> None:
    scene = Scene(topology(nodes), agents=ALONE)

    async def script(scene: Scene) -> None:
        scene.put(NATIVE_GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}})
        for index in range(6):
            scene.pod(f"p-{index}", 8, spec={"schedulingGroup": {"podGroupName": "g"}})
        await scene.after(30)

    scene.play(script)
    assert len(scene.running()) == there
    assert (list(scene.phases()) == ["native.g"]) == (there in {0, 6})


def test_12_a_podgroup_whose_pods_are_collected_one_by_one_is_completed_and_stays_it() -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        scene.group("pg", 2)
        for name, lasts in (("p-0", "5s"), ("p-1", "40s")):
            scene.pod(name, 8, group="pg", marks={"annotations": {"berth/run-for": lasts}})
        await scene.after(20)
        finished(scene.kube.delete(f"{PODS}/p-0"))
        await scene.after(10)
        assert scene.kube.object(f"{GROUPS}/pg")["status"]["phase"] == "Running"
        await scene.after(40)
        finished(scene.kube.delete(f"{PODS}/p-1"))
        await scene.after(10)

    scene.play(script)
    assert scene.kube.object(f"{GROUPS}/pg")["status"]["phase"] == "Completed"


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_16_pods_of_a_stateful_set_with_blocks_run_whether_they_come_in_turn_or_together(policy: str) -> None:
    cluster = topology(4).replace("product: module910bx8", "product: superpod910a3x16, superpod: {size: 4}")
    scene = Scene(cluster, agents=ALONE)
    select = {"nodeSelector": {"accelerator-type": "module-a3-16-super-pod"}}

    async def script(scene: Scene) -> None:
        spec = {"replicas": 2, "podManagementPolicy": policy, "template": {}}
        body = {"metadata": {"name": "s", "annotations": {"sp-block": "32"}}, "spec": spec}
        owner = owned_by(scene.put(STATEFUL_SETS, body), "StatefulSet", "apps/v1")
        for index in range(2):
            scene.pod(f"s-{index}", 16, owner=owner, spec=select)
            await scene.after(10)
            assert len(scene.running()) == (index + 1 if policy == "OrderedReady" else 2 * index)

    scene.play(script)


def test_17_of_two_ray_clusters_whose_pods_come_in_turn_one_is_whole() -> None:
    scene = Scene(topology(4), agents=ALONE)

    async def script(scene: Scene) -> None:
        owners = []
        for name in ("a", "b"):
            groups = [{"groupName": "w", "replicas": 3, "minReplicas": 0, "maxReplicas": 9, "template": {}}]
            made = scene.put(RAY_CLUSTERS, {"metadata": {"name": name}, "spec": {"workerGroupSpecs": groups}})
            owners.append(owned_by(made, "RayCluster", "ray.io/v1"))
            scene.pod(f"{name}-head", 0, owner=owners[-1], marks={"labels": {"ray.io/group": "headgroup"}})
        for index in range(3):
            for name, owner in zip("ab", owners, strict=True):
                scene.pod(f"{name}-{index}", 8, owner=owner, marks={"labels": {"ray.io/group": "w"}})
                await scene.after(0.5)
        await scene.after(30)

    scene.play(script)
    assert scene.running() in [[f"{name}-{index}" for index in (0, 1, 2)] + [f"{name}-head"] for name in "ab"]


def test_17_pods_of_a_kind_that_nobody_knows_start_one_by_one_and_one_event_says_so() -> None:
    scene = Scene(topology(4), agents=ALONE)

    async def script(scene: Scene) -> None:
        owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "t-1", "controller": True}
        for index in range(3):
            scene.pod(f"t-{index}", 8, owner=owner)
            await scene.after(1)
        await scene.after(30)

    scene.play(script)
    assert scene.running() == ["t-0", "t-1", "t-2"]
    ((name, message),) = scene.events("GangUnknown")
    assert name == "t"
    assert "huawei.com/schedule_minAvailable" in message


def test_18_of_a_volcano_group_with_a_hard_network_topology_an_event_says_that_it_is_not_held() -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        scene.group("g", 2, spec={"networkTopology": {"mode": "hard", "highestTierAllowed": 1}})
        for name in ("p-0", "p-1"):
            scene.pod(name, 8, group="g")
        await scene.after(30)

    scene.play(script)
    assert scene.running() == ["p-0", "p-1"]
    assert [name for name, said in scene.events("ConstraintIgnored") if "spec.networkTopology.mode" in said] == ["g"]


@pytest.mark.parametrize(("scheduler", "made"), [("volcano", ["default", "root"]), ("berth", [])])
def test_in_place_of_the_scheduler_of_volcano_the_queues_are_made_that_its_controllers_need(
    scheduler: str, made: list[str]
) -> None:
    scene = Scene(topology(1), agents=ALONE, gangs={"scheduler_names": ("berth", scheduler)})

    async def script(scene: Scene) -> None:
        scene.put(QUEUES, {"metadata": {"name": "gold"}, "spec": {"weight": 1}})
        await scene.after(60)
        for queue in made:
            finished(scene.kube.delete(f"{QUEUES}/{queue}"))
        await scene.after(10)

    scene.play(script)
    assert sorted(queue["metadata"]["name"] for queue in scene.kube.objects(QUEUES)) == sorted([*made, "gold"])


def test_a_replica_set_that_is_scaled_down_and_removed_gets_no_warning() -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        body = {"metadata": {"name": "web"}, "spec": {"replicas": 3, "template": {}}}
        owner = owned_by(scene.put(REPLICA_SETS, body), "ReplicaSet", "apps/v1")
        for index in range(3):
            scene.pod(f"web-{index}", 2, owner=owner)
        await scene.after(10)
        assert len(scene.running()) == 3
        for index, replicas in ((2, 2), (1, 0), (0, 0)):
            scene.patch(f"{REPLICA_SETS}/web", {"spec": {"replicas": replicas}})
            if index != 1:  # a container that ends by SIGTERM has failed
                scene.patch(f"{PODS}/web-{index}/status", {"status": {"phase": "Failed"}})
                await scene.after(1)
            finished(scene.kube.delete(f"{PODS}/web-{index}"))
            await scene.after(15)

    scene.play(script)
    assert scene.running() == []
    events = scene.kube.objects(f"{NAMESPACE}/events")
    assert [one["message"] for one in events if one["type"] == "Warning"] == []
