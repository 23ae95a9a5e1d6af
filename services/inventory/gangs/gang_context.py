"""What is known of a gang besides its pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.facts import OwnerFacts


@dataclass(frozen=True, slots=True)
class GangContext:
    """Known state of a gang besides its pods.

    Attributes:
        group: Its Volcano PodGroup.
        facts: Facts of its owner; None when the owner was not looked up or does not exist.
        turns: Facts of the object that made the pods of a PodGroup that has another owner, or none.
        barrier: Why no request may be made yet, as a sentence; empty when one may.
        is_reading: Its owner is being read for the first time, or its PodGroup is within the grace period of admission.
        is_unread: Its owner was not read yet: what the owner says is not in the facts.
        is_old: The facts of its owner are too old for a first request.
        read: Number of the read of the owner that the facts are from; None without an owner, and before it was read.
        again_ms: Time at which the owner is read again while pods are missing; None when nothing is to be read.
        elsewhere: Number of pods of the gang that other schedulers place, by scheduler.
        is_surge: Its pods replace those of another ReplicaSet of their Deployment, which run until they do.
    """

    group: PodGroup | None
    facts: OwnerFacts | None = None
    turns: OwnerFacts | None = None
    barrier: str = ""
    is_reading: bool = False
    is_unread: bool = False
    is_old: bool = False
    read: int | None = None
    again_ms: int | None = None
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    is_surge: bool = False

    @property
    def tasks(self) -> dict[str, int]:
        """Index of each of the owner's tasks, by name."""
        facts = self.facts
        return {task.name.lower(): place for place, task in enumerate(facts.tasks)} if facts is not None else {}

    @property
    def is_suspended(self) -> bool:
        """Whether the owner makes no pods for the moment."""
        return self.facts is not None and self.facts.suspended
