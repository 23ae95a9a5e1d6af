"""Situations from public reports, each by its name: what is made, and what would be right."""

from typing import Any

import pytest

from berth.formats.ascend.pod_annotations import ASCEND_REAL
from berth.runtime.kube.port import RefusedError
from tests.sim.kube import finished
from tests.sim.scene import ALONE, CHIPS, PODS, Scene, a_volcano_job, owned_by, topology

SLOW: dict[str, Any] = {"controllers": [], "admit_s": 300.0}
"""Kubelet takes its time, so that no device plug-in names the chips of a pod."""
DAEMON_SETS = "/apis/apps/v1/namespaces/ns/daemonsets"
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"


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


def test_01_a_bound_pod_counts_for_the_chips_of_all_its_containers() -> None:
    scene = Scene(topology(1), agents=SLOW)

    async def script(scene: Scene) -> None:
        boxes = [{"name": name, "resources": {"limits": {CHIPS: count}}} for name, count in (("a", "4"), ("b", "2"))]
        scene.pod("alien", 0, node="n0", spec={"containers": boxes})
        await scene.after(15)
        for chips in (4, 2):
            scene.pod(f"mine-{chips}", chips)
            await scene.after(5)

    scene.play(script)
    assert (scene.node_of("mine-4"), scene.node_of("mine-2")) == ("", "n0")


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


@pytest.mark.parametrize("times", [1, 2])
def test_02_the_place_of_a_deleted_pod_is_kept_until_its_controller_makes_it_again(times: int) -> None:
    scene = Scene(topology(2), agents={"controllers": ["volcano"]})

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


@pytest.mark.parametrize("why", [{"reason": "Evicted"}, {}], ids=["evicted by its kubelet", "crashed"])
def test_02_the_place_of_a_failed_pod_is_kept_until_its_controller_makes_it_again(why: dict[str, str]) -> None:
    scene = Scene(topology(2), agents=ALONE)

    async def script(scene: Scene) -> None:
        made = scene.put(REPLICA_SETS, {"metadata": {"name": "dep"}, "spec": {"replicas": 2, "template": {}}})
        owner = owned_by(made, "ReplicaSet", "apps/v1")
        for name in ("dep-0", "dep-1"):
            scene.pod(name, 8, owner=owner)
        await scene.after(10)
        scene.pod("filler", 8)
        await scene.after(3)
        scene.patch(f"{PODS}/dep-1/status", {"status": {"phase": "Failed"} | why})
        await scene.after(0.5)
        scene.pod("dep-2", 8, owner=owner)
        await scene.after(10)
        assert scene.running() == ["dep-0", "dep-2"]
        scene.patch(f"{PODS}/dep-2/status", {"status": {"phase": "Failed"} | why})
        await scene.after(6)

    scene.play(script)
    assert scene.running() == ["dep-0", "filler"]  # nobody has made it again in time


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
