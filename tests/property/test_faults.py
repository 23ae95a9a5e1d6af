"""The diagnosis against an oracle that is written as the specification tells it, over a table of conditions."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.core.faults.diagnosis import diagnose
from berth.core.faults.model import JobDiagnosis, NodeView, PodView
from berth.core.requests.fault_rules import FaultRules, rules_of
from berth.schemas.facts import PodPhase
from berth.schemas.fault_facts import joined

NODES = ("n0", "n1", "n2")
MASKS = st.integers(0, 15)
VIEWS = st.builds(
    NodeView,
    is_unhealthy=st.booleans(),
    is_gone=st.booleans(),
    is_ready=st.sampled_from([True, True, False]),
    unhealthy=MASKS,
    sub_healthy=MASKS,
    is_sub_healthy=st.booleans(),
)
MARKS = st.fixed_dictionaries(
    {},
    optional={
        "fault-type": st.sampled_from(["Separate", "SubHealth", "software", "other"]),
        "needVolcanoOpe": st.sampled_from(["delete", "create"]),
        "backupNewPodName": st.just("backup"),
        "hccl/rankIndex": st.sampled_from(["0", "7"]),
        "training.kubeflow.org/replica-type": st.sampled_from(["worker", "master"]),
    },
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "fault-retry-times": st.sampled_from(["0", "1", "100", "101", "x"]),
        "subHealthyStrategy": st.sampled_from(["ignore", "graceExit", "forceExit", "hotSwitch", "x"]),
        "fault-scheduling": st.sampled_from(["grace", "force", "off"]),
    },
)


@st.composite
def pods(draw: st.DrawFn) -> list[PodView]:
    ranks = draw(st.permutations(range(draw(st.integers(0, 4)))))
    return [
        PodView(
            rank,
            draw(st.sampled_from([*NODES, "gone"])),
            draw(MASKS),
            draw(st.sampled_from(PodPhase)),
            draw(st.sampled_from([0, 0, 1, 137])),
            draw(MARKS),
        )
        for rank in ranks
    ]


def oracle(pod: PodView, nodes: dict[str, NodeView], labels: dict[str, str]) -> str:
    """The fault of a pod; empty for none."""
    times = labels.get("fault-retry-times", "0")
    strategy = labels.get("subHealthyStrategy", "")
    node: Any = nodes.get(pod.node)
    own = {chip for chip in range(4) if pod.chips & 2**chip}
    bad = {chip for chip in range(4) if node and node.unhealthy & 2**chip}
    weak = {chip for chip in range(4) if node and node.sub_healthy & 2**chip}
    sub = bool(own & weak) or bool(node and node.is_sub_healthy) or pod.marks.get("fault-type") == "SubHealth"
    acts = strategy in {"graceExit", "forceExit"} or (
        strategy == "hotSwitch" and pod.marks.get("needVolcanoOpe") == "delete"
    )
    table = [
        ("NodeUnhealthy", bool(node and node.is_unhealthy)),
        ("CardUnhealthy", bool(own & bad)),
        ("NodeUnhealthy", node is None or node.is_gone or not node.is_ready),
        ("pod-failed", times in {"1", "100"} and (pod.phase == PodPhase.FAILED or pod.exit_code != 0)),
        ("RelationFaultSeparate", pod.marks.get("fault-type") == "Separate"),
        ("SubHealthFault", sub and acts),
    ]
    return next((kind for kind, holds in table if holds), "")


@given(pods(), st.tuples(VIEWS, VIEWS, VIEWS), LABELS, LABELS, st.integers(0, 2))
def test_the_diagnosis_is_that_of_the_specification(
    found: list[PodView],
    views: tuple[NodeView, ...],
    group: dict[str, str],
    of_pods: dict[str, str],
    missing: int,
) -> None:
    nodes = dict(zip(NODES, views, strict=True))
    labels = {
        key: group[key] if key in group and of_pods.get(key, group[key]) == group[key]
        else f"{group[key]}|{of_pods[key]}" if key in group else of_pods[key]
        for key in group.keys() | of_pods.keys()
    }  # fmt: skip
    rules = rules_of(joined([group, of_pods]), {})
    diagnosis = diagnose(found, nodes, rules, size=len(found) + missing)
    live = sorted(
        (pod for pod in found if pod.phase not in {PodPhase.GONE, PodPhase.SUCCEEDED}), key=lambda pod: pod.rank
    )
    has_started = any(pod.phase != PodPhase.PENDING for pod in live)
    is_looked_at = has_started or len(live) == len(found) + missing
    faults = {pod.rank: oracle(pod, nodes, labels) for pod in live if is_looked_at}
    assert {fault.rank: fault.kind.value for fault in diagnosis.faults} == {
        rank: kind for rank, kind in faults.items() if kind
    }
    _check(diagnosis, {pod.rank: pod for pod in found})


def _check(found: JobDiagnosis, by_rank: dict[int, PodView]) -> None:
    """See what holds of every diagnosis."""
    assert [fault.rank for fault in found.faults] == sorted({fault.rank for fault in found.faults})
    assert not {fault.rank for fault in found.faults} & {pod.rank for pod in found.tolerated}
    for fault in found.faults:
        pod = by_rank[fault.rank]
        rank = pod.marks.get("hccl/rankIndex", str(pod.rank))
        is_worker = pod.marks.get("training.kubeflow.org/replica-type") == "worker"
        assert fault.is_master == (rank == "0" and not is_worker)
        assert fault.chips & ~pod.chips == 0
        assert not fault.is_hot_switch or (fault.kind.value == "SubHealthFault" and found.rules.strategy == "hotSwitch")
        assert fault.reason


@given(pods(), st.tuples(VIEWS, VIEWS, VIEWS))
def test_ways_of_deletion_change_no_diagnosis(found: list[PodView], views: tuple[NodeView, ...]) -> None:
    nodes = dict(zip(NODES, views, strict=True))
    seen = [
        diagnose(found, nodes, FaultRules(scheduling=way, retries=1), size=len(found)).faults
        for way in ("off", "grace", "external-force", "invalid")
    ]
    assert all(one == seen[0] for one in seen)
