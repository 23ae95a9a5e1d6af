"""Fields of pods, PodGroups and ConfigMaps that a summary needs, read from the lean objects. Pure.

Source: docs/reference/kubernetes.md, "Pod annotations", "Labels of jobs" and "Fields of a job summary".
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from berth.formats.ascend.pod_annotations import (
    BACKUP,
    BACKUP_SOURCE,
    POD_TYPE,
    RANK_INDEX,
    configuration_key,
)
from berth.formats.ascend.rank_table import Configuration, read_configuration
from berth.formats.kubernetes.objects import ConfigMap, Pod, PodGroup
from berth.formats.kubernetes.pod_spec import Container
from berth.formats.quantities import QuantityError, quantity
from berth.formats.whole_numbers import whole_number
from berth.products.model import ANNOTATION_POLICY, IS_SHARED, MIN_AVAILABLE, SHARED_IP
from berth.products.resources import is_npu

LABEL: Final = "outside-job-info"
"""Label of every summary; the fabric controller selects by it."""
RING: Final = ("ring-controller.atlas", "ascend-910")
"""Second label, except for jobs of the resource ``huawei.com/npu``."""
PREFIX: Final = "job-summary-"
SOFT_SHARE: Final = "chip1-softShareDev"
CUSTOM_KEY: Final = "custom-job-key"
CUSTOM_ID: Final = "custom-job-id"
FRAMEWORK: Final = "framework"
APP: Final = "app"
_MASTER: Final = "MASTER_ADDR"
_NPU: Final = "huawei.com/npu"
_SHARED: Final = "1"
_COUNT_MAX: Final = 1_000_000


class JobName(msgspec.Struct, frozen=True, gc=False):
    """Job of a summary: the controller of the pods and of their PodGroup."""

    namespace: str
    kind: str
    name: str
    uid: str


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields of a pod that summaries need."""

    job: JobName
    name: str
    uid: str
    phase: str
    is_ending: bool
    node: str
    host_ip: str
    resource: str
    """Resource name of its chips; empty for a pod without."""
    rank: int | None
    backup_of: str
    """Name of the pod beside which it was made as a backup pod; empty for any other."""
    configuration: Configuration | None
    shared_switch: str
    """Address of the leaf switch that it shares with other jobs; empty without one."""
    master: str
    minimum: int
    labels: dict[str, str]
    """Only the labels that a summary contains."""
    is_shared: bool
    container_ids: dict[str, str]


class GroupView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields of a PodGroup that summaries need."""

    job: JobName
    name: str
    minimum: int
    resource: str
    """Resource name of the chips that its pods will request; empty when unknown."""
    labels: dict[str, str]
    is_shared: bool


def pod_view(pod: Pod) -> PodView | None:
    """View of a pod; None for one without a controller: it belongs to no job."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    owner = meta.controller
    if owner is None:
        return None
    containers = spec.containers or []
    resource = resource_of(pod)
    rank = meta.annotation(RANK_INDEX)
    return PodView(
        job=JobName(meta.namespace, owner.kind, owner.name, owner.uid),
        name=meta.name,
        uid=meta.uid,
        phase=status.phase,
        is_ending=bool(meta.deletion_timestamp),
        node=spec.node_name,
        host_ip=status.host_ip,
        resource=resource,
        rank=_number(rank),
        backup_of=meta.annotation(BACKUP_SOURCE) if meta.annotation(POD_TYPE) == BACKUP else "",
        configuration=read_configuration(meta.annotation(configuration_key(resource))) if resource else None,
        shared_switch=meta.annotation(SHARED_IP) if meta.annotation(IS_SHARED) == _SHARED else "",
        master=next(
            (item.value for container in containers for item in container.env or () if item.name == _MASTER), ""
        ),
        minimum=_number(meta.annotation(MIN_AVAILABLE)) or 0,
        labels=_summary_labels(meta.labels),
        is_shared=meta.annotation(ANNOTATION_POLICY) == SOFT_SHARE,
        container_ids={item.name: item.container_id for item in status.container_statuses or () if item.container_id},
    )


def group_view(group: PodGroup) -> GroupView | None:
    """View of a PodGroup; None for one without a controller."""
    meta = group.metadata
    owner = meta.controller
    if owner is None:
        return None
    return GroupView(
        job=JobName(meta.namespace, owner.kind, owner.name, owner.uid),
        name=meta.name,
        minimum=max(group.spec.min_member or 0, _number(meta.annotation(MIN_AVAILABLE)) or 0),
        resource=_first_resource(group.spec.min_resources),
        labels=_summary_labels(meta.labels),
        is_shared=meta.annotation(ANNOTATION_POLICY) == SOFT_SHARE,
    )


def labels_of(resource: str) -> dict[str, str]:
    """Labels of a job's summary."""
    labels = {LABEL: "true"}
    if resource != _NPU:
        labels[RING[0]] = RING[1]
    return labels


def is_summary(found: ConfigMap) -> bool:
    """Whether a ConfigMap with the label is a summary, and not another object with that label."""
    return found.metadata.name.startswith(PREFIX) and bool((found.data or {}).get("job_id"))


def _summary_labels(labels: dict[str, str] | None) -> dict[str, str]:
    """Labels that a summary may contain: the framework, and the name of the job set by the user."""
    if not labels:
        return {}
    key = labels.get(CUSTOM_KEY, "")
    names = (FRAMEWORK, APP, CUSTOM_KEY, CUSTOM_ID, key)
    return {name: labels[name] for name in names if name in labels}


def resource_of(pod: Pod) -> str:
    """Resource name of a pod's chips; empty for a pod without."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return next(filter(None, map(_resource, containers)), "")


def _resource(container: Container) -> str:
    return _first_resource(container.resources.requests if container.resources is not None else None)


def _first_resource(asked: Mapping[str, str | int | float] | None) -> str:
    """First resource of chips by name, of those of which there is any."""
    names = (name for name, amount in sorted((asked or {}).items()) if is_npu(name) and _any(amount))
    return next(names, "")


def _any(amount: str | float) -> bool:
    try:
        return quantity(amount) > 0
    except QuantityError:
        return True  # the API server does not take it


def _number(text: str) -> int | None:
    """A whole number of at least 0 from an annotation; None for any other text."""
    return whole_number(text, most=_COUNT_MAX)
