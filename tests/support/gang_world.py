"""Pods, groups and owners for tests of gangs, and a cell that answers the gang resolver as the other services would."""

from collections.abc import Sequence
from typing import Any

import msgspec

from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds, owner_facts
from berth.schemas.columns import unpack
from berth.schemas.facts import JobSeen, JobState, MembersSeen, OutcomeSeen, OutcomeState, RankFailure
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.refusal import Code, Refusal
from berth.schemas.status import JobStatus, Phase
from berth.services.inventory.effects import (
    Effect,
    PatchNativeGroup,
    PatchPodGroup,
    PublishCancel,
    PublishMembers,
    PublishReplacements,
    PublishRequest,
    ReadOwner,
)
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.gangs.settings import GangSettings

CHIPS = "huawei.com/Ascend910"
CREATED = "2026-11-20T10:00:00Z"


def a_pod(  # noqa: PLR0913 - each is something that a gang looks at
    name: str,
    *,
    uid: str = "",
    group: str = "",
    chips: int = 8,
    scheduler: str = "berth",
    phase: str = "Pending",
    node: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: tuple[str, str, str, str] | None = None,
    deleting: bool = False,
    env: dict[str, str] | None = None,
    priority: int | None = None,
    priority_class: str = "",
    gates: Sequence[str] = (),
    spec: dict[str, Any] | None = None,
    resource: str = CHIPS,
) -> Pod:
    """A pod; ``owner`` is API version, kind, name and uid of its controller."""
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    if chips:
        resources |= {"limits": {resource: str(chips)}}
    tree: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "labels": labels or {},
            "annotations": ({"scheduling.k8s.io/group-name": group} if group else {}) | (annotations or {}),
            "creationTimestamp": CREATED,
            "deletionTimestamp": CREATED if deleting else None,
            "ownerReferences": [
                {"apiVersion": owner[0], "kind": owner[1], "name": owner[2], "uid": owner[3], "controller": True}
            ]
            if owner is not None
            else None,
        },
        "spec": {
            "schedulerName": scheduler,
            "nodeName": node,
            "priority": priority,
            "priorityClassName": priority_class,
            "containers": [
                {
                    "name": "main",
                    "resources": resources,
                    "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
                }
            ],
            "schedulingGates": [{"name": gate} for gate in gates],
        }
        | (spec or {}),
        "status": {"phase": phase},
    }
    return msgspec.convert(tree, Pod)


