"""Situations from public reports, each by its name: what is made, and what would be right."""

from typing import Any

import pytest

from berth.formats.ascend.pod_annotations import ASCEND_REAL
from berth.runtime.kube.port import RefusedError
from berth.services.inventory.gangs.settings import GangSettings
from tests.sim.kube import finished
from tests.sim.scene import CHIPS, GROUPS, NAMESPACE, PODS, Scene, a_volcano_job, owned_by, topology

ALONE: dict[str, list[str]] = {"controllers": []}
"""Agents of nodes alone: the script plays the controllers."""
SLOW: dict[str, Any] = {"controllers": [], "admit_s": 300.0}
"""Kubelet takes its time, so that no device plug-in names the chips of a pod."""
DAEMON_SETS = "/apis/apps/v1/namespaces/ns/daemonsets"
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
STATEFUL_SETS = "/apis/apps/v1/namespaces/ns/statefulsets"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"
NATIVE_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups"
RAY_CLUSTERS = "/apis/ray.io/v1/namespaces/ns/rayclusters"
LEADER_WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets"


@pytest.mark.parametrize(
    ("marks", "kind"),
    [
        ({}, ""),
        ({}, "DaemonSet"),
        ({"huawei.com/AscendReal": "Ascend910-first"}, ""),
        ({"huawei.com/AscendReal": "Ascend910-0"}, ""),
        ({"huawei.com/Ascend910": "Ascend910-8,Ascend910-9"}, ""),
    ],
    ids=["unnamed", "of a DaemonSet", "unreadable", "one named", "not of its node"],
)
def test_01_a_bound_pod_counts_though_no_annotation_names_its_chips(marks: dict[str, str], kind: str) -> None:
    scene = Scene(topology(1), agents=SLOW)

    async def script(scene: Scene) -> None:
        made = scene.put(DAEMON_SETS, {"metadata": {"name": "burn"}, "spec": {}})
        scene.pod(
            "alien", 6, node="n0", marks={"annotations": marks}, owner=owned_by(made, kind, "apps/v1") if kind else None
        )
        await scene.after(1)
        for chips in (4, 2):
            scene.pod(f"mine-{chips}", chips)
        await scene.after(25)

    scene.play(script)
    assert (scene.deleted, scene.node_of("mine-4"), scene.node_of("mine-2")) == ([], "", "n0")


def test_01_a_bound_pod_counts_before_the_device_plugin_names_its_chips() -> None:
    scene = Scene(topology(1), agents={"controllers": [], "report_s": 5.0})

    async def script(scene: Scene) -> None:
        scene.pod("alien", 8, node="n0")
        await scene.after(1)
        scene.pod("mine", 8)
        await scene.after(20)

    scene.play(script)
    assert (scene.running(), scene.node_of("mine")) == (["alien"], "")


def test_01_whole_rings_wait_two_periods_for_the_names_of_chips_that_others_have() -> None:
    scene = Scene(topology(1, "module910x8"), agents=SLOW)
    nodes: list[str] = []

    async def script(scene: Scene) -> None:
        scene.pod("alien", 2, node="n0", product="module")
        await scene.after(1)
        for chips in (1, 4):
            scene.pod(f"mine-{chips}", chips, product="module")
        await scene.after(5)
        nodes.extend(scene.node_of(f"mine-{chips}") for chips in (1, 4))
        await scene.after(8)

    scene.play(script)
    assert (nodes, scene.node_of("mine-4")) == (["n0", ""], "n0")


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
    own: dict[str, Any] = {"faults": {"enabled": True}} if faults else {}
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


def test_06_a_job_behind_others_of_its_shape_says_why_it_waits_now() -> None:
    scene = Scene(topology(2), agents=ALONE)
    before = "0 of 2 nodes fit: 1 is cordoned, 1 has fewer than 8 free chips"
    now = "0 of 2 nodes fit: 2 have fewer than 8 free chips"

    async def script(scene: Scene) -> None:
        cordoned = "/api/v1/nodes/n1"
        scene.patch(cordoned, {"spec": {"unschedulable": True}})
        await scene.after(1)
        scene.pod("holder", 8)
        await scene.after(5)
        for name in ("a", "b", "c"):
            scene.pod(name, 8)
        await scene.after(5)
        assert [scene.why(name) for name in ("a", "b", "c")] == [before] * 3
        scene.patch(cordoned, {"spec": {"unschedulable": None}})
        await scene.after(4)
        assert (scene.running(), [scene.why(name) for name in ("b", "c")]) == (["a", "holder"], [now] * 2)
        assert {name for name, said in scene.events("FailedScheduling") if said == now} == {"b", "c"}

    scene.play(script)


