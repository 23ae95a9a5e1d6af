"""Numbers of the owner of a gang, in one form for all kinds of owners.

Source: docs/reference/kubernetes.md, "Resolution of the gang".
"""

import msgspec


class TaskFacts(msgspec.Struct, frozen=True, gc=False):
    """Equal pods of an owner."""

    name: str
    pods: int
    """All of them."""
    width: int = 1
    """Pods of one child, if the task consists of several: the place of a pod is ``child * width`` plus its index
    there."""
    has_chips: bool | None = None
    """Whether its pods ask for chips; None when its template does not say what its containers need."""
    is_later: bool = False
    """Its pods are made only when those of another task are ready, or have ended."""
    scheduler_name: str = ""
    """Scheduler of its pods; empty where the template does not name it."""
    first_index: int = 0
    """Index of its first pod, as labels state it."""
    least: int = 0
    """Those of them that start with the first pods of the others, where its owner starts with fewer than all."""


class OwnerFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Numbers of the owner of a gang; None for those that the object does not have."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    scheduler_name: str = ""
    """Scheduler of the pods; empty if the object does not name it."""
    queue: str = ""
    replicas: int | None = None
    """Pods that it keeps running."""
    parallelism: int | None = None
    completions: int | None = None
    ended: int = 0
    """Pods that it makes no more: their jobs or completions have succeeded, or failed for good."""
    indexed: bool = False
    ordered: bool = False
    """It creates a pod only when the previous one is ready."""
    rollout: str = ""
    """That its pods are being replaced by those of another template, as a sentence; empty otherwise."""
    has_versions: bool = False
    """Another object makes one of these for each version of its pods."""
    suspended: bool = False
    min_count: int | None = None
    """Pods that must start together."""
    min_name: str = "minAvailable"
    """Field with that number."""
    tasks: tuple[TaskFacts, ...] = ()
    """In order of rank."""
    group_has_later: bool = False
    """Its PodGroup counts the pods of later tasks with the others, because they are made at once."""
    first_index: int = 0
    """Index of its first pod, as labels or names state it."""
    priority: int | None = None
    """Priority of all of its pods, whatever they state."""
    priority_class: str = ""
    """Name of the class of that priority; empty without one."""
    preemption_policy: str = ""
    """``preemptionPolicy`` of that class."""
    refused: str = ""
    """What it asks for and Berth does not hold, as a sentence; empty for nothing."""
    is_ending: bool = False
    """It is being deleted."""
    final: str = ""
    """State in which it makes no pods any more, whatever becomes of them; empty in any other."""

    def still_to_start(self, count: int, succeeded: int) -> int:
        """Pods of a minimum that are still to start; a Job makes no more pods than it has completions left.

        A set that keeps a number of pods has them all to start.

        Args:
            count: The minimum.
            succeeded: Pods that are there and have succeeded.
        """
        if self.replicas is not None:
            return count  # its controller makes others in place of those that have succeeded
        if self.completions is None:
            return count - max(succeeded, self.ended)
        return min(count - succeeded, self.completions - self.ended)

    @property
    def first_pods(self) -> int | None:
        """Pods that it makes before any is ready; None if it waits for none."""
        if self.ordered:
            return 1
        if not any(task.is_later for task in self.tasks):
            return None
        return sum(task.pods for task in self.tasks if not task.is_later)

    def seen_by(self, scheduler: str) -> "OwnerFacts":
        """The facts without the tasks whose pods another scheduler places.

        Where no template names the scheduler, something else gives it to the pods, and all are its own.

        Args:
            scheduler: Scheduler of the pods that are seen.
        """
        own = [task for task in self.tasks if task.scheduler_name == scheduler]
        if not own or len(own) == len(self.tasks):
            return self
        if all(task.is_later for task in own):
            own[0] = msgspec.structs.replace(own[0], is_later=False)
        return msgspec.structs.replace(self, tasks=tuple(own))
