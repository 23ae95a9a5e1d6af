"""Why a queue does not let a gang in: codes, and the numbers of their sentences."""

from typing import Literal

import msgspec

from berth.core.queues.amounts import number_of

Code = Literal[
    "no-such-queue",
    "queue-not-valid",
    "queue-has-children",
    "queue-closed",
    "queue-not-for-namespace",
    "over-capability",
    "larger-than-capability",
]


class QueueRefusal(msgspec.Struct, frozen=True):
    """Why a gang is not admitted or not placed. It sleeps until what the code says changes.

    Attributes:
        code: What kind of reason.
        queue: The queue that binds: that of the gang, or one above it.
        reason: What is wrong with the queue; its closed state, and the queue that has it; its children.
        dimension: Dimension that is short.
        held: What counts against the limit, what is leaving included.
        leaving: How much of it is leaving.
        limit: The limit.
        asked: What the gang asks for.
        namespace: Namespace that may not use the queue, or whose own limit in the queue binds.
        others: Other dimensions that are short in this queue.
        is_admission: What counts are minima of gangs that stay, not what is held.
    """

    code: Code
    queue: str
    reason: str = ""
    dimension: str = ""
    held: int = 0
    leaving: int = 0
    limit: int = 0
    asked: int = 0
    namespace: str = ""
    others: tuple[str, ...] = ()
    is_admission: bool = False

    def text(self) -> str:
        """The sentence for people."""
        name = f"queue {self.queue}"
        match self.code:
            case "no-such-queue":
                return f"{name} does not exist"
            case "queue-not-valid":
                return f"{name} is not valid: {self.reason}"
            case "queue-has-children":
                return f"{name} has child queues ({self.reason}); jobs must name one of them"
            case "queue-closed":
                return f"{name} is {self.reason}"
            case "queue-not-for-namespace":
                return f"{name} is not for jobs of namespace {self.namespace}"
            case _:
                return self._amounts_text(name)

    def _amounts_text(self, name: str) -> str:
        held, leaving, limit, asked = (
            number_of(self.dimension, amount) for amount in (self.held, self.leaving, self.limit, self.asked)
        )
        who = f"namespace {self.namespace} in {name}" if self.namespace else name
        also = f"; {', '.join(self.others)} is short too" if self.others else ""
        if self.code == "larger-than-capability":
            return f"the job asks for {asked} {self.dimension}, {who} may never hold more than {limit}{also}"
        if self.is_admission:
            return f"gangs of {who} need at least {held} of {limit} {self.dimension}; the job asks for {asked}{also}"
        aside = f" ({leaving} of them leaving)" if self.leaving else ""
        return f"{who} holds {held} of {limit} {self.dimension}{aside}; the job asks for {asked}{also}"
