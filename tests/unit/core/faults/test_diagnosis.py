"""Which pods are faulty and why: the rows of section "When a pod is faulty" in their order."""

from typing import Any

import pytest

from berth.core.faults.diagnosis import GONE, HEALTHY, diagnose, fault_of, is_master
from berth.core.faults.model import JobDiagnosis, NodeView, PodFaultKind, PodView, ToleratedPod
from berth.core.requests.fault_rules import FaultRules
from berth.schemas.facts import PodPhase

UNHEALTHY = NodeView(is_unhealthy=True)
NOT_READY = NodeView(is_ready=False)
RETRIED = FaultRules(retries=2)
SEPARATE = {"fault-type": "Separate"}
SUB = {"fault-type": "SubHealth"}
MARKED = {"needVolcanoOpe": "delete"}
WAYS = ("grace", "force", "external-grace", "external-force", "off", "invalid")


def a_pod(rank: int = 1, **fields: Any) -> PodView:  # noqa: ANN401  # a builder for tests
    return PodView(rank, "n", **{"chips": 0b1111, **fields})


def kind_of(pod: PodView, node: NodeView = HEALTHY, rules: FaultRules = RETRIED) -> PodFaultKind | None:
    fault = fault_of(pod, node, rules)
    return fault.kind if fault is not None else None


def seen(pods: list[PodView], nodes: dict[str, NodeView] | None = None, **rules: Any) -> JobDiagnosis:  # noqa: ANN401
    return diagnose(pods, {"n": HEALTHY} if nodes is None else nodes, FaultRules(**rules), size=len(pods))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "pod", "node"),
    [
        (PodFaultKind.NODE_UNHEALTHY, a_pod(), UNHEALTHY),
        (PodFaultKind.CARD_UNHEALTHY, a_pod(), NodeView(unhealthy=0b100)),
        (PodFaultKind.NODE_UNHEALTHY, a_pod(), GONE),
        (PodFaultKind.NODE_UNHEALTHY, a_pod(), NOT_READY),
        (PodFaultKind.POD_FAILED, a_pod(phase=PodPhase.FAILED), HEALTHY),
        (PodFaultKind.POD_FAILED, a_pod(exit_code=1), HEALTHY),
        (PodFaultKind.SEPARATE, a_pod(marks=SEPARATE), HEALTHY),
        (PodFaultKind.SUB_HEALTH, a_pod(), NodeView(sub_healthy=0b1000)),
        (PodFaultKind.SUB_HEALTH, a_pod(), NodeView(is_sub_healthy=True)),
        (PodFaultKind.SUB_HEALTH, a_pod(marks=SUB), HEALTHY),
    ],
)
def test_each_row_whatever_the_way_of_deletion_is(kind: PodFaultKind, pod: PodView, node: NodeView, way: str) -> None:
    rules = FaultRules(scheduling=way, retries=2, strategy="forceExit")  # type: ignore[arg-type]  # one of the ways
    assert kind_of(pod, node, rules) is kind


def test_the_first_row_that_applies_decides() -> None:
    rules = FaultRules(retries=1, strategy="graceExit")
    pod = a_pod(exit_code=3, marks=SEPARATE)
    node = NodeView(is_unhealthy=True, is_ready=False, unhealthy=1, sub_healthy=1, is_sub_healthy=True)
    assert kind_of(pod, node, rules) is PodFaultKind.NODE_UNHEALTHY
    node = node._replace(is_unhealthy=False)
    assert kind_of(pod, node, rules) is PodFaultKind.CARD_UNHEALTHY
    node = node._replace(unhealthy=0)
    assert kind_of(pod, node, rules) is PodFaultKind.NODE_UNHEALTHY
    node = node._replace(is_ready=True)
    assert kind_of(pod, node, rules) is PodFaultKind.POD_FAILED
    pod = pod._replace(exit_code=0)
    assert kind_of(pod, node, rules) is PodFaultKind.SEPARATE
    pod = pod._replace(marks={})
    assert kind_of(pod, node, rules) is PodFaultKind.SUB_HEALTH
    assert kind_of(pod, HEALTHY, rules) is None


def test_only_its_own_chips_count() -> None:
    node = NodeView(unhealthy=0b1_0000, sub_healthy=0b10_0000)
    assert kind_of(a_pod(), node, FaultRules(strategy="forceExit")) is None
    fault = fault_of(a_pod(chips=0b11_0110), NodeView(unhealthy=0b10_1110), RETRIED)
    assert fault is not None
    assert (fault.chips, fault.reason) == (0b10_0110, "its chips 1, 2, 5 are unhealthy")


