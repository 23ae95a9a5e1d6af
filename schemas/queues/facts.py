"""Facts about queues, as their source declares them."""

from typing import ClassVar, Literal

from berth.schemas.message import Message, Part
from berth.schemas.queues.queue import Amounts, Queue
from berth.schemas.units import UnixMs

QueueSource = Literal["kubernetes", "berth"]


class QueueSeen(Message, frozen=True):
    """A queue as it is declared, wrong fields included: what is wrong with it counts in the tree alone."""

    KIND: ClassVar[str] = "fact.queue"

    queue: Queue
    source: QueueSource = "berth"
    """Where it is declared: objects of Kubernetes, or ``berth queues apply``."""
    gone: bool = False
    """It is declared no longer; only its name counts."""
    by: str = ""
    """Who declared it, for people; empty for objects of Kubernetes."""
    at_ms: UnixMs = 0


class WaitingGroup(Part, frozen=True):
    """What a PodGroup asks for that waits for its admission, or for places for its pods."""

    queue: str
    minimum: Amounts = {}
    """What its minimum asks for."""
    is_declared: bool = False
    """The minimum is declared (``minResources``)."""
    pods: int = 0
    """Pods of its minimum."""
    priority: int = 0
    may_displace: bool = True
    """Its class does not forbid that others end for it."""
    created_ms: UnixMs = 0
    job: str = ""
    """Name that the request of its pods has, or will have."""
    is_admitted: bool = False
    """It was admitted when it was first told of."""
