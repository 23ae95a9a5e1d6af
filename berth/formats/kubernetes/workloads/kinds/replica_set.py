"""ReplicaSets: each has the pods of one version of a Deployment, or of a Rollout of Argo.

Source: docs/reference/kubernetes.md, "Gangs of plain Kubernetes"; Kubernetes, apps/v1.
"""

from typing import Final

from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import ALWAYS_ANEW, OwnerObject, PodReading, WorkloadKind
from berth.formats.kubernetes.workloads.specs import SetSpec, or_one
from berth.formats.whole_numbers import whole_number

_WANTED: Final = ("deployment.kubernetes.io/desired-replicas", "rollout.argoproj.io/desired-replicas")
"""Annotations of a ReplicaSet: replicas that its Deployment, or its Rollout of Argo, wants.

Source: Kubernetes, ``pkg/controller/deployment/util``; Argo Rollouts, ``utils/annotations``.
"""


class ReplicaSet(OwnerObject, frozen=True):
    """A ReplicaSet: one version of a Deployment."""

    spec: SetSpec = SetSpec()


def _facts(owner: ReplicaSet, _: str) -> OwnerFacts:
    replicas = or_one(owner.spec.replicas)
    return OwnerFacts(
        scheduler_name=owner.spec.template.scheduler_name,
        replicas=replicas,
        rollout=_rollout(owner, replicas),
        has_versions=not (owner.metadata.annotations or {}).keys().isdisjoint(_WANTED),
    )


def _rollout(owner: ReplicaSet, replicas: int) -> str:
    """Rollout of its Deployment: it has another number of replicas than the Deployment wants."""
    texts = (owner.metadata.annotation(key) for key in _WANTED)
    wanted = whole_number(next(filter(None, texts), ""))
    if wanted is None or wanted == replicas:
        return ""
    return f"a rollout is going on: ReplicaSet {owner.metadata.name} has {replicas} of {wanted} replicas"


REPLICA_SET: Final = WorkloadKind(
    name="ReplicaSet",
    versions=("apps/v1",),
    plural="replicasets",
    struct=ReplicaSet,
    facts=_facts,
    pods=PodReading(own_labels=frozenset({"pod-template-hash"})),
    starts_together=lambda _, has_chips: has_chips,
    family=lambda name: name.rpartition("-")[0],  # a Deployment adds a hash to its name
    makes_anew=ALWAYS_ANEW,
)