def test_failed_pods_count_only_with_retries() -> None:
    found = seen([a_pod(0, exit_code=137), a_pod(1, phase=PodPhase.FAILED), a_pod(2)])
    assert not found.is_faulty
    assert found.tolerated == (
        ToleratedPod(0, "n", "a container ended with exit code 137, and the job has no fault-retry-times above 0"),
        ToleratedPod(1, "n", "it failed, and the job has no fault-retry-times above 0"),
    )
    assert [fault.kind for fault in seen([a_pod(exit_code=137)], retries=1).faults] == [PodFaultKind.POD_FAILED]


def test_a_pod_with_a_software_fault_is_left_to_its_platform() -> None:
    found = seen([a_pod(marks={"fault-type": "software"})])
    assert not found.is_faulty
    assert [one.reason for one in found.tolerated] == [
        "it is labelled fault-type: software, which its platform repairs"
    ]


def test_sub_health_that_is_ignored() -> None:
    found = seen([a_pod()], {"n": NodeView(sub_healthy=0b10)})
    assert not found.is_faulty
    assert [one.reason for one in found.tolerated] == ["its chip 1 is sub-healthy, and the job ignores sub-health"]


def test_hot_switch_old_pod_is_faulty_only_after_both_marks() -> None:
    sub = {"n": NodeView(sub_healthy=0b10)}
    before = seen([a_pod(marks={"backupNewPodName": "p-hot-1"})], sub, strategy="hotSwitch")
    assert not before.is_faulty
    assert "has not marked it needVolcanoOpe: delete" in before.tolerated[0].reason
    assert kind_of(a_pod(marks=MARKED), rules=FaultRules(strategy="hotSwitch")) is None  # the mark alone is no fault
    (switched,) = seen([a_pod(marks=SUB | MARKED | {"backupNewPodName": "p"})], strategy="hotSwitch").faults
    (fallen_back,) = seen([a_pod(marks=SUB | MARKED)], strategy="hotSwitch").faults
    assert (switched.kind, switched.is_hot_switch) == (PodFaultKind.SUB_HEALTH, True)
    assert (fallen_back.kind, fallen_back.is_hot_switch) == (PodFaultKind.SUB_HEALTH, False)


def test_hot_switch_failure_mark_on_rank_0_is_a_master_fault() -> None:
    assert seen([a_pod(0, marks=SUB | MARKED)], strategy="hotSwitch").has_master_fault


@pytest.mark.parametrize(
    ("rank", "marks", "master"),
    [
        (0, {}, True),
        (1, {}, False),
        (0, {"training.kubeflow.org/replica-type": "worker"}, False),
        (3, {"hccl/rankIndex": "0"}, True),
        (0, {"hccl/rankIndex": "3"}, False),
    ],
)
def test_rank_0_with_and_without_worker_label(rank: int, marks: dict[str, str], *, master: bool) -> None:
    assert is_master(a_pod(rank, marks=marks)) is master
    assert seen([a_pod(rank, marks=marks)], {"n": GONE}).has_master_fault is master


def test_a_sub_health_job_has_no_other_faults() -> None:
    nodes = {"n": NodeView(sub_healthy=0b10), "m": UNHEALTHY}
    assert seen([a_pod(0)], nodes, strategy="forceExit").is_sub_health_only
    assert not seen([a_pod(0), PodView(1, "m")], nodes, strategy="forceExit").is_sub_health_only
    assert not seen([a_pod(0)], {"n": HEALTHY}, strategy="forceExit").is_sub_health_only


def test_a_node_that_is_not_there_is_gone() -> None:
    (fault,) = seen([a_pod()], {}).faults
    assert (fault.kind, fault.reason) == (PodFaultKind.NODE_UNHEALTHY, "its node is gone")


def test_a_pending_job_has_no_faults() -> None:
    pending = a_pod(0, phase=PodPhase.PENDING)
    assert not diagnose([pending], {}, RETRIED, size=2).is_faulty
    assert diagnose([pending], {}, RETRIED, size=1).is_faulty  # all of its pods are bound
    assert diagnose([a_pod(0)], {}, RETRIED, size=2).is_faulty  # one has started


def test_pods_that_are_gone_or_succeeded_have_no_faults() -> None:
    over = [a_pod(0, phase=PodPhase.GONE, exit_code=1), a_pod(1, phase=PodPhase.SUCCEEDED), a_pod(3), a_pod(2)]
    found = seen(over, {}, retries=1)
    assert [fault.rank for fault in found.faults] == [2, 3]
    assert found.tolerated == ()


def test_second_chip_of_the_same_job_is_seen() -> None:
    first = seen([a_pod(0), PodView(1, "m", 1)], {"n": NodeView(unhealthy=1), "m": HEALTHY})
    second = seen([a_pod(0), PodView(1, "m", 1)], {"n": NodeView(unhealthy=1), "m": NodeView(unhealthy=1)})
    assert [[fault.rank for fault in found.faults] for found in (first, second)] == [[0], [0, 1]]
