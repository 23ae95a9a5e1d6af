"""Names in a recording: a rule for each text of each message, and for the labels that Berth reads.

Structs are identified by the names of their classes, so that the folded ledger of snapshots has its rules here too.

Longer than 400 lines because all messages have their rules in one table.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import inspect

from berth.schemas.queues.queue import DEFAULT, ROOT

LINKED: Final = ("leaf-", "superpod-")
"""Beginnings of the names of domains whose nodes are linked, as ``berth.core.cluster.domains`` has them."""

_SWITCHES: Final = "switches"


class Kind(StrEnum):
    """Kind of a text. Texts of one kind are replaced together and keep their order; the value is their prefix."""

    KEEP = ""
    """Not a name: a term of Berth, a product, a resource, a number."""
    NAMESPACE = "ns"
    JOB = "job"
    """A job, or the gang of another scheduler."""
    UID = "uid"
    TASK = "task"
    POD = "pod"
    NODE = "node"
    ADDRESS = "address"
    DOMAIN = "domain"
    LEAF = "leaf"
    """A leaf switch, by name or address."""
    GROUP = "group"
    """A SuperPoD, or a group of a level."""
    RACK = "rack"
    QUEUE = "queue"
    SERVICE = "service"
    HOLDER = "holder"
    IDENTITY = "identity"
    """A program that submitted a job."""
    CLAIM = "claim"
    VOLUME = "volume"
    """A volume, by name or handle."""
    CLASS = "class"
    """A class of storage."""
    SOURCE = "source"
    REASON = "reason"
    """A whole sentence."""
    VALUE = "value"
    """Value of a label or annotation that Berth does not read."""


class Special(StrEnum):
    """Texts with a rule of their own."""

    TABLE = "table of node names"
    PATH = "namespace/name"
    LABELS = "labels"
    BY_KEY = "value of a label, by the field key"
    UIDS = "numbers by uid"
    PAIRS = "nodes with numbers"
    DRAINED = "what is drained, by the field kind"
    PODS = "pods by namespace and labels"
    WORD = "a word of Berth's own, or a sentence"
    CAUSE = "cause of a recovery: a sentence with the name of a node"
    REFUSED = "value of what was refused, by the field field"
    GROUP_NAMES = "names of groups, by the field topology"
    GROUP_LABEL = "value of the label of a topology, by the field topology"
    KEYS = "namespaces, and keys of queues, that wake gangs"


Rule = Kind | Special
_OF_JOB: Final[dict[str, Rule]] = {"namespace": Kind.NAMESPACE, "name": Kind.JOB, "uid": Kind.UID}
_OF_GANG: Final[dict[str, Rule]] = {"namespace": Kind.NAMESPACE, "gang": Kind.JOB, "uid": Kind.UID}

RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "NodeClass": {"product": Kind.KEEP, "resource": Kind.KEEP, "labels": Special.LABELS},
    "NodesSeen": {
        "domain": Kind.DOMAIN,
        "names": Special.TABLE,
        "superpods": Kind.GROUP,
        "leaves": Kind.LEAF,
        "addresses": Kind.ADDRESS,
        "racks": Kind.RACK,
        "moving": Kind.NODE,
    },
    "HealthSeen": {
        "domain": Kind.DOMAIN,
        "names": Special.TABLE,
        "source": Kind.SOURCE,
        "reasons": Kind.REASON,
    },
    "Leaf": {"name": Kind.LEAF, "address": Kind.LEAF, "nodes": Kind.NODE, "addresses": Kind.ADDRESS},
    "TopologySeen": {"kind": Kind.KEEP, "level": Kind.KEEP, "reason": Kind.REASON},
    "PodsSeen": _OF_GANG
    | {
        "nodes": Special.TABLE,
        "resource": Kind.KEEP,
        "tor_affinity": Kind.KEEP,
        "service": Kind.SERVICE,
        "steering": Special.LABELS,
        "job": Kind.JOB,
        "job_uid": Kind.UID,
        "owner": Kind.UID,
        "queue": Kind.QUEUE,
        "budgets": Special.PATH,
    },
    "PodMarks": {"values": Special.LABELS},
    "GroupSeen": {
        "namespace": Kind.NAMESPACE,
        "name": Kind.POD,
        "uid": Kind.UID,
        "labels": Special.LABELS,
        "annotations": Special.LABELS,
        "jobs": Kind.JOB,
    },
    "WaitingGroup": {"queue": Kind.QUEUE, "job": Kind.JOB, "minimum": Kind.KEEP},
    "ReplacementsSeen": {"namespace": Kind.NAMESPACE, "job": Kind.JOB, "uid": Kind.UID},
    "BackupPod": {"pod": Kind.POD, "uid": Kind.UID},
    "FlappingChip": {},
    "DrainSeen": {"kind": Kind.KEEP, "name": Special.DRAINED, "by": Kind.HOLDER, "reason": Kind.REASON},
    "ApprovalSeen": {"kind": Kind.KEEP, "domain": Kind.DOMAIN, "by": Kind.HOLDER, "reason": Kind.REASON},
    "QueueSeen": {"source": Kind.KEEP, "by": Kind.HOLDER},
    "Queue": {
        "name": Kind.QUEUE,
        "parent": Kind.QUEUE,
        "capability": Kind.KEEP,
        "guarantee": Kind.KEEP,
        "deserved": Kind.KEEP,
        "state": Kind.KEEP,
        "namespaces": Kind.NAMESPACE,
        "per_namespace": Kind.KEEP,
        "wrong": Kind.REASON,
        "notes": Kind.REASON,
    },
    "QueueRefusal": {
        "code": Kind.KEEP,
        "queue": Kind.QUEUE,
        "reason": Kind.REASON,
        "dimension": Kind.KEEP,
        "namespace": Kind.NAMESPACE,
        "others": Kind.KEEP,
    },
    "Owner": {"kind": Kind.KEEP, "name": Kind.POD, "uid": Kind.UID},
    "MembersSeen": {
        "namespace": Kind.NAMESPACE,
        "job": Kind.JOB,
        "uid": Kind.UID,
        "pods": Kind.POD,
        "pod_uids": Kind.UID,
        "rank_index": Kind.KEEP,
        "hold": Kind.REASON,
        "podgroup": Kind.POD,
        "podgroup_uid": Kind.UID,
    },
    "Rejection": {"uid": Kind.UID},
    "Hold": {"by": Kind.HOLDER, "reason": Kind.REASON, "program": Kind.HOLDER},
    "JobSeen": _OF_JOB | {"state": Kind.KEEP, "reason": Kind.REASON, "warnings": Kind.REASON},
    "RankFailure": {"reason": Kind.REASON},
    "OutcomeSeen": _OF_JOB | {"state": Kind.KEEP},
    "TimerSeen": {},
    "LedgerSeen": {"stream": Kind.KEEP},
    "Witness": {"pod": Kind.POD, "node": Kind.NODE},
    "UsageSeen": {"domain": Kind.DOMAIN, "names": Special.TABLE, "resources": Kind.KEEP, "drivers": Kind.KEEP},
    "PodSet": {"namespace": Kind.NAMESPACE, "labels": Special.LABELS},
    "RankName": {"uid": Kind.UID},
    "ClaimName": {"namespace": Kind.NAMESPACE, "name": Kind.CLAIM},
    "NamespaceSeen": {"name": Kind.NAMESPACE, "labels": Special.LABELS},
    "ClaimSeen": {
        "namespace": Kind.NAMESPACE,
        "name": Kind.CLAIM,
        "uid": Kind.UID,
        "phase": Kind.KEEP,
        "volume": Kind.VOLUME,
        "storage_class": Kind.CLASS,
        "access": Kind.KEEP,
        "mode": Kind.KEEP,
        "selected_node": Kind.NODE,
    },
    "VolumeSeen": {
        "name": Kind.VOLUME,
        "uid": Kind.UID,
        "labels": Special.LABELS,
        "storage_class": Kind.CLASS,
        "access": Kind.KEEP,
        "mode": Kind.KEEP,
        "claim_uid": Kind.UID,
        "driver": Kind.KEEP,
        "handle": Kind.VOLUME,
    },
    "StorageSeen": {"name": Kind.CLASS, "provisioner": Kind.KEEP},
    "StorageCapacity": {},
    "UnboundSeen": {
        "namespace": Kind.NAMESPACE,
        "name": Kind.CLAIM,
        "uid": Kind.UID,
        "nodes": Kind.NODE,
        "volumes": Kind.VOLUME,
        "reason": Kind.REASON,
    },
    "ClaimVolume": {"claim": Kind.CLAIM, "uid": Kind.UID, "volume": Kind.VOLUME},
    "JobRequest": _OF_JOB
    | {
        "resource": Kind.KEEP,
        "labels": Special.LABELS,
        "annotations": Special.LABELS,
        "node_selector": Special.LABELS,
        "queue": Kind.QUEUE,
        "origin": Kind.KEEP,
        "near": Special.LABELS,
        "submitted_by": Kind.IDENTITY,
        "avoided": Kind.NODE,
    },
    "Preemption": {"ignored": Kind.REASON},
    "Task": {"name": Kind.TASK, "node_selector": Special.LABELS, "labels": Special.LABELS},
    "PodConstraints": {"resources": Kind.KEEP, "claims": Kind.CLAIM},
    "PodTerm": {"topology_key": Kind.KEEP, "namespaces": Kind.NAMESPACE},
    "SpreadTerm": {"topology_key": Kind.KEEP},
    "LabelSelector": {},
    "HostPort": {"protocol": Kind.KEEP, "address": Kind.ADDRESS},
    "PreferredNodes": {},
    "PreferredPods": {},
    "Term": {},
    "Expression": {"key": Kind.KEEP, "operator": Kind.KEEP, "values": Special.BY_KEY},
    "Toleration": {"key": Kind.KEEP, "operator": Kind.KEEP, "value": Special.BY_KEY, "effect": Kind.KEEP},
    "Taint": {"key": Kind.KEEP, "value": Special.BY_KEY, "effect": Kind.KEEP},
    "Refusal": {
        "code": Kind.KEEP,
        "field": Kind.KEEP,
        "value": Special.REFUSED,
        "expected": Special.REFUSED,
        "task": Kind.TASK,
        "form": Kind.KEEP,
        "form_because": Kind.KEEP,
        "ahead": Special.PATH,
        "rule": Kind.KEEP,
        "template": Kind.KEEP,
        "numbers": Kind.KEEP,
        "node": Kind.NODE,
    },
    "ReasonCount": {},
    "ConstraintCount": {"names": Kind.KEEP},
    "SwitchLack": {"policy": Kind.KEEP, "rule": Kind.KEEP, "leaf": Kind.LEAF},
    "NearGroup": {"name": Kind.GROUP},
    "BlockLack": {"rule": Kind.KEEP},
    "Settings": {"nslb_version": Kind.KEEP, "resource_levels": Kind.KEEP, "queue_policy": Kind.KEEP},
    "Epoch": {"holder": Kind.HOLDER},
    "StatedRule": {"name": Kind.KEEP, "parameters": Kind.KEEP},
    "Round": {},
    "Verdict": _OF_JOB | {"queue": Kind.QUEUE},
    "Correction": {"uid": Kind.UID},
    "Admission": {
        "namespace": Kind.NAMESPACE,
        "name": Kind.POD,
        "uid": Kind.UID,
        "queue": Kind.QUEUE,
        "minimum": Kind.KEEP,
    },
    "Release": {"uid": Kind.UID, "reason": Kind.KEEP},
    "Eviction": {"uid": Kind.UID, "reason": Special.WORD},
    "Adoption": _OF_GANG | {"queue": Kind.QUEUE},
    "HeldPlaces": _OF_JOB,
    "Reservation": _OF_JOB | {"queue": Kind.QUEUE},
    "Awaited": {"uid": Kind.UID},
    "Recovery": _OF_JOB
    | {
        "kind": Kind.KEEP,
        "cause": Special.CAUSE,
        "scope": Kind.KEEP,
        "how": Kind.KEEP,
        "nodes": Kind.NODE,
        "backups": Kind.UID,
        "for_job": Special.PATH,
    },
    "Placement": {"nodes": Special.TABLE, "resource": Kind.KEEP},
    "Run": {},
    "Share": {"policy": Kind.KEEP},
    "Groups": {
        "topology": Kind.KEEP,
        "policy": Kind.KEEP,
        "label": Special.GROUP_LABEL,
        "names": Special.GROUP_NAMES,
        "rules": Kind.KEEP,
        "warning": Kind.KEEP,
    },
    "Holding": _OF_JOB | {"ending": Special.WORD, "switched": Kind.UID, "queue": Kind.QUEUE},
    "Move": {
        "scope": Kind.KEEP,
        "how": Kind.KEEP,
        "backups": Kind.UID,
        "kind": Kind.KEEP,
        "cause": Special.CAUSE,
    },
    "Held": _OF_JOB | {"queue": Kind.QUEUE},
    "GangRecord": _OF_JOB | {"phase": Kind.KEEP},
    "SleeperDump": {"uid": Kind.UID, "keys": Special.KEYS},
    "WaitingDump": {
        "woken": Special.KEYS,
        "known": Kind.UID,
        "capacity_gained": Kind.NODE,
        "chips_taken": Special.PAIRS,
        "chips_returned": Kind.NODE,
    },
    "ConstraintsDump": {"freed": Kind.NODE, "taken": Kind.NODE, "moved": Special.PODS},
    "RunTime": {"namespace": Kind.NAMESPACE},
    "StemTimes": {"namespace": Kind.NAMESPACE, "name": Kind.JOB},
    "LostNode": {"name": Kind.NODE, "domain": Kind.DOMAIN},
    "LedgerDump": {"holder": Kind.HOLDER, "leaving": Special.UIDS, "admissions_leaving": Special.UIDS},
}
"""Fields with texts by struct. A missing struct or field with a text is an error of this module and ends the pass."""

SUBJECTS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "node": (Kind.DOMAIN,),
    "health": (Kind.DOMAIN,),
    "topology": (Kind.KEEP,),
    "pod": (Kind.NAMESPACE, Kind.JOB),
    "member": (Kind.NAMESPACE, Kind.JOB),
    "job": (Kind.NAMESPACE, Kind.JOB),
    "outcome": (Kind.NAMESPACE, Kind.JOB),
    "timer": (),
    "ledger": (),
    "group": (Kind.NAMESPACE, Kind.POD),
    "replacement": (Kind.NAMESPACE, Kind.JOB),
    "usage": (Kind.DOMAIN,),
    "namespace": (Kind.NAMESPACE,),
    "claim": (Kind.NAMESPACE, Kind.CLAIM),
    "volume": (Kind.VOLUME,),
    "storage": (Kind.CLASS,),
    "unbound": (Kind.NAMESPACE, Kind.CLAIM),
    "drain.node": (Kind.KEEP, Kind.NODE),
    "drain.leaf": (Kind.KEEP, Kind.LEAF),
    "drain.superpod": (Kind.KEEP, Kind.GROUP),
    "approval": (Kind.KEEP, Kind.DOMAIN),
    "queue": (Kind.QUEUE,),
}
"""Names at the end of the subject of a fact, by its kind, or by its kind and the first name."""

SERVICE_KEY: Final = "inferserviceid"
JOB_KEY: Final = "berth/beside"
"""Annotation whose value is the name of a job."""
KEPT_KEYS: Final = frozenset(
    {
        "accelerator",
        "accelerator-type",
        "berth/gang-pods",
        "distributed",
        "duo",
        "elastic-scheduling",
        "fault-retry-times",
        "fault-scheduling",
        "fault-type",
        "framework",
        "hccl/rankIndex",
        "host-arch",
        "huawei.com/affinity-config",
        "huawei.com/recover_policy_path",
        "huawei.com/schedule_minAvailable",
        "huawei.com/schedule_policy",
        "huawei.com/schedule_ubmemory",
        "huawei.com/scheduler.chip1softsharedev.enable",
        "huawei.com/scheduler.softShareDev.aicoreQuota",
        "huawei.com/scheduler.softShareDev.hbmQuota",
        "huawei.com/scheduler.softShareDev.policy",
        "huawei.com/skip-ascend-plugin",
        "huawei.com/topotree",
        "inHotSwitchFlow",
        "infer-card-type",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "mind-cluster/npu-chip-memory",
        "needOperatorOpe",
        "needVolcanoOpe",
        "npu-310-strategy",
        "pod-rescheduling",
        "podType",
        "process-recover-enable",
        "ra-block",
        "sp-block",
        "sp-fit",
        "subHealthyStrategy",
        "super-pod-affinity",
        "tor-affinity",
        "training.kubeflow.org/replica-type",
    }
)
"""Labels and annotations whose values are interpreted, not only compared."""
KEPT_TASKS: Final = frozenset({"scheduler"})
"""Task names with a meaning."""
KEPT_QUEUES: Final = (DEFAULT, ROOT)
"""Queue names with a meaning, ascending."""


def plan_of(struct: type[msgspec.Struct]) -> list[tuple[str, Rule | None]]:
    """Fields of a struct that may hold names, and their rules; no rule for a field with structs, which have their own.

    Raises:
        TypeError: The rules do not cover a text: an error of this module.
    """
    rules = RULES[struct.__name__]
    plan: list[tuple[str, Rule | None]] = []
    for field in msgspec.structs.fields(struct):
        rule = rules.get(field.name)
        kinds = list(_leaves(inspect.type_info(field.type)))
        if rule is None and any(isinstance(kind, inspect.StrType | inspect.LiteralType) for kind in kinds):
            raise TypeError(f"{struct.__name__}.{field.name} has a text without a rule")
        if rule is not Kind.KEEP and (rule is not None or any(isinstance(kind, inspect.StructType) for kind in kinds)):
            plan.append((field.name, rule))
    return plan


def _leaves(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Types inside a type, down to structs and plain values."""
    match kind:
        case inspect.UnionType():
            inner: tuple[inspect.Type, ...] = kind.types
        case inspect.ListType() | inspect.VarTupleType():
            inner = (kind.item_type,)
        case inspect.TupleType():
            inner = kind.item_types
        case inspect.DictType():
            inner = (kind.key_type, kind.value_type)
        case inspect.Metadata():
            inner = (kind.type,)
        case _:
            yield kind
            return
    for one in inner:
        yield from _leaves(one)


def group_kind(topology: str) -> Kind:
    """Kind of the names of groups of a topology."""
    return Kind.LEAF if topology == _SWITCHES else Kind.GROUP


def has_plain_label(topology: str) -> bool:
    """Whether the label of groups of a topology is a term of Berth, not the name of a service."""
    return topology == _SWITCHES
