"""A PodGroup as it was observed, the state of its pods, and the last patch of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.services.inventory.podgroups.pods import GroupPods
from berth.services.inventory.podgroups.status import MinResources, least_of

UNKNOWN: Final = GroupPods(is_ours=None)


@dataclass(slots=True, eq=False)
class TrackedGroup:
    """A PodGroup and the last patch of it."""

    observed: PodGroup
    min_resources: MinResources
    pods: GroupPods = UNKNOWN
    phase: str = ""
    """Phase of the object, or of a patch that the object does not show yet."""
    sent_version: str | None = None
    """Version from which the last patch was computed, until a newer one is observed."""
    written_ms: int = 0
    admitted_ms: int = 0
    """Time of the admission, as far as observed; 0 when it is not admitted."""
    backoff_until_ms: int = 0
    """The PodGroup went back to Pending and is not admitted before that time."""
    gave_up: bool = False
    """The last patch failed permanently, and the next one is not computed yet."""
    retry_at_ms: int = 0
    """No patch before that time: the last one failed permanently."""
    due_ms: int | None = None

    succeeded: frozenset[str] = frozenset()
    """Pods (uid) that have succeeded while it runs, whether they are there or not."""
    collected_before: int | None = None
    """Pods that had succeeded and were gone when this process first saw that it runs; None while it does not."""

    def collected(self, pods: GroupPods) -> int:
        """Pods that have succeeded and are gone, of a PodGroup that runs.

        Nothing makes the pods of a PodGroup without a controller anew: it has come to its end when each of them has,
        whether they are removed together or one by one. A controller counts its own pods.
        """
        status = self.observed.status
        runs = status.phase in {"Running", "Unknown"} and self.observed.metadata.controller is None
        if not runs or not pods.is_ours:
            self.succeeded, self.collected_before = frozenset(), None
            return 0
        if self.collected_before is None:
            self.collected_before = max(status.succeeded - len(pods.succeeded), 0)
        self.succeeded |= pods.succeeded
        return self.collected_before + len(self.succeeded - pods.succeeded)

    def due(self, at_ms: int) -> None:
        """Look at it again at that time at the latest."""
        self.due_ms = at_ms if self.due_ms is None else min(self.due_ms, at_ms)

    @property
    def amounts(self) -> Mapping[str, int]:
        """Resources that its first pods need beside those that run.

        The first pods are its minimum, or fewer while a rollout makes them step by step.
        """
        least, replicas, held = self.observed.spec.min_member or 0, self.pods.replicas, self.pods.held
        amounts = self.min_resources.amounts
        if replicas is not None and replicas < least:
            amounts = {name: -(-amount * replicas // least) for name, amount in amounts.items()}
        return {name: amount - held.get(name, 0) for name, amount in amounts.items() if amount > held.get(name, 0)}

    @property
    def is_started(self) -> bool:
        """Whether as many of its pods have nodes as it needs, or had them: then it runs, admitted or not."""
        return self.pods.counts.scheduled >= least_of(self.observed)
