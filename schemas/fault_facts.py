"""Facts that steer what is done about faults, beside those about pods: they are no part of a request and may change.

Source of the keys: docs/reference/faults.md, "Switches of jobs".
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Literal

from berth.schemas.columns import unpack
from berth.schemas.message import Message, Part
from berth.schemas.queues.facts import WaitingGroup
from berth.schemas.units import UnixMs

_RANK_BYTES: Final = 4
_TIME_BYTES: Final = 8
FAULT_SCHEDULING: Final = "fault-scheduling"
FAULT_RETRY_TIMES: Final = "fault-retry-times"
POD_RESCHEDULING: Final = "pod-rescheduling"
PROCESS_RECOVER: Final = "process-recover-enable"
SUB_HEALTH_STRATEGY: Final = "subHealthyStrategy"
ELASTIC: Final = "elastic-scheduling"
INFERENCE_SERVICE: Final = "ome.io/inferenceservice"
APP: Final = "app"
"""Only with a value that implies a limit of escalation."""
RECOVER_POLICY: Final = "huawei.com/recover_policy_path"
EXTERNAL_OWNER: Final = "ProcessRecoverStrategy"
FAULT_TYPE: Final = "fault-type"
NEED_SCHEDULER: Final = "needVolcanoOpe"
BACKUP_POD: Final = "backupNewPodName"
RANK_INDEX: Final = "hccl/rankIndex"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
WORKER: Final = "worker"
JOINED: Final = "|"
"""Stands between values of one label that differ."""


class GroupSeen(Message, frozen=True):
    """Labels and annotations of a Volcano PodGroup that steer faults, and, with queues, what it waits for.

    There is none for a PodGroup without any of this.
    """

    KIND: ClassVar[str] = "fact.group"

    namespace: str
    name: str
    uid: str = ""
    gone: bool = False
    """It is gone, or there is nothing to tell of it any more."""
    labels: dict[str, str] = {}
    """``fault-scheduling``, ``fault-retry-times``, ``pod-rescheduling``, ``process-recover-enable``,
    ``subHealthyStrategy``, ``elastic-scheduling``, and those that imply a limit of escalation; sorted by key."""
    annotations: dict[str, str] = {}
    """``huawei.com/recover_policy_path`` and ``ProcessRecoverStrategy``; sorted by key."""
    jobs: list[str] = []
    """Names of the job requests that were made for it, sorted."""
    at_ms: UnixMs = 0
    recover_ms: UnixMs = 0
    """Since when ``process-recover-enable`` has its value; 0: since ``at_ms``, or it is not set."""
    waiting: WaitingGroup | None = None
    """What it asks for; None: it needs no admission by its queue, or its pods have places."""


class FlappingChip(Part, frozen=True):
    """A chip whose faults came back: it takes no new work for a while after it is healthy again."""

    row: int
    """Its node: a row of the columns of the fact."""
    chip: int
    """Physical id."""
    faults: int
    """How often a fault of it began, since the last long time without one."""
    since_ms: UnixMs
    """When its last fault began or ended."""
    until_ms: UnixMs = 0
    """It takes no new work before; 0 while it has a fault, and if it has not come back."""


class BackupPod(Part, frozen=True):
    """A pod that was made beside the pod of a rank, to take the rank over from it (hot switch)."""

    rank: int
    """Rank in the job request."""
    pod: str
    """Its name."""
    uid: str
    is_bound: bool = False
    """It has a node; only ``fact.replacement`` says so."""


class ReplacementsSeen(Message, frozen=True):
    """Ranks of a placed job whose pod is gone and whose new, unbound pod has taken the rank; and its backup pods.

    Without any of these: there are none (tombstone).
    """

    KIND: ClassVar[str] = "fact.replacement"

    namespace: str
    job: str
    """Name of the job request."""
    uid: str
    """Uid of the job request."""
    ranks: bytes = b""
    """``<u4`` each, ascending: ranks in the job request."""
    at_ms: UnixMs = 0
    since_ms: bytes = b""
    """``<u8`` for each of them: when its new pod took the rank; empty: at ``at_ms``."""
    backups: list[BackupPod] = []
    """Backup pods that exist and have not ended, whether they are bound or not, ascending by rank; also those that have
    taken their rank."""

    def waiting_since(self) -> dict[int, UnixMs]:
        """Since when the new pod of each rank waits.

        Raises:
            ValueError: A column is damaged, or they do not have the same length.
        """
        ranks = unpack(self.ranks, _RANK_BYTES)
        return dict(zip(ranks, unpack(self.since_ms, _TIME_BYTES) or [self.at_ms] * len(ranks), strict=True))


DrainKind = Literal["node", "leaf", "superpod"]
REASON_MAX: Final = 1024
"""Most characters of the reason of a drain or an approval."""


class DrainSeen(Message, frozen=True):
    """A person's wish that a node, or all nodes of a leaf switch or of a SuperPoD, run no jobs from a moment on.

    It counts for whatever node has this name, or is at this place, also for nodes that come later.
    """

    KIND: ClassVar[str] = "fact.drain"

    kind: DrainKind
    name: str
    since_ms: UnixMs = 0
    """From when on it counts; above 0, and in the future for a drain that is planned. 0 only with ``gone``."""
    grace_ms: int = 0
    """How long its pods may take to end from then on; 0 for ``Settings.grace_over_ms``."""
    by: str = ""
    """Who asked for it."""
    reason: str = ""
    """Why; for people."""
    gone: bool = False
    """It was withdrawn."""
    at_ms: UnixMs = 0
    """When it was asked for or withdrawn."""
    force: bool = False
    """Pods leave too that have no controller which makes them anew."""


class ApprovalSeen(Message, frozen=True):
    """A person's consent that jobs restart for a cause although only one source reports it."""

    KIND: ClassVar[str] = "fact.approval"

    kind: str
    """Kind of the faults, such as ``CardUnhealthy``."""
    domain: str = ""
    """Domain of the nodes; empty for nodes that are gone."""
    until_ms: UnixMs = 0
    """It counts before this moment; above 0 unless it was withdrawn."""
    by: str = ""
    """Who consents."""
    reason: str = ""
    """Why; for people."""
    gone: bool = False
    """It was withdrawn."""
    at_ms: UnixMs = 0
    """When it was given or withdrawn."""


def joined(labels: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Label sets as one, by key, sorted. Values that differ are joined in the order of their first occurrence."""
    values: dict[str, dict[str, None]] = {}
    for one in labels:
        for key, value in one.items():
            values.setdefault(key, {}).update(dict.fromkeys(value.split(JOINED)))
    return {key: JOINED.join(values[key]) for key in sorted(values)}
