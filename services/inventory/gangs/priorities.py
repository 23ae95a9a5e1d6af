"""Priorities of jobs, and what they say of preemption.

A priority is that of the pods, otherwise that of the PriorityClass that their PodGroup names. The class that gives the
priority also says whether the job ends others, and whether it is critical.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; docs/reference/workloads.md, "Preemption".
"""

from collections.abc import Sequence
from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.policies import PriorityClass
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.manifests.pod_template import SYSTEM_CLASSES
from berth.formats.manifests.preemption import KUBE_SYSTEM, NEVER, Claims, is_about_preemption, preemption_of
from berth.schemas.intake import Preemption
from berth.services.inventory.gangs.model import Member

PRIORITY_ASSUMED: Final = "PriorityAssumed"
"""Reason of the Event about a job whose priority is not the one that its objects state."""


class Priorities:
    """PriorityClasses by name. Before they are listed, or where they may not be, only those of the system are known."""

    def __init__(self) -> None:
        self._values = dict(SYSTEM_CLASSES)
        self._never: frozenset[str] = frozenset()
        self._default = ""
        self._is_listed = False

    def replace(self, classes: Sequence[PriorityClass]) -> None:
        """Take all classes."""
        self._values = SYSTEM_CLASSES | {one.metadata.name: one.value for one in classes}
        self._never = frozenset(one.metadata.name for one in classes if one.preemption_policy == NEVER)
        self._default = next((one.metadata.name for one in classes if one.global_default), "")
        self._is_listed = True

    def value(self, name: str) -> int | None:
        """Value of a class; None if it is not known."""
        return self._values.get(name)

    def of(self, members: Sequence[Member], group: PodGroup | None, stated: int | None = None) -> int:
        """Priority of a job: the highest of its pods if one of them names a class, otherwise that of its PodGroup.

        Admission writes the global default into pods that name no class, so that class does not count as named.

        Args:
            members: Its pods.
            group: Its Volcano PodGroup, if there is one.
            stated: Priority of its PodGroup of Kubernetes, which counts whatever the pods have; None without one.
        """
        if stated is not None:
            return stated
        found = self.value(self._class_of_group(members, group))
        return max((member.pod.spec.priority or 0 for member in members), default=0) if found is None else found

    def may_displace(self, members: Sequence[Member], group: PodGroup | None) -> bool:
        """Whether others may end for a job, as far as its class says."""
        named = self._class_of_group(members, group)
        of_pods = any(member.pod.spec.preemption_policy == NEVER for member in members)
        return not (named in self._never if named else of_pods)

    def preemption(
        self, members: Sequence[Member], group: PodGroup | None, facts: OwnerFacts | None, stated: int | None = None
    ) -> Preemption | None:
        """What a job says of preemption: its PodGroup, then its owner, then its pods; None if it says nothing.

        Args:
            members: Its pods; at least one.
            group: Its Volcano PodGroup, if there is one.
            facts: Facts of its owner, if the owner was looked up.
            stated: As in :meth:`of`.
        """
        if stated is not None and facts is not None:
            named, is_never = facts.priority_class, facts.preemption_policy == NEVER
        else:
            named, is_never = self._class_of_group(members, group), not self.may_displace(members, group)
        classes = {named} if named else {member.pod.spec.priority_class_name for member in members}
        metas = (member.pod.metadata for member in members)
        job = [Claims(group.metadata.labels, group.metadata.annotations)] if group is not None else []
        job += [Claims(facts.labels, facts.annotations, "the owner")] if facts is not None else []
        return preemption_of(
            job,
            [
                Claims(meta.labels, meta.annotations, f"pod {meta.name}")
                for meta in metas
                if is_about_preemption(meta.labels or ()) or is_about_preemption(meta.annotations or ())
            ],
            never=is_never,
            critical=members[0].pod.metadata.namespace == KUBE_SYSTEM or not classes.isdisjoint(SYSTEM_CLASSES),
        )

    def _class_of_group(self, members: Sequence[Member], group: PodGroup | None) -> str:
        """The class that a PodGroup names, if it counts; empty if the priorities of the pods do."""
        named = group.spec.priority_class_name if group is not None else ""
        if self.value(named) is None:
            return ""
        is_of_pods = any(member.pod.spec.priority_class_name not in {"", self._default} for member in members)
        return "" if is_of_pods else named

    def warning(self, members: Sequence[Member], group: PodGroup | None, stated: int | None = None) -> str:
        """What is wrong with the priorities of a job, and which one counts, as a sentence; empty when nothing is."""
        counts = f"priority {self.of(members, group, stated)} counts"
        other = next((one for one in members if stated is not None and (one.pod.spec.priority or 0) != stated), None)
        if other is not None:
            return f"its PodGroup has priority {stated}, pod {other.name} has {other.pod.spec.priority or 0}: {counts}"
        by_value: dict[int, str] = {}
        for member in members:
            by_value.setdefault(member.pod.spec.priority or 0, member.name)
        if len(by_value) > 1:
            each = ", ".join(f"{by_value[value]} has {value}" for value in sorted(by_value, reverse=True))
            return f"its pods have different priorities, {each}: {counts}"
        named = group.spec.priority_class_name if group is not None else ""
        if not named or not self._is_listed or self.value(named) is not None:
            return ""
        return f"PodGroup names the PriorityClass {named}, which does not exist: {counts}"
