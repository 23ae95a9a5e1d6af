"""StatefulSets: pods with ordinals, made in turn or at once.

Source: docs/reference/kubernetes.md, "Gangs of plain Kubernetes"; Kubernetes, apps/v1.
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.pod_labels import number
from berth.formats.kubernetes.workloads.port import ALWAYS_ANEW, OwnerObject, Place, PodReading, WorkloadKind
from berth.formats.kubernetes.workloads.specs import SetSpec, or_one

POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_NAME: Final = "StatefulSet"


class StatefulSetStatus(Lean, frozen=True):
    """Status of a StatefulSet, as far as it is read."""

    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(OwnerObject, frozen=True):
    """A StatefulSet."""

    spec: SetSpec = SetSpec()
    status: StatefulSetStatus | None = None


def _facts(owner: StatefulSet, _: str) -> OwnerFacts:
    ordinals = owner.spec.ordinals
    return OwnerFacts(
        scheduler_name=owner.spec.template.scheduler_name,
        replicas=or_one(owner.spec.replicas),
        first_index=ordinals.start if ordinals is not None else 0,
        ordered=owner.spec.pod_management_policy != "Parallel",
        rollout=_rollout(owner),
    )


def _rollout(owner: StatefulSet) -> str:
    """Rollout: with a partition, pods of both revisions stay.

    Source: Kubernetes, apps/v1, ``StatefulSetStatus``.
    """
    status = owner.status
    if status is None or not status.current_revision or status.current_revision == status.update_revision:
        return ""
    return f"a rollout is going on: StatefulSet {owner.metadata.name} has pods of two revisions"


def _place(pod: Pod) -> Place | None:
    """The ordinal; a StatefulSet of another API, such as that of OpenKruise, gives it likewise."""
    meta = pod.metadata
    if meta.controller is None or meta.controller.kind != _NAME:
        return None
    ordinal = number(meta.label(POD_INDEX))
    return Place(rank=ordinal if ordinal is not None else number(meta.name.rpartition("-")[2]))


STATEFUL_SET: Final = WorkloadKind(
    name=_NAME,
    versions=("apps/v1",),
    plural="statefulsets",
    struct=StatefulSet,
    facts=_facts,
    pods=PodReading(
        place=_place,
        own_labels=frozenset(
            {POD_INDEX, "apps.kubernetes.io/revision", "controller-revision-hash", "statefulset.kubernetes.io/pod-name"}
        ),
    ),
    starts_together=lambda _, has_chips: has_chips,
    waits="makes no further pod before this one is ready, unless its podManagementPolicy is Parallel",
    makes_anew=ALWAYS_ANEW,
)