def test_06_the_reason_of_a_job_that_nothing_wakes_is_that_of_now() -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        for name in ("holder0", "holder1"):
            scene.pod(name, 8)
        await scene.after(4)
        for name in ("a", "b"):
            scene.pod(name, 8)
        await scene.after(4)
        scene.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        await scene.after(4)
        assert {scene.why(name) for name in ("a", "b")} == {
            "0 of 2 nodes fit: 1 is cordoned, 1 has fewer than 8 free chips"
        }

    scene.play(script)


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
    scene = Scene(topology(1), agents=ALONE, inventory={"gangs": GangSettings(scheduler_names=("berth", scheduler))})

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


@pytest.mark.parametrize("seed", range(1, 5))
def test_34_pods_that_the_device_plugin_serves_in_another_order_have_what_they_mounted(seed: int) -> None:
    """Another scheduler, whose clock is behind, binds a pod of as many chips before kubelet admits ours."""
    scene = Scene(topology(1), seed=seed, agents={"controllers": [], "admit_s": 1.0})

    async def script(scene: Scene) -> None:
        scene.pod("mine", 2)
        await scene.after(0.3)
        before = str((scene.cell.clocks["kube"].now_ms() - 5_000) * 1_000_000)
        scene.pod(
            "other", 2, node="n0", marks={"annotations": {CHIPS: "Ascend910-2,Ascend910-3", "predicate-time": before}}
        )
        await scene.after(8)
        for name in "bcd":
            scene.pod(name, 2)
        await scene.after(12)

    scene.play(script)
    assert scene.running() == ["b", "c", "mine", "other"]
    assert len({chip for name in scene.running() for chip in scene.chips_of(name).split(",")}) == 8


def test_34_a_rank_moves_to_the_chips_that_the_device_plugin_names() -> None:
    scene = Scene(topology(1), agents=ALONE)

    async def script(scene: Scene) -> None:
        scene.pod("a", 2)
        await scene.after(6)
        scene.patch(f"{PODS}/a", {"metadata": {"annotations": {ASCEND_REAL: "Ascend910-2,Ascend910-3"}}})
        await scene.after(3)
        for name in "bcd":
            scene.pod(name, 2)
        await scene.after(10)

    scene.play(script)
    assert scene.running() == ["a", "b", "c", "d"]
    assert len({chip for name in scene.running() for chip in scene.chips_of(name).split(",")}) == 8


def test_34_two_pods_that_name_one_chip_both_run_and_are_told() -> None:
    scene = Scene(topology(1), agents=ALONE)

    async def script(scene: Scene) -> None:
        for name in "ab":
            scene.pod(name, 2)
        await scene.after(6)
        scene.patch(f"{PODS}/a", {"metadata": {"annotations": {ASCEND_REAL: scene.chips_of("b")}}})
        await scene.after(3)
        scene.pod("c", 5)
        await scene.after(10)

    scene.play(script, twice=True)
    assert (scene.deleted, scene.running()) == ([], ["a", "b"])
    chips = scene.chips_of("b").replace("Ascend910-", "").replace(",", ", ")
    assert scene.events("ChipTwice") == [
        (name, f"chips {chips} of node n0 are named by pod ns/{other} too") for name, other in ("ab", "ba")
    ]


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


@pytest.mark.parametrize("faults", [{}, {"enabled": True}], ids=["faults are left", "faults are handled"])
def test_a_rank_whose_node_changed_after_others_were_bound_gets_another_place_alone(faults: dict[str, Any]) -> None:
    scene = Scene(topology(3), agents=ALONE, faults=faults)
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
