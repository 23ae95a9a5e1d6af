"""The recovery service of ClusterD: process recovery and hot switch, from PodGroups and pods to labels and marks."""

from collections.abc import Collection

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Pod, PodGroup, PodGroupStatus, PodStatus
from berth.lab.nodesim.agents.recovery_service import LabelGroup, MarkPod, RecoveryService

WAIT_MS = 270_000
SWITCH_MS = 60_000
T0 = 1_763_640_000_000


def service(*sick: str) -> RecoveryService:
    """Sub-healthy pods by name."""
    return RecoveryService(wait_ms=WAIT_MS, switch_ms=SWITCH_MS, is_sub_healthy=lambda pod: pod.metadata.name in sick)


def group(phase: str, recover: str = "on", strategy: str = "") -> PodGroup:
    labels = {"process-recover-enable": recover} if recover else {}
    labels |= {"subHealthyStrategy": strategy} if strategy else {}
    return PodGroup(
        metadata=Meta(name="j-u", namespace="ns", uid="g", labels=labels), status=PodGroupStatus(phase=phase)
    )


def pod(
    rank: int,
    *,
    name: str = "",
    phase: str = "Running",
    ending: bool = False,
    operator: bool = True,
    marks: dict[str, str] | None = None,
) -> Pod:
    annotations = {"scheduling.k8s.io/group-name": "j-u", "hccl/rankIndex": str(rank), **(marks or {})}
    return Pod(
        metadata=Meta(
            name=name or f"w-{rank}",
            namespace="ns",
            uid=f"uid-{name or rank}",
            labels={"training.kubeflow.org/operator-name": "ascendjob-controller"} if operator else {},
            annotations=annotations,
            deletion_timestamp="2026-01-01T00:00:00Z" if ending else None,
        ),
        status=PodStatus(phase=phase),
    )


def values(service: RecoveryService, one: PodGroup, now_ms: int) -> list[str]:
    return [effect.value for effect in service.step([one], [], now_ms) if isinstance(effect, LabelGroup)]


def marks(service: RecoveryService, pods: Collection[Pod], now_ms: int = T0) -> dict[str, tuple[object, object]]:
    found = service.step([group("Running", "", "hotSwitch")], pods, now_ms)
    return {
        effect.pod.metadata.name: (effect.annotations, effect.labels) for effect in found if isinstance(effect, MarkPod)
    }


def test_a_job_that_does_not_run_again_in_time_pauses_and_goes_on_when_it_runs() -> None:
    known = service()
    assert values(known, group("Inqueue"), T0) == []
    assert values(known, group("Inqueue"), T0 + 2 * WAIT_MS) == [], "it has never run"
    assert values(known, group("Running"), T0) == []
    assert values(known, group("Unknown"), T0 + 1) == []
    assert values(known, group("Unknown"), T0 + WAIT_MS) == []
    assert values(known, group("Unknown"), T0 + 1 + WAIT_MS) == ["pause"]
    assert values(known, group("Unknown", "pause"), T0 + 9 * WAIT_MS) == []
    assert values(known, group("Running", "pause"), T0 + 9 * WAIT_MS) == ["on"]
    assert values(known, group("Running"), T0 + 9 * WAIT_MS) == []


def test_a_job_that_runs_in_time_waits_anew_after_the_next_fault_and_others_are_left_alone() -> None:
    known = service()
    values(known, group("Running"), T0)
    values(known, group("Unknown"), T0 + 1)
    values(known, group("Running"), T0 + 2)
    values(known, group("Unknown"), T0 + 3)
    assert values(known, group("Unknown"), T0 + 1 + WAIT_MS) == []
    assert values(known, group("Unknown"), T0 + 3 + WAIT_MS) == ["pause"]
    other = service()
    values(other, group("Running", ""), T0)
    assert values(other, group("Unknown", ""), T0 + 2 * WAIT_MS) == []


def test_a_hot_switch_goes_from_mark_to_mark() -> None:
    known = service("w-1", "w-2")
    assert marks(known, [pod(0), pod(1), pod(2)]) == {
        "w-1": ({"inHotSwitchFlow": "true", "needOperatorOpe": "create"}, {})
    }, "one at a time"
    flow = {"inHotSwitchFlow": "true"}
    asked = pod(1, marks={"needOperatorOpe": "create", **flow})
    assert marks(known, [pod(0), asked, pod(2)]) == {}
    old = pod(1, marks={"backupNewPodName": "w-1-hot-1234", **flow})
    backup = {"podType": "backup", "backupSourcePodName": "w-1", **flow}
    assert marks(known, [old, pod(1, name="w-1-hot-1234", phase="Pending", marks=backup), pod(2)]) == {}
    new = pod(1, name="w-1-hot-1234", marks=backup)
    assert marks(known, [old, new, pod(2)]) == {"w-1": ({"needVolcanoOpe": "delete"}, {"fault-type": "SubHealth"})}
    marked = pod(1, marks={"backupNewPodName": "w-1-hot-1234", "needVolcanoOpe": "delete", **flow})
    assert marks(known, [marked, new, pod(2)], T0 + 9 * SWITCH_MS) == {}
    assert marks(known, [new, pod(2)]) == {
        "w-1-hot-1234": ({"inHotSwitchFlow": None, "podType": None, "backupSourcePodName": None}, {})
    }
    done = pod(1, name="w-1-hot-1234")
    assert marks(known, [done, pod(2)]) == {"w-2": ({"inHotSwitchFlow": "true", "needOperatorOpe": "create"}, {})}


def test_a_backup_pod_that_comes_too_late_is_given_up_and_the_job_ignores_sub_health_then() -> None:
    known = service("w-1", "w-2")
    marks(known, [pod(1)])
    old = pod(1, marks={"backupNewPodName": "w-1-hot-1234", "inHotSwitchFlow": "true"})
    backup = {"podType": "backup", "backupSourcePodName": "w-1", "inHotSwitchFlow": "true"}
    new = pod(1, name="w-1-hot-1234", phase="Pending", marks=backup)
    assert marks(known, [old, new], T0 + SWITCH_MS - 1) == {}
    assert marks(known, [old, new], T0 + SWITCH_MS) == {
        "w-1": ({"inHotSwitchFlow": None, "needOperatorOpe": None, "backupNewPodName": None}, {}),
        "w-1-hot-1234": ({"needOperatorOpe": "delete"}, {}),
    }
    assert marks(known, [pod(1), pod(2)], T0 + 2 * SWITCH_MS) == {}


def test_rank_0_pods_of_others_and_healthy_ones_are_not_switched() -> None:
    known = service("w-0", "w-3", "w-4", "w-5")
    others = [pod(0), pod(2), pod(3, operator=False), pod(4, phase="Pending"), pod(5, ending=True)]
    assert marks(known, others) == {}
    ignoring = known.step([group("Running", "", "ignore")], [pod(3)], T0)
    assert ignoring == []
