"""Facts about queues, as their source declares them."""

from typing import ClassVar, Literal

from berth.schemas.message import Message
from berth.schemas.queues.queue import Queue
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
