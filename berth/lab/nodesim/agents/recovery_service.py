"""The recovery service of ClusterD as schedulers see it: labels and annotations of PodGroups and pods. Pure.

Process recovery: a PodGroup with ``process-recover-enable: on`` that does not run again in time is set to ``pause``,
and to ``on`` once it runs. Hot switch: a sub-healthy pod of the Ascend operator, never that of rank 0, is replaced by a
backup pod; the marks say whose turn it is. One pod of a job is switched at a time.

Source: docs/reference/faults.md, "Hot switch" and "Process recovery".
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from berth.formats.ascend.pod_annotations import (
    BACKUP,
    BACKUP_SOURCE,
    GROUP_NAME,
    OPERATOR_NAME,
    POD_TYPE,
    RANK_INDEX,
)
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.schemas.fault_facts import BACKUP_POD, FAULT_TYPE, NEED_SCHEDULER, PROCESS_RECOVER, SUB_HEALTH_STRATEGY
from berth.schemas.units import UnixMs

IN_FLOW: Final = "inHotSwitchFlow"
NEED_OPERATOR: Final = "needOperatorOpe"
TRUE: Final = "true"
CREATE: Final = "create"
DELETE: Final = "delete"
_ON: Final = "on"
_PAUSE: Final = "pause"
_RUNNING: Final = "Running"
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """Set a label of a PodGroup."""

    group: PodGroup
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class MarkPod:
    """Set annotations and labels of a pod; None removes one."""

    pod: Pod
    annotations: dict[str, str | None]
    labels: dict[str, str | None]


RecoveryEffect: TypeAlias = LabelGroup | MarkPod


@dataclass(slots=True)
class _Recovery:
    """A PodGroup with process recovery."""

    has_run: bool = False
    stopped_ms: UnixMs | None = None


class RecoveryService:
    """The service.

    Args:
        wait_ms: How long a job may take to run again before its process recovery pauses.
        switch_ms: How long a backup pod may take to run.
        is_sub_healthy: Whether a pod is on sub-healthy chips.
    """

    def __init__(self, *, wait_ms: int, switch_ms: int, is_sub_healthy: Callable[[Pod], bool]) -> None:
        self._wait_ms = wait_ms
        self._switch_ms = switch_ms
        self._is_sub_healthy = is_sub_healthy
        self._recoveries: dict[str, _Recovery] = {}
        """By uid of the PodGroup."""
        self._switches: dict[str, UnixMs] = {}
        """Time at which the switch of a pod began, by its uid."""
        self._given_up: set[str] = set()
        """PodGroups (uid) whose switch came too late: they ignore sub-health from then on."""

    def step(self, groups: Iterable[PodGroup], pods: Iterable[Pod], now_ms: UnixMs) -> list[RecoveryEffect]:
        """What is done now.

        Args:
            groups: All PodGroups.
            pods: All pods.
            now_ms: The time.
        """
        pods_of: dict[Key, list[Pod]] = {}
        pods = list(pods)
        there = frozenset(pod.metadata.uid for pod in pods)
        self._switches = {uid: at_ms for uid, at_ms in self._switches.items() if uid in there}
        for pod in pods:
            key = (pod.metadata.namespace, pod.metadata.annotation(GROUP_NAME))
            pods_of.setdefault(key, []).append(pod)
        effects: list[RecoveryEffect] = []
        known: dict[str, _Recovery] = {}
        for group in sorted(groups, key=lambda one: (one.metadata.namespace, one.metadata.name)):
            uid = group.metadata.uid
            known[uid] = self._recoveries.get(uid, _Recovery())
            effects += self._recover(group, known[uid], now_ms)
            own = pods_of.get((group.metadata.namespace, group.metadata.name), [])
            effects += self._switch(group, sorted(own, key=lambda pod: pod.metadata.name), now_ms)
        self._recoveries = known
        return effects

    def _recover(self, group: PodGroup, recovery: _Recovery, now_ms: UnixMs) -> list[RecoveryEffect]:
        value = group.metadata.label(PROCESS_RECOVER)
        if group.status.phase == _RUNNING:
            recovery.has_run, recovery.stopped_ms = True, None
            return [LabelGroup(group, PROCESS_RECOVER, _ON)] if value == _PAUSE else []
        if value != _ON or not recovery.has_run:
            return []
        if recovery.stopped_ms is None:
            recovery.stopped_ms = now_ms
        return [LabelGroup(group, PROCESS_RECOVER, _PAUSE)] if now_ms - recovery.stopped_ms >= self._wait_ms else []

    def _switch(self, group: PodGroup, pods: list[Pod], now_ms: UnixMs) -> list[RecoveryEffect]:
        by_name = {pod.metadata.name: pod for pod in pods}
        olds = [pod for pod in pods if pod.metadata.uid in self._switches]
        if olds:
            return self._go_on(group, olds[0], by_name, now_ms)
        left = [pod for pod in pods if pod.metadata.annotation(IN_FLOW) == TRUE and _is_alone(pod, by_name)]
        if left:  # the old pod is gone: the switch is over
            return [MarkPod(pod, {IN_FLOW: None, POD_TYPE: None, BACKUP_SOURCE: None}, {}) for pod in left]
        strategies = {group.metadata.label(SUB_HEALTH_STRATEGY), *(p.metadata.label(SUB_HEALTH_STRATEGY) for p in pods)}
        if "hotSwitch" not in strategies or group.metadata.uid in self._given_up:
            return []
        for pod in pods:
            if _may_switch(pod) and self._is_sub_healthy(pod):
                self._switches[pod.metadata.uid] = now_ms
                return [MarkPod(pod, {IN_FLOW: TRUE, NEED_OPERATOR: CREATE}, {})]
        return []

    def _go_on(self, group: PodGroup, old: Pod, pods: dict[str, Pod], now_ms: UnixMs) -> list[RecoveryEffect]:
        """Next turn of a switch that has begun."""
        new = pods.get(old.metadata.annotation(BACKUP_POD))
        if old.metadata.annotation(NEED_SCHEDULER) == DELETE or old.metadata.deletion_timestamp is not None:
            return []
        if new is not None and new.status.phase == _RUNNING:
            return [MarkPod(old, {NEED_SCHEDULER: DELETE}, {FAULT_TYPE: "SubHealth"})]
        if now_ms - self._switches[old.metadata.uid] < self._switch_ms:
            return []
        del self._switches[old.metadata.uid]
        self._given_up.add(group.metadata.uid)
        effects: list[RecoveryEffect] = [MarkPod(old, {IN_FLOW: None, NEED_OPERATOR: None, BACKUP_POD: None}, {})]
        if new is not None:
            effects.append(MarkPod(new, {NEED_OPERATOR: DELETE}, {}))
        return effects


def _may_switch(pod: Pod) -> bool:
    meta = pod.metadata
    is_of_operator = bool(meta.label(OPERATOR_NAME)) and meta.annotation(RANK_INDEX) not in {"", "0"}
    is_alive = pod.status.phase == _RUNNING and meta.deletion_timestamp is None
    return is_of_operator and is_alive and meta.annotation(POD_TYPE) != BACKUP


def _is_alone(pod: Pod, pods: dict[str, Pod]) -> bool:
    """Whether the pod that a backup pod replaces is gone."""
    source = pod.metadata.annotation(BACKUP_SOURCE)
    return bool(source) and source not in pods and pod.metadata.annotation(NEED_OPERATOR) != DELETE
