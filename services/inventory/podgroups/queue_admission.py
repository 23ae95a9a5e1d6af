"""Admission of Volcano PodGroups where queues are in force: by what their queue is, and not by what is free.

A PodGroup that is not admitted has no pods, so that nobody could see that it starves. The dispatcher decides who
starts, by the limits of the queues. Here only those wait that their queue does not let in at all, and those for which
their queue has too many pods that wait already. For the same reasons one that was admitted goes back: its queue does
not let it in any more, it names another queue, or needs more pods than before.
"""

from collections import Counter
from typing import Final

from berth.core.queues.admission import queue_refusal
from berth.core.queues.refusals import text_of
from berth.core.queues.tree import Tree
from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.queues.queue import DEFAULT
from berth.services.inventory.podgroups.status import ENQUEUE_FAILED, NO_REASON, Why

PODS_MAX: Final = 10_000
"""Most pods of one queue that are admitted and do not run."""
_Name = tuple[str, str]
"""Namespace and name of a PodGroup."""
_DEQUEUE: Final = "huawei.com/schedule_enable_dequeue"
"""Annotation of a PodGroup that goes back to Pending if it cannot start for long: ``on``."""


class QueueAdmission:
    """Whom queues let have pods.

    Attributes:
        tree: The queues; None where they admit nobody.
        eased: Queues in which PodGroups were forgotten, until it is cleared: others may be admitted there.
    """

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.eased: dict[str, None] = {}
        self._counted: dict[_Name, tuple[str, int]] = {}
        """Queue and pods of each PodGroup that is admitted and has no pods on nodes."""
        self._pods: Counter[str] = Counter()
        """Their pods, by queue."""

    def count(self, group: PodGroup) -> None:
        """Count the pods of a PodGroup that is admitted and has none on nodes, unless it is counted."""
        name = _name_of(group)
        if name not in self._counted:
            self._add(name, *_asked(group))

    def _add(self, name: _Name, queue: str, pods: int) -> None:
        self._counted[name] = (queue, pods)
        self._pods[queue] += pods

    def forget(self, name: _Name) -> None:
        """Count a PodGroup no longer."""
        if name not in self._counted:
            return
        queue, pods = self._counted.pop(name)
        self.eased[queue] = None
        self._pods[queue] -= pods
        if not self._pods[queue]:
            del self._pods[queue]

    def barrier(self, group: PodGroup) -> Why:
        """Why the queue of a PodGroup that is not counted does not let it have pods; empty when it does."""
        if self.tree is None:
            return NO_REASON
        queue, pods = _asked(group)
        refusal = queue_refusal(self.tree, queue, group.metadata.namespace)
        if refusal is not None:
            return Why(ENQUEUE_FAILED, text_of(refusal))
        waiting = self._pods[queue]
        if waiting and waiting + pods > PODS_MAX:
            text = f"queue {queue} has {waiting:,} pods of jobs that wait, and this job has {pods:,}"
            return Why(ENQUEUE_FAILED, f"{text}: at most {PODS_MAX:,}")
        return NO_REASON

    def back(self, group: PodGroup) -> Why:
        """Why a PodGroup that is counted goes back to Pending; empty when it stays admitted."""
        name = _name_of(group)
        before = self._counted.get(name)
        if self.tree is None or before is None:
            return NO_REASON
        if before == _asked(group):
            refusal = queue_refusal(self.tree, before[0], group.metadata.namespace)
            return NO_REASON if refusal is None else Why(ENQUEUE_FAILED, text_of(refusal))
        self.forget(name)
        why = self.barrier(group)
        self._add(name, *(before if why.reason else _asked(group)))
        return why


def queue_of(group: PodGroup) -> str:
    """The queue of a PodGroup."""
    return group.spec.queue or DEFAULT


def goes_back(group: PodGroup) -> bool:
    """Whether a PodGroup asks to go back to Pending if it cannot start for long."""
    return group.metadata.annotation(_DEQUEUE) == "on"


def _name_of(group: PodGroup) -> _Name:
    return group.metadata.namespace, group.metadata.name


def _asked(group: PodGroup) -> tuple[str, int]:
    return queue_of(group), group.spec.min_member or 0
