"""Admission of Volcano PodGroups where queues are in force: by what their queue is, and not by what is free.

A PodGroup that is not admitted has no pods, so that nobody could see that it starves. The dispatcher decides who
starts, by the limits of the queues. Here only those wait that their queue does not let in at all, and those for which
their queue has too many pods that wait already.
"""

from typing import Final

from berth.core.queues.admission import queue_refusal
from berth.core.queues.refusals import text_of
from berth.core.queues.tree import Tree
from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.queues.queue import DEFAULT
from berth.services.inventory.podgroups.status import ENQUEUE_FAILED, NO_REASON, Why

PODS_MAX: Final = 10_000
"""Most pods of one queue that are admitted and do not run."""
_DEQUEUE: Final = "huawei.com/schedule_enable_dequeue"
"""Annotation of a PodGroup that goes back to Pending if it cannot start for long: ``on``."""


def queue_of(group: PodGroup) -> str:
    """The queue of a PodGroup."""
    return group.spec.queue or DEFAULT


def queue_barrier(tree: Tree, group: PodGroup, admitted: int) -> Why:
    """Why the queue of a PodGroup does not let it have pods; empty when it does.

    Args:
        tree: The queues.
        group: The PodGroup.
        admitted: Pods of the queue that are admitted and do not run.
    """
    queue, pods = queue_of(group), group.spec.min_member or 0
    refusal = queue_refusal(tree, queue, group.metadata.namespace)
    if refusal is not None:
        return Why(ENQUEUE_FAILED, text_of(refusal))
    if admitted and admitted + pods > PODS_MAX:
        text = f"queue {queue} has {admitted:,} pods of jobs that wait, and this job has {pods:,}: at most {PODS_MAX:,}"
        return Why(ENQUEUE_FAILED, text)
    return NO_REASON


def goes_back(group: PodGroup) -> bool:
    """Whether a PodGroup asks to go back to Pending if it cannot start for long."""
    return group.metadata.annotation(_DEQUEUE) == "on"
