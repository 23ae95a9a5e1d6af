"""Fields of pods and PodGroups that are about faults. Pure.

Source: docs/reference/faults.md, "Switches of jobs"; docs/reference/kubernetes.md, "Pod annotations".
"""

from typing import Final

import msgspec

from berth.formats.ascend.fault_counters import group_name, job_key
from berth.formats.ascend.fault_marks import steering_annotations, steering_labels
from berth.formats.ascend.pod_annotations import ATTEMPT, GROUP_NAME, JOB, JOB_UID, RANK, RANK_INDEX, STEP
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.whole_numbers import whole_number

_RUNNING: Final = "Running"


class JobOwner(msgspec.Struct, frozen=True, gc=False):
    """Controller of the pods of a job and of their PodGroup."""

    namespace: str
    name: str
    uid: str


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """Decision that bound a pod, as its annotations say it, and where it is."""

    namespace: str
    job: str
    """Name of the job request."""
    uid: str
    attempt: int
    rank: int
    step: int
    name: str
    node: str
    index: str
    """Rank in the gang, as its annotation says."""


class PodView(msgspec.Struct, frozen=True, gc=False):
    """A pod of a job."""

    key: str
    """Job as the ConfigMaps name it: its namespace, a slash, and the name of its PodGroup."""
    owner: JobOwner
    placed: PlacedPod | None
    labels: dict[str, str]
    """Only those that steer faults."""
    is_running: bool


class GroupView(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup."""

    key: str
    owner: JobOwner
    labels: dict[str, str]
    annotations: dict[str, str]
    is_running: bool


def pod_view(pod: Pod) -> PodView | None:
    """View of a pod; None for one that belongs to no job."""
    meta = pod.metadata
    owner = meta.controller
    if owner is None:
        return None
    group = meta.annotation(GROUP_NAME) or group_name(owner.name, owner.uid)
    return PodView(
        key=job_key(meta.namespace, group),
        owner=JobOwner(meta.namespace, owner.name, owner.uid),
        placed=_placed(pod),
        labels=steering_labels(meta.labels or {}),
        is_running=pod.status.phase == _RUNNING,
    )


def group_view(group: PodGroup) -> GroupView | None:
    """View of a PodGroup; None for one without a controller."""
    meta = group.metadata
    owner = meta.controller
    if owner is None:
        return None
    return GroupView(
        key=job_key(meta.namespace, meta.name),
        owner=JobOwner(meta.namespace, owner.name, owner.uid),
        labels=steering_labels(meta.labels or {}),
        annotations=steering_annotations(meta.annotations or {}),
        is_running=group.status.phase == _RUNNING,
    )


def _placed(pod: Pod) -> PlacedPod | None:
    """Decision that bound a pod; None if Berth did not bind it."""
    meta = pod.metadata
    attempt, rank = whole_number(meta.annotation(ATTEMPT)), whole_number(meta.annotation(RANK))
    if not pod.spec.node_name or not meta.annotation(JOB_UID) or attempt is None or rank is None:
        return None
    return PlacedPod(
        namespace=meta.namespace,
        job=meta.annotation(JOB),
        uid=meta.annotation(JOB_UID),
        attempt=attempt,
        rank=rank,
        step=whole_number(meta.annotation(STEP)) or 0,
        name=meta.name,
        node=pod.spec.node_name,
        index=meta.annotation(RANK_INDEX) or str(rank),
    )
