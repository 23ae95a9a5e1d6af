"""PodGroups of the coscheduling plug-in of scheduler-plugins.

Source: docs/reference/kubernetes.md, "Gangs of other systems"; scheduler-plugins, scheduling.x-k8s.io/v1alpha1.
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.pod_labels import CO_GROUP
from berth.formats.kubernetes.workloads.port import Claim, GangKey, OwnerKey, OwnerObject, PodReading, WorkloadKind
from berth.formats.whole_numbers import Int32

_NAME: Final = "CoPodGroup"
_WORD: Final = "cosched"


class CoPodGroupSpec(Lean, frozen=True):
    """Spec of a coscheduling PodGroup."""

    min_member: Int32 | None = None


class CoPodGroup(OwnerObject, frozen=True):
    """PodGroup of ``scheduling.x-k8s.io``."""

    spec: CoPodGroupSpec = CoPodGroupSpec()


def _facts(owner: CoPodGroup, _: str) -> OwnerFacts:
    return OwnerFacts(min_count=owner.spec.min_member, min_name="minMember")


def _gang(pod: Pod) -> Claim | None:
    name, namespace = pod.metadata.label(CO_GROUP), pod.metadata.namespace
    return Claim(GangKey(_WORD, namespace, name), OwnerKey(_NAME, namespace, name)) if name else None


CO_POD_GROUP: Final = WorkloadKind(
    name=_NAME,
    kind="PodGroup",
    word=_WORD,
    versions=("scheduling.x-k8s.io/v1alpha1",),
    plural="podgroups",
    controls_pods=False,
    struct=CoPodGroup,
    facts=_facts,
    pods=PodReading(gang_of_labels=_gang),
)
