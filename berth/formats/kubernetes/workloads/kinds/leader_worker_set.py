"""LeaderWorkerSets: groups of a leader and its workers, each of them a gang.

Source: docs/reference/kubernetes.md, "Gangs of other systems"; LeaderWorkerSet, leaderworkerset.x-k8s.io/v1.
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.pod_labels import number
from berth.formats.kubernetes.workloads.port import (
    Claim,
    GangKey,
    OwnerKey,
    OwnerObject,
    Place,
    PodReading,
    WorkloadKind,
)
from berth.formats.kubernetes.workloads.specs import or_one
from berth.formats.whole_numbers import Int32
from berth.schemas.facts import Owner

LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_GROUP_KEY: Final = "leaderworkerset.sigs.k8s.io/group-key"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
_NAME: Final = "LeaderWorkerSet"
_WORD: Final = "lws"


class LeaderWorkerTemplate(Lean, frozen=True):
    """A leader and its workers; a leader without a template of its own has that of the workers."""

    size: Int32 | None = None
    leader_template: Template | None = None
    worker_template: Template = Template()


class LeaderWorkerSetSpec(Lean, frozen=True):
    """Spec of a LeaderWorkerSet."""

    startup_policy: str = ""
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(OwnerObject, frozen=True):
    """A LeaderWorkerSet."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def _facts(owner: LeaderWorkerSet, _: str) -> OwnerFacts:
    """With start-up policy ``LeaderReady`` the workers of a group are made when its leader is ready."""
    group = owner.spec.leader_worker_template
    size = or_one(group.size)
    workers = group.worker_template
    leader = group.leader_template or workers
    is_later = owner.spec.startup_policy == "LeaderReady"
    tasks = (
        TaskFacts("leader", 1, has_chips=leader.has_chips, scheduler_name=leader.scheduler_name),
        TaskFacts(
            "worker",
            size - 1,
            has_chips=workers.has_chips,
            is_later=is_later,
            scheduler_name=workers.scheduler_name,
        ),
    )
    return OwnerFacts(min_count=size, min_name="size", tasks=tasks)


def _gang(pod: Pod) -> Claim | None:
    """The group of a pod; whether its workers wait for their leader is only in the object."""
    meta = pod.metadata
    name, group_key = meta.label(LWS_NAME), meta.label(LWS_GROUP_KEY)
    if not name or not group_key:
        return None
    size = number(meta.annotation(LWS_SIZE))
    maker = OwnerKey(_NAME, meta.namespace, name)
    key = GangKey(_WORD, meta.namespace, f"{name}-{meta.label(LWS_GROUP_INDEX, '0')}", group_key)
    return Claim(key, maker if size is None else None, Owner(_NAME, name), maker, size)


def _task(pod: Pod) -> str:
    is_leader = pod.metadata.label(LWS_NAME) and pod.metadata.label(LWS_WORKER_INDEX) == "0"
    return "leader" if is_leader else ""


def _place(pod: Pod) -> Place | None:
    rank = number(pod.metadata.label(LWS_WORKER_INDEX))
    return Place(rank=rank) if rank is not None else None


LEADER_WORKER_SET: Final = WorkloadKind(
    name=_NAME,
    word=_WORD,
    versions=("leaderworkerset.x-k8s.io/v1",),
    plural="leaderworkersets",
    struct=LeaderWorkerSet,
    facts=_facts,
    pods=PodReading(
        gang_of_labels=_gang,
        size_key=LWS_SIZE,
        task=_task,
        place=_place,
        own_labels=frozenset(
            {
                LWS_WORKER_INDEX,
                "leaderworkerset.sigs.k8s.io/subgroup-index",
                "leaderworkerset.sigs.k8s.io/subgroup-key",
            }
        ),
    ),
    key_has_uid=False,
    starts_by_parts=True,
)
