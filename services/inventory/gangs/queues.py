"""Queues of jobs, and of pods that other schedulers placed.

Source: docs/queues.md, "The queue of a job".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import GangKey
from berth.formats.manifests.queue_names import queue_named
from berth.schemas.queues.queue import DEFAULT
from berth.services.inventory.gangs.model import Member
from berth.services.inventory.pod_rows import PodRow


class JobQueues:
    """The queue that PodGroup, owner, pod or namespace names, in this order.

    Args:
        groups: All Volcano PodGroups by namespace and name, as they are known at each time.
        gangs: Returns all gangs.
        touch: Looks at a gang again.
    """

    def __init__(
        self,
        groups: Mapping[tuple[str, str], PodGroup],
        gangs: Callable[[], Iterable[GangKey]],
        touch: Callable[[GangKey], None],
    ) -> None:
        self._groups = groups
        self._gangs = gangs
        self._touch = touch
        self._namespaces: Mapping[str, str] = {}

    def set_namespaces(self, queues: Mapping[str, str]) -> None:
        """Take the queue of each namespace that names one; jobs that wait in another one are requested anew."""
        before, self._namespaces = self._namespaces, dict(queues)
        for key in self._gangs():
            if before.get(key.namespace) != queues.get(key.namespace):
                self._touch(key)

    def of(self, group: PodGroup | None, facts: OwnerFacts | None, members: Sequence[Member]) -> str:
        """Queue of a request for some pods.

        Args:
            group: Volcano PodGroup of the gang, if there is one.
            facts: Facts of its owner, if the owner was looked up.
            members: The pods in order of rank; none while they are not all there.

        Returns:
            The queue; empty without pods, where only they could name one.
        """
        stated = [group.spec.queue] if group is not None else []
        if facts is not None:
            stated += [facts.queue, queue_named(facts.annotations)]
        if members:
            meta = members[0].pod.metadata
            stated += [queue_named(meta.annotations), self._namespaces.get(meta.namespace, ""), DEFAULT]
        return next((name for name in stated if name), "")

    def of_row(self, row: PodRow) -> str:
        """Queue of a pod that another scheduler placed; empty if nothing names one."""
        group = self._groups.get((row.namespace, row.group))
        stated = (group.spec.queue if group is not None else "", row.queue, self._namespaces.get(row.namespace, ""))
        return next((name for name in stated if name), "")
