"""Parts of objects that several kinds have."""

from collections.abc import Iterable

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.whole_numbers import Int32


class OwnerCondition(Lean, frozen=True):
    """Condition of an owner, as far as it is read."""

    type: str = ""
    status: str = ""


class ConditionsStatus(Lean, frozen=True):
    """Status of an owner of which only the conditions are read."""

    conditions: list[OwnerCondition] | None = None


class Ordinals(Lean, frozen=True):
    """Ordinals of the pods of a StatefulSet."""

    start: Int32 = 0


class SetSpec(Lean, frozen=True):
    """Spec of a ReplicaSet or StatefulSet."""

    replicas: Int32 | None = None
    pod_management_policy: str = ""
    ordinals: Ordinals | None = None
    template: Template = Template()


class JobSpec(Lean, frozen=True):
    """Spec of a Kubernetes Job."""

    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    template: Template = Template()

    @property
    def width(self) -> int:
        """Maximum number of pods that run at a time."""
        parallelism = or_one(self.parallelism)
        return parallelism if self.completions is None else min(parallelism, self.completions)


def or_one(number: int | None) -> int:
    """A number of pods; 1 if the object does not state it."""
    return 1 if number is None else number


def first_final(conditions: Iterable[OwnerCondition] | None, final: frozenset[str]) -> str:
    """The first true condition that is final; empty without one."""
    return next((one.type for one in conditions or () if one.status == "True" and one.type in final), "")


def first_named(schedulers: Iterable[str]) -> str:
    """Scheduler that the first of some templates names; empty if none does."""
    return next((name for name in schedulers if name), "")
