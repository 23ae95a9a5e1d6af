"""Which pods of a job are faulty and why. The first rule that applies to a pod decides.

Source: docs/reference/faults.md, "When a pod is faulty".
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.core.faults.model import JobDiagnosis, NodeView, PodFault, PodFaultKind, PodView, ToleratedPod
from berth.core.requests.fault_rules import FaultRules
from berth.schemas.facts import PodPhase
from berth.schemas.fault_facts import BACKUP_POD, FAULT_TYPE, NEED_SCHEDULER, RANK_INDEX, REPLICA_TYPE, WORKER

HEALTHY: Final = NodeView()
GONE: Final = NodeView(is_gone=True)
_OVER: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.GONE})
_SEPARATE: Final = "Separate"
_SUB_HEALTH: Final = "SubHealth"
_SOFTWARE: Final = "software"
_DELETE: Final = "delete"


def diagnose(pods: Iterable[PodView], nodes: Mapping[str, NodeView], rules: FaultRules, *, size: int) -> JobDiagnosis:
    """What is wrong with a job.

    Args:
        pods: Its bound pods.
        nodes: Nodes by name; one that is not there is gone.
        rules: What the job says about faults.
        size: Number of its pods. A job of which no pod has started, and not all are bound, is pending: a pending job
            has no faults.
    """
    known = sorted((pod for pod in pods if pod.phase not in _OVER), key=lambda pod: pod.rank)
    if len(known) < size and all(pod.phase == PodPhase.PENDING for pod in known):
        known = []
    faults: list[PodFault] = []
    tolerated: list[ToleratedPod] = []
    for pod in known:
        node = nodes.get(pod.node, GONE)
        if node is HEALTHY and not pod.marks and not pod.exit_code and pod.phase != PodPhase.FAILED:
            continue  # nothing can be wrong, as with nearly all pods
        fault = fault_of(pod, node, rules)
        if fault is not None:
            faults.append(fault)
        elif reason := _tolerated(pod, node, rules):
            tolerated.append(ToleratedPod(pod.rank, pod.node, reason))
    return JobDiagnosis(rules, tuple(faults), tuple(tolerated))


def fault_of(pod: PodView, node: NodeView, rules: FaultRules) -> PodFault | None:
    """Why a bound pod is faulty; None for a healthy one.

    Args:
        pod: The pod.
        node: Its node.
        rules: What its job says about faults.
    """
    found = _of_node(pod, node) or _of_pod(pod, rules)
    if found is not None:
        kind, chips, reason = found
        return PodFault(pod.rank, pod.node, kind, chips, reason, is_master(pod))
    return _sub_health(pod, node, rules)


def fault_of_place(name: str, chips: int, node: NodeView, rules: FaultRules) -> str:
    """Why a reserved place that no pod has taken yet cannot be used, as a part of a sentence; empty if it can.

    A sub-healthy place cannot unless the job ignores sub-health, whatever is done about pods that run.

    Args:
        name: Its node.
        chips: Its chips (mask).
        node: What is known of the node.
        rules: What the job says about faults.
    """
    if rules.strategy != "ignore":
        rules = msgspec.structs.replace(rules, strategy="graceExit")
    fault = fault_of(PodView(0, name, chips), node, rules)
    return f"on {name} {fault.reason}" if fault is not None else ""


def is_master(pod: PodView) -> bool:
    """Whether a pod has rank 0 and is no worker of the Ascend operator."""
    return pod.marks.get(RANK_INDEX, str(pod.rank)) == "0" and pod.marks.get(REPLICA_TYPE) != WORKER


def _of_node(pod: PodView, node: NodeView) -> tuple[PodFaultKind, int, str] | None:
    """Fault of its node or of its chips. Network-unhealthy chips are none."""
    if node.is_unhealthy:
        return PodFaultKind.NODE_UNHEALTHY, 0, "its node is unhealthy"
    chips = pod.chips & node.unhealthy
    if chips:
        return PodFaultKind.CARD_UNHEALTHY, chips, f"{_chips(chips)} unhealthy"
    if node.is_gone:
        return PodFaultKind.NODE_UNHEALTHY, 0, "its node is gone"
    if not node.is_ready:
        return PodFaultKind.NODE_UNHEALTHY, 0, "its node is not ready"
    return None


def _of_pod(pod: PodView, rules: FaultRules) -> tuple[PodFaultKind, int, str] | None:
    """Fault of the pod itself, apart from sub-health."""
    failure = _failure(pod)
    if failure and rules.retries:
        return PodFaultKind.POD_FAILED, 0, failure
    if pod.marks.get(FAULT_TYPE) == _SEPARATE:
        return PodFaultKind.SEPARATE, 0, f"it is labelled {FAULT_TYPE}: {_SEPARATE}"
    return None


def _sub_health(pod: PodView, node: NodeView, rules: FaultRules) -> PodFault | None:
    chips, reason = _sub_health_of(pod, node)
    if not reason or rules.strategy == "ignore":
        return None
    is_hot_switch = False
    if rules.strategy == "hotSwitch":
        if pod.marks.get(NEED_SCHEDULER) != _DELETE:
            return None
        is_hot_switch = bool(pod.marks.get(BACKUP_POD))
    return PodFault(pod.rank, pod.node, PodFaultKind.SUB_HEALTH, chips, reason, is_master(pod), is_hot_switch)


def _sub_health_of(pod: PodView, node: NodeView) -> tuple[int, str]:
    """Chips that make a pod sub-healthy, and why it is; nothing and empty if it is not."""
    chips = pod.chips & node.sub_healthy
    if node.is_sub_healthy:
        return 0, "its node is sub-healthy"
    if chips:
        return chips, f"{_chips(chips)} sub-healthy"
    if pod.marks.get(FAULT_TYPE) == _SUB_HEALTH:
        return 0, f"it is labelled {FAULT_TYPE}: {_SUB_HEALTH}"
    return 0, ""


def _failure(pod: PodView) -> str:
    """How a pod failed; empty if it did not."""
    if pod.exit_code:
        return f"a container ended with exit code {pod.exit_code}"
    return "it failed" if pod.phase == PodPhase.FAILED else ""


def _tolerated(pod: PodView, node: NodeView, rules: FaultRules) -> str:
    """Why a healthy pod is not well; empty if it is."""
    reasons: list[str] = []
    failure = _failure(pod)
    if failure:
        reasons.append(f"{failure}, and the job has no fault-retry-times above 0")
    if pod.marks.get(FAULT_TYPE) == _SOFTWARE:
        reasons.append(f"it is labelled {FAULT_TYPE}: {_SOFTWARE}, which its platform repairs")
    sub_health = _sub_health_of(pod, node)[1]
    if sub_health and rules.strategy == "ignore":
        reasons.append(f"{sub_health}, and the job ignores sub-health")
    elif sub_health:
        reasons.append(f"{sub_health}, and its hot switch has not marked it {NEED_SCHEDULER}: {_DELETE}")
    return "; ".join(reasons)


def _chips(mask: int) -> str:
    """Chips as the begin of a sentence."""
    ids = [str(chip) for chip in range(mask.bit_length()) if mask >> chip & 1]
    return f"its {'chip' if len(ids) == 1 else 'chips'} {', '.join(ids)} {'is' if len(ids) == 1 else 'are'}"