def in_namespace(namespace: str, pod: Pod) -> Pod:
    """The same pod in another namespace."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))


def a_group(  # noqa: PLR0913 - each is something that a PodGroup says
    name: str,
    *,
    least: int | None = 4,
    phase: str = "Inqueue",
    version: str = "1",
    by_task: dict[str, int] | None = None,
    resources: dict[str, str] | None = None,
    owner: tuple[str, str, str, str] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    queue: str = "",
    created: str = CREATED,
    status: dict[str, Any] | None = None,
    uid: str = "",
    deleting: bool = False,
    priority_class: str = "",
    spec: dict[str, Any] | None = None,
) -> PodGroup:
    """A Volcano PodGroup."""
    tree: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            "annotations": annotations or {},
            "labels": labels or {},
            "creationTimestamp": created,
            "deletionTimestamp": CREATED if deleting else None,
            "ownerReferences": [
                {"apiVersion": owner[0], "kind": owner[1], "name": owner[2], "uid": owner[3], "controller": True}
            ]
            if owner is not None
            else None,
        },
        "spec": {
            "minMember": least,
            "minTaskMember": by_task,
            "minResources": resources,
            "queue": queue,
            "priorityClassName": priority_class,
        }
        | (spec or {}),
        "status": {"phase": phase} | (status or {}),
    }
    return msgspec.convert(tree, PodGroup)


def facts_of(key: OwnerKey, spec: dict[str, Any], **metadata: object) -> OwnerFacts:
    """Facts of an owner with a spec as Kubernetes writes it; without a uid, whichever object the pods name is meant."""
    tree = {"metadata": {"name": key.name, "namespace": key.namespace} | metadata}
    status = spec.pop("status", None)
    return owner_facts(key, msgspec.convert(tree | {"spec": spec, "status": status}, kinds().named[key.kind].struct))


def settled(gangs: Gangs, now_ms: int) -> list[Effect]:
    """Effects of all gangs that are due."""
    effects = gangs.settle(now_ms)
    while gangs.next_due_ms() == 0:
        effects += gangs.settle(now_ms)
    return effects


class GangWorld:
    """Gangs, and everything that they wanted done."""

    def __init__(self, settings: GangSettings | None = None, *, settle_ms: int = 0) -> None:
        self.settings = settings or GangSettings()
        self.gangs = Gangs(self.settings, settle_ms=settle_ms)
        self.now_ms = 1_000_000
        self.members: dict[str, MembersSeen] = {}
        self.replacements: dict[str, ReplacementsSeen] = {}
        self.requests: dict[str, JobRequest] = {}
        """Last request under each name."""
        self.published: list[JobRequest] = []
        self.withdrawn: list[tuple[str, str, str]] = []
        """Name, uid and reason."""
        self.looks: list[OwnerKey] = []
        self.patches: list[PatchPodGroup] = []
        self.conditions: list[tuple[str, str, str, str]] = []
        """Of PodGroups of Kubernetes: name, status, reason and message."""
        self.warnings: list[dict[str, str]] = []
        """Of each request that was published."""

    def pods(self, *pods: Pod) -> None:
        for pod in pods:
            self.gangs.set_pod(pod)

    def settle(self, *, after_s: float = 0) -> list[Effect]:
        """Let time pass, and do what is wanted."""
        self.now_ms += round(after_s * 1000)
        effects = settled(self.gangs, self.now_ms)
        for effect in effects:
            match effect:
                case PublishMembers(members):
                    self.members[members.job] = members
                case PublishRequest(request, warnings):
                    self.warnings.append(dict(warnings))
                    assert self.members[request.name].uid == request.uid, "told before it is published"
                    self.requests[request.name] = request
                    self.published.append(request)
                case PublishCancel(cancel):
                    self.withdrawn.append((cancel.name, cancel.uid, cancel.reason))
                case ReadOwner(owner):
                    self.looks.append(owner)
                case PublishReplacements(found):
                    self.replacements[found.job] = found
                case PatchPodGroup():
                    self.patches.append(effect)
                case PatchNativeGroup(name=name, condition=said):
                    self.conditions.append((name, said.status, said.reason, said.message))
        assert self.gangs.settle(self.now_ms) == [], "nothing has changed, so nothing is wanted"
        return effects

    def standing(self, name: str) -> dict[int, str]:
        """Pods of a request by rank."""
        seen = self.members[name]
        return dict(zip(unpack(seen.rank, 4), seen.pods, strict=True))

    def ranks(self, name: str) -> dict[str, str]:
        """What is to be written as rank on the pods of a request."""
        seen = self.members[name]
        return dict(zip(seen.pods, seen.rank_index, strict=True))

    def hold(self, name: str) -> str:
        return self.members[name].hold

    def job(self, name: str, state: JobState = "accepted", *, refusal: Refusal | None = None) -> JobSeen:
        request = self.requests[name]
        return JobSeen("ns", name, request.uid, state, 1, at_ms=self.now_ms, request=request, refusal=refusal)

    def verdict(
        self, name: str, state: JobState = "accepted", *, code: Code | None = None, accepted_seq: int = 0
    ) -> None:
        refusal = Refusal(code=code) if code is not None else None
        seen = self.job(name, state, refusal=refusal)
        self.gangs.note_job(msgspec.structs.replace(seen, accepted_seq=accepted_seq))

    def status(
        self,
        name: str,
        phase: Phase,
        *,
        attempt: int = 1,
        sentence: str = "",
        code: Code | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        uid = self.requests[name].uid
        refusal = Refusal(code=code) if code is not None else refusal
        self.gangs.note_status(
            JobStatus("ns", name, uid, phase, 0, self.now_ms, attempt=attempt, sentence=sentence, refusal=refusal)
        )

    def outcome(
        self, name: str, state: OutcomeState = "bound", *, attempt: int = 1, failed: Sequence[int] = ()
    ) -> None:
        failures = [RankFailure(rank, "no") for rank in failed]
        uid = self.requests[name].uid
        self.gangs.note_outcome(OutcomeSeen("ns", name, uid, attempt, state, failures=failures))


BASE = "podgroup.pg"
"""Name of the request for the gang of PodGroup ``pg``."""


def members(count: int, start: int = 0, **more: Any) -> list[Pod]:  # noqa: ANN401 - whatever a pod can have
    return [a_pod(f"p-{index}", group="pg", **more) for index in range(start, start + count)]


def requested(count: int = 4, **group: Any) -> GangWorld:  # noqa: ANN401 - whatever a group can have
    """A gang of ``count`` pods that was requested."""
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=count, **group))
    world.pods(*members(count))
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "waiting")
    return world


def running(count: int = 4, **group: Any) -> GangWorld:  # noqa: ANN401 - whatever a group can have
    """A gang of ``count`` pods that runs."""
    world = requested(count, **group)
    (name,) = world.requests
    world.status(name, "placed")
    world.pods(*members(count, node="n1", phase="Running"))
    world.outcome(name)
    world.status(name, "running")
    world.settle()
    return world
