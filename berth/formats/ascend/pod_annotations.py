"""Keys that Berth and the Ascend components write to pods and nodes, and chip names in their values.

Source: docs/reference/kubernetes.md, "Pod annotations"; docs/reference/nodes-and-chips.md, "Resource names" and
"Pod annotations of chips".
"""

from collections.abc import Iterable
from typing import Final

PREDICATE_TIME: Final = "predicate-time"
"""Nanoseconds since 1970 of the decision; the device plug-in takes the pod with the smallest."""
CONSUMED: Final = "18446744073709551615"
"""``predicate-time`` of a pod that has its chips: the largest 64-bit number without a sign."""
DISTRIBUTED_JOB: Final = "distributed-job"
RANK_INDEX: Final = "hccl/rankIndex"
ASCEND_REAL: Final = "huawei.com/AscendReal"
KLT_DEV: Final = "huawei.com/kltDev"
CONFIGURATION_910: Final = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
CONFIGURATION_NPU: Final = "ascend.kubectl.kubernetes.io/ascend-npu-configuration"
POD_TYPE: Final = "podType"
BACKUP: Final = "backup"
"""Value of :data:`POD_TYPE` of a pod that is made beside another one for a hot switch."""
BACKUP_SOURCE: Final = "backupSourcePodName"
"""Name of that other pod."""
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
"""Name of the Volcano PodGroup of a pod."""
TOR_AFFINITY: Final = "tor-affinity"
"""Label of jobs, PodGroups and pods that request switch affinity."""
NO_AFFINITY: Final = "null"
"""Value of that label without switch affinity."""
OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
"""Label of pods that the Ascend operator created."""
BASE_DEVICE_INFOS: Final = "baseDeviceInfos"
"""Node annotation: the chips of the node, as JSON."""
SERIAL_NUMBER: Final = "product-serial-number"
"""Node annotation."""
SUPERPOD_ID: Final = "superPodID"
"""Node annotation."""
SERVER_INDEX: Final = "serverIndex"
"""Node annotation."""
RACK_ID: Final = "rackID"
"""Node annotation."""

JOB: Final = "berth/job"
"""Name of the job request by which Berth bound the pod."""
JOB_UID: Final = "berth/uid"
ATTEMPT: Final = "berth/attempt"
"""Attempt, decimal, from 1."""
RANK: Final = "berth/rank"
"""Rank in the job request, decimal, from 0."""
STEP: Final = "berth/step"
"""Newest step of a recovery of the attempt when the pod was bound, decimal; absent while there was none."""
LEDGER: Final = "berth/ledger"
"""``<stream>/<epoch>/<sequence>``: when the server made the ledger's stream, and the record by which the pod was bound,
with its epoch, decimal."""
MARKS: Final = (JOB, JOB_UID, ATTEMPT, RANK, STEP, LEDGER)
"""The marks of a pod: annotations by which Berth knows what it bound."""
MAC: Final = "berth/mac"
"""Code over the uid of the pod and :data:`MARKS` in this order, in hex: where a cell has a key, they count with it
alone."""
IN_PLACE: Final = "reschedule-in-place"
"""``true`` on a pod that has the name and the node of the pod that it replaces, while others of its job run on."""
POD_STATUS: Final = "huawei.com/pod-status"
"""``Unhealthy-`` and the kind of its fault on a pod that another component replaces."""

RESOURCE_PREFIX: Final = "huawei.com/"
SHARE_LABEL: Final = "huawei.com/scheduler.softShareDev."
"""Prefix of the labels that request a part of a chip."""


def chip_names(resource: str, chips: Iterable[int]) -> str:
    """Comma-separated names of chips in the given order: ``Ascend910-0,Ascend910-1``."""
    kind = resource.removeprefix(RESOURCE_PREFIX)
    return ",".join(f"{kind}-{chip}" for chip in chips)


def configuration_key(resource: str) -> str:
    """Annotation with the device configuration of a pod with chips of ``resource``."""
    return CONFIGURATION_NPU if resource == "huawei.com/npu" else CONFIGURATION_910
