"""Labels and annotations that steer what is done about faults, and marks of pods for faults, out of objects.

Source: docs/reference/faults.md, "Switches of jobs", "When a pod is faulty" and "Hot switch".
"""

from collections.abc import Mapping, Sequence
from typing import Final

from berth.formats.ascend.pod_annotations import BACKUP_SOURCE, POD_TYPE
from berth.schemas.fault_facts import (
    APP,
    BACKUP_POD,
    ELASTIC,
    EXTERNAL_OWNER,
    FAULT_RETRY_TIMES,
    FAULT_SCHEDULING,
    FAULT_TYPE,
    INFERENCE_SERVICE,
    NEED_SCHEDULER,
    POD_RESCHEDULING,
    PROCESS_RECOVER,
    RANK_INDEX,
    RECOVER_POLICY,
    REPLICA_TYPE,
    SUB_HEALTH_STRATEGY,
    WORKER,
)

MINDIE_APPS: Final = frozenset({"mindie-ms-controller", "mindie-ms-coordinator"})
"""Values of the label ``app`` that matter here."""
_STEERING: Final = (
    APP, ELASTIC, FAULT_RETRY_TIMES, FAULT_SCHEDULING, INFERENCE_SERVICE, POD_RESCHEDULING, PROCESS_RECOVER,
    SUB_HEALTH_STRATEGY,
)  # fmt: skip
_GROUP_ANNOTATIONS: Final = (EXTERNAL_OWNER, RECOVER_POLICY)
_MARK_ANNOTATIONS: Final = (
    BACKUP_POD, BACKUP_SOURCE, "inHotSwitchFlow", "needOperatorOpe", NEED_SCHEDULER, POD_TYPE,
)  # fmt: skip
_CHARACTERS_MAX: Final = 253
"""Longest value of an annotation that counts, which is the name of a pod: all marks of a gang are in one message."""
_NONE: Final[dict[str, str]] = {}
_MASTER_RANK: Final = "0"


def steering_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those of the labels of a pod or PodGroup that steer faults, by key, sorted; not to be changed."""
    if not labels:
        return _NONE
    return {
        key: labels[key] for key in _STEERING if key in labels and (key != APP or labels[key] in MINDIE_APPS)
    } or _NONE


def steering_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Those of the annotations of a PodGroup that steer faults, by key, sorted."""
    return _short(annotations, _GROUP_ANNOTATIONS)


def pod_marks(
    labels: Mapping[str, str], annotations: Mapping[str, str], rank: int | None
) -> tuple[tuple[str, str], ...]:
    """Marks of a pod for its faults, sorted by key.

    Args:
        labels: Its labels.
        annotations: Its annotations.
        rank: Its rank in the job request; None if it has none.
    """
    found = _short(annotations, _MARK_ANNOTATIONS)
    if FAULT_TYPE in labels:
        found[FAULT_TYPE] = labels[FAULT_TYPE]
    if rank is not None:
        index = _short(annotations, (RANK_INDEX,)).get(RANK_INDEX) or str(rank)
        if index != str(rank):
            found[RANK_INDEX] = index
        if index == _MASTER_RANK and labels.get(REPLICA_TYPE) == WORKER:
            found[REPLICA_TYPE] = WORKER
    return tuple(sorted(found.items())) if found else ()


def _short(annotations: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """Those of some annotations that are there and not too long."""
    return {key: annotations[key] for key in keys if key in annotations and len(annotations[key]) <= _CHARACTERS_MAX}
