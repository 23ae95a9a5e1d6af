"""Messages that are to be stored: those of a namespace in their order, the namespaces in turn. Pure.

The dispatcher judges requests in the order in which they are stored, so what one namespace has stored is before the
requests of all others. A namespace has a bounded number of requests and cancellations on INTAKE that are not judged;
the next ones, and what follows them, wait here.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from berth.runtime.bus.fair_queue import FairQueue
from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.units import UnixMs

Outbound: TypeAlias = JobCancel | JobRequest | MembersSeen | ReplacementsSeen
"""What is said of the jobs of a namespace."""
WINDOW: Final = 256
"""Most requests and cancellations of a namespace that are stored and not judged: some 0.1 s of the dispatcher. Half of
them are judged before more are stored, so that it never runs out of them."""
STILL_MS: Final = 5_000
"""Time without any verdict after which none is awaited: the dispatcher is away, or what is stored gets no verdict."""
_AT_ONCE: Final = 512
"""Most messages that are stored before others may come between them."""


class OutboundMessages:
    """Messages in line, and the requests and cancellations that are stored and not judged.

    Nothing is left out, and the messages of a namespace are stored in the order in which they were appended. What is
    judged is read from the INTAKE sequences of verdicts: the dispatcher judges in order, and some messages get no
    verdict of their own.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[Outbound] = FairQueue()
        self._chosen: deque[Outbound] = deque()
        self._open: Counter[str] = Counter()
        """Requests and cancellations that are chosen or stored, and not judged, by namespace."""
        self._stored: deque[tuple[int, str]] = deque()
        """INTAKE sequence and namespace of those that are stored."""
        self._judged_seq = 0
        self._still_ms: UnixMs | None = None
        """Since when no verdict has come while a namespace waits for one; None while none does."""

    def append(self, message: Outbound) -> None:
        """Add a message behind those of its namespace."""
        self._waiting.append(message.namespace, message)
        self._look(message.namespace)

    @property
    def chosen(self) -> Sequence[Outbound]:
        """Messages that are stored next, in order."""
        return self._chosen

    @property
    def has_turn(self) -> bool:
        """Whether a message waits for nothing but others that are chosen before it."""
        return bool(self._waiting.callers)

    def choose(self, now_ms: UnixMs) -> None:
        """Choose the messages that are stored next, those of an earlier call first."""
        self._give_up(now_ms)
        while self._waiting.callers and len(self._chosen) < _AT_ONCE:
            message = self._waiting.popleft()
            self._open[message.namespace] += _is_judged(message)
            self._chosen.append(message)
            self._look(message.namespace)

    def note_settled(self, sequences: Sequence[int]) -> None:
        """Note that the first chosen messages are stored under these sequences; 0 for one that is refused forever."""
        for sequence in sequences:
            message = self._chosen.popleft()
            if not _is_judged(message):
                continue
            if sequence > self._judged_seq:
                self._stored.append((sequence, message.namespace))
            else:
                self._close(message.namespace)

    def note_judged(self, intake_seq: int) -> None:
        """Note a verdict on the message of a sequence: all messages before it on INTAKE are judged."""
        if intake_seq <= self._judged_seq:
            return
        self._judged_seq = intake_seq
        self._still_ms = None
        while self._stored and self._stored[0][0] <= intake_seq:
            self._close(self._stored.popleft()[1])

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`choose` must be called even if nothing changes; None for never."""
        return self._still_ms + STILL_MS if self._still_ms is not None and self._waiting.held else None

    def _give_up(self, now_ms: UnixMs) -> None:
        """Await no verdict on what is stored if none has come for long."""
        if not self._waiting.held:
            self._still_ms = None
        elif self._still_ms is None:
            self._still_ms = now_ms
        elif now_ms >= self._still_ms + STILL_MS:
            self._still_ms = None
            while self._stored:
                self._close(self._stored.popleft()[1])

    def _close(self, namespace: str) -> None:
        """Take that one message of a namespace is judged."""
        self._open[namespace] -= 1
        if self._open[namespace] <= WINDOW // 2:
            self._waiting.release(namespace)
        if not self._open[namespace]:
            del self._open[namespace]

    def _look(self, namespace: str) -> None:
        """Hold a namespace back whose next message is one too many."""
        first = self._waiting.first_of(namespace)
        if first is not None and _is_judged(first) and self._open[namespace] >= WINDOW:
            self._waiting.hold(namespace)


def _is_judged(message: Outbound) -> bool:
    return isinstance(message, JobRequest | JobCancel)
