"""Priorities of jobs: of their pods, otherwise of the PriorityClass that their PodGroup names.

Source: docs/reference/kubernetes.md, "Volcano PodGroups".
"""

from collections.abc import Sequence
from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.policies import PriorityClass
from berth.formats.manifests.pod_template import SYSTEM_CLASSES
from berth.services.inventory.gangs.model import Member

PRIORITY_ASSUMED: Final = "PriorityAssumed"
"""Reason of the Event about a job whose priority is not the one that its objects state."""


class Priorities:
    """PriorityClasses by name. Before they are listed, or where they may not be, only those of the system are known."""

    def __init__(self) -> None:
        self._values = dict(SYSTEM_CLASSES)
        self._default = ""
        self._is_listed = False

    def replace(self, classes: Sequence[PriorityClass]) -> None:
        """Take all classes."""
        self._values = SYSTEM_CLASSES | {one.metadata.name: one.value for one in classes}
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
        highest = max((member.pod.spec.priority or 0 for member in members), default=0)
        if any(member.pod.spec.priority_class_name not in {"", self._default} for member in members):
            return highest
        found = self.value(group.spec.priority_class_name) if group is not None else None
        return highest if found is None else found

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
