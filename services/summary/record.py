"""Content of a job's summary, from the observed pods and the previous content. Pure.

Source: docs/reference/kubernetes.md, "Fields of a job summary" and "States of a job summary".
"""

import enum
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from berth.formats.ascend.rank_table import INITIALIZING, RankedPod, Server, rank_tables, servers_of
from berth.services.summary.views import (
    APP,
    CUSTOM_ID,
    CUSTOM_KEY,
    FRAMEWORK,
    PREFIX,
    GroupView,
    JobName,
    PodView,
    labels_of,
)

JobStatus = Literal["pending", "running", "complete", "failed"]
STATUSES: Final[tuple[JobStatus, ...]] = ("pending", "running", "complete", "failed")
_PYTORCH: Final = "pytorch"
_JOB_KIND: Final = "Job"
_OVER: Final = frozenset({"complete", "failed"})


class Operator(enum.StrEnum):
    """Whether the job exists."""

    ADD = "add"
    DELETE = "delete"


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """Data of a node for the rank table."""

    serial_number: str = ""


class Record(msgspec.Struct, kw_only=True):
    """The summary of a job."""

    job: JobName
    time_s: int
    """Time at which the job was first observed."""
    status: JobStatus = "pending"
    operator: Operator = Operator.ADD
    delete_s: int = 0
    """Time at which it finished or was deleted; 0 before."""
    framework: str = ""
    sid: str = ""
    resource: str = ""
    tables: list[str] = msgspec.field(default_factory=lambda: [INITIALIZING])
    shared: str = ""
    master: str = ""


class Chunk(msgspec.Struct, frozen=True):
    """A ConfigMap of a summary."""

    namespace: str
    name: str
    labels: dict[str, str]
    data: dict[str, str]


class Observed(msgspec.Struct, frozen=True):
    """Observed state of a job. Pods are sorted by name."""

    pods: Sequence[PodView]
    group: GroupView | None

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        return not self.pods and self.group is None


def advance(record: Record, observed: Observed, nodes: dict[str, NodeView], now_s: int) -> None:
    """Update a record from the observed state."""
    if observed.is_gone:
        if record.operator != Operator.DELETE:
            record.operator = Operator.DELETE
            record.delete_s = now_s
            if record.status != "complete":
                record.status = "failed"
        return
    record.operator = Operator.ADD
    _learn(record, observed)
    pods = _counting(observed.pods)
    servers = _servers(pods, observed, nodes)
    before = record.status
    record.status = _status(before, pods, observed, runs=servers is not None)
    if record.status == "running" and servers is not None:
        record.tables = rank_tables(servers)
        record.shared = _shared(pods)
        record.master = _master(record.job, pods, servers)
    if record.status not in _OVER:
        record.delete_s = 0
    elif record.status != before or not record.delete_s:
        record.delete_s = now_s


def _learn(record: Record, observed: Observed) -> None:
    own = observed.group.labels if observed.group is not None else {}
    first = observed.pods[0].labels if observed.pods else {}
    record.framework = own.get(FRAMEWORK) or first.get(APP) or ("" if observed.pods else record.framework)
    record.sid = _custom_id(own) or _custom_id(first) or record.sid or record.job.uid
    by_group = observed.group.resource if observed.group is not None else ""
    record.resource = next((pod.resource for pod in observed.pods if pod.resource), by_group or record.resource)


def _custom_id(labels: dict[str, str]) -> str:
    """Name of a job set by the user: the label that ``custom-job-key`` names, otherwise ``custom-job-id``."""
    return labels.get(labels.get(CUSTOM_KEY, ""), "") or labels.get(CUSTOM_ID, "")


def _counting(pods: Sequence[PodView]) -> list[PodView]:
    """Pods without those that are being deleted while another pod has their rank already, and without spare ones.

    A backup pod has the rank of the pod beside which it was made, and counts once that leaves.
    """
    taken = {pod.rank for pod in pods if not pod.is_ending and pod.rank is not None}
    kept = [pod for pod in pods if not (pod.is_ending and pod.rank in taken)]
    names = {pod.name for pod in kept}
    return [pod for pod in kept if pod.backup_of not in names]


def _minimum(observed: Observed) -> int:
    own = observed.group.minimum if observed.group is not None else 0
    return max([own, *(pod.minimum for pod in observed.pods)])


def _status(before: JobStatus, pods: Sequence[PodView], observed: Observed, *, runs: bool) -> JobStatus:
    if any(pod.phase == "Failed" for pod in pods):
        return "failed"
    if pods and all(pod.phase == "Succeeded" for pod in pods) and len(pods) >= _minimum(observed):
        return "complete"
    if runs:
        return "running"
    if before == "running":
        return "failed"
    return before


def _servers(pods: Sequence[PodView], observed: Observed, nodes: dict[str, NodeView]) -> list[Server] | None:
    """Entries of the rank table; None until all pods of the job run."""
    if not pods or len(pods) < max(_minimum(observed), 1):
        return None
    if any(pod.phase not in {"Running", "Succeeded"} or pod.is_ending for pod in pods):
        return None
    ranked: list[RankedPod] = []
    ranks: set[int] = set()
    replicas = max(_minimum(observed), len(pods))
    for pod in pods:
        if not pod.resource:
            continue
        if pod.configuration is None or pod.rank is None or pod.rank >= replicas or pod.rank in ranks:
            return None
        ranks.add(pod.rank)
        ranked.append(_ranked(pod, pod.rank, nodes.get(pod.node, NodeView())))
    return servers_of(ranked)


def _ranked(pod: PodView, rank: int, node: NodeView) -> RankedPod:
    if pod.configuration is None:
        raise ValueError(f"pod {pod.name} has no device configuration")
    return RankedPod(
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        host_ip=pod.configuration.host_ip or pod.host_ip,
        serial_number=node.serial_number,
        rank=rank,
        configuration=pod.configuration,
        container_ids=pod.container_ids,
    )


def _shared(pods: Sequence[PodView]) -> str:
    """Distinct leaf switches that the job shares with others, as a JSON array; empty without any."""
    switches = sorted({pod.shared_switch for pod in pods if pod.shared_switch})
    return msgspec.json.encode(switches).decode() if switches else ""


def _master(job: JobName, pods: Sequence[PodView], servers: Sequence[Server]) -> str:
    if job.kind == _JOB_KIND:
        return servers[0].host_ip if servers else ""
    return next((pod.master for pod in pods if pod.master), "")


def chunks(record: Record) -> list[Chunk]:
    """ConfigMaps of a record, in order."""
    return [_chunk(record, index) for index in range(len(record.tables))]


def _chunk(record: Record, index: int) -> Chunk:
    job = record.job
    data = {
        "job_name": job.name,
        "job_id": job.uid,
        "job_status": record.status,
        "framework": record.framework,
        "operator": str(record.operator),
        "time": str(record.time_s),
        "cm_index": str(index),
        "total": str(len(record.tables)),
        "sid": record.sid or job.uid,
        "hccl.json": record.tables[index],
    }
    if record.delete_s:
        data["deleteTime"] = str(record.delete_s)
    if record.framework == _PYTORCH:
        data["sharedTorIp"] = record.shared
        data["masterAddr"] = record.master
    return Chunk(job.namespace, chunk_name(job.name, index), labels_of(record.resource), data)


def chunk_name(job: str, index: int) -> str:
    """Name of a job's ConfigMap."""
    return f"{PREFIX}{job}-{index}" if index else f"{PREFIX}{job}"
