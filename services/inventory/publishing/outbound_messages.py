"""Messages that are to be stored: those of a namespace in their order, the namespaces in turn. Pure.

The dispatcher judges requests in the order in which they are stored, so what is stored is before all later requests.
The requests and cancellations on INTAKE that are not judged are bounded, those of a namespace and those of all; the
next ones, and what follows them, wait here.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

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
WINDOW_ALL: Final = 512
"""The same of all namespaces: however many flood, what comes later is behind some 0.2 s of them."""
STILL_MS: Final = 5_000
"""Time without any verdict after which none is awaited: the dispatcher is away, or what is stored gets no verdict."""
_AT_ONCE: Final = 512
"""Most messages that are stored before others may come between them."""

_JobKey: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""


class _Asked(NamedTuple):
    """Newest message of a job in line that comes behind its pods, its ticket, and whether it is its first request."""

    ticket: int
    message: JobRequest | ReplacementsSeen
    is_new: bool = False


class OutboundMessages:
    """Messages in line, and the requests and cancellations that are stored and not judged.

    The messages of a namespace are stored in the order in which they were appended. What later ones make void while it
    waits is left out: a new request that is cancelled, with its cancellation, and facts about pods before newer ones.
    So the dispatcher judges nothing about pods that went before it heard of them, and each of them leaves one fact in
    line. What is judged is read from the INTAKE sequences of verdicts: the dispatcher judges in order, and some
    messages get no verdict of their own.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[Outbound] = FairQueue()
        self._asked: dict[_JobKey, _Asked] = {}
        self._members: dict[_JobKey, tuple[int, MembersSeen]] = {}
        """Newest fact about the pods of a job that waits in line, behind its ticket."""
        self._chosen: deque[Outbound] = deque()
        self._open: Counter[str] = Counter()
        """Requests and cancellations that are chosen or stored, and not judged, by namespace."""
        self._open_all = 0
        self._is_full = False
        """All windows together are full: until half of them is judged, no namespace stores requests."""
        self._stored: deque[tuple[int, str]] = deque()
        """INTAKE sequence and namespace of those that are stored."""
        self._judged_seq = 0
        self._still_ms: UnixMs | None = None
        """Since when no verdict has come while a namespace waits for one; None while none does."""

    def append(self, message: Outbound, *, is_new: bool = False) -> None:
        """Add a message behind those of its namespace.

        Args:
            message: The message.
            is_new: It is a request, and none of its uid was appended before, by an earlier process neither.
        """
        match message:
            case JobCancel():
                if not self._leave_out(message):
                    self._put(message)
            case JobRequest():
                self._ask(message, is_new=is_new)
            case MembersSeen():
                self._say_members(message)
            case ReplacementsSeen():
                self._asked[message.namespace, message.job] = _Asked(self._put(message), message)
        self._hold_or_release(message.namespace)

    def _put(self, message: Outbound) -> int:
        return self._waiting.append(message.namespace, message)

    def _ask(self, request: JobRequest, *, is_new: bool) -> None:
        """Add a request; one of the same uid that is not stored yet becomes this one."""
        key = (request.namespace, request.name)
        asked = self._asked.get(key)
        if asked is not None and asked.is_new and asked.message.uid == request.uid:
            self._waiting.replace(request.namespace, asked.ticket, request)
            self._asked[key] = asked._replace(message=request)
        else:
            self._asked[key] = _Asked(self._put(request), request, is_new)

    def _leave_out(self, cancel: JobCancel) -> bool:
        """Take out the new request that is cancelled, if it waits; nobody else has heard of it."""
        key = (cancel.namespace, cancel.name)
        asked = self._asked.get(key)
        if asked is None or not asked.is_new or asked.message.uid != cancel.uid:
            return False
        self._waiting.discard(cancel.namespace, asked.ticket)
        del self._asked[key]
        return True

    def _say_members(self, seen: MembersSeen) -> None:
        """Add a fact in place of the one before it, unless a message waits between them that comes behind pods."""
        key = (seen.namespace, seen.job)
        before, _ = self._members.get(key, (0, seen))
        if before and (key not in self._asked or self._asked[key].ticket < before):
            self._waiting.discard(seen.namespace, before)
        self._members[key] = (self._put(seen), seen)

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
            self._forget(message)
            self._chosen.append(message)
            if _is_judged(message):
                self._open[message.namespace] += 1
                self._open_all += 1
                if self._open_all >= WINDOW_ALL:
                    self._is_full = True
                    for namespace in list(self._waiting.callers):
                        self._hold_or_release(namespace)
            self._hold_or_release(message.namespace)

    def _forget(self, message: Outbound) -> None:
        """Note that a message waits in line no more."""
        match message:
            case MembersSeen():
                said = self._members.get((message.namespace, message.job))
                if said is not None and said[1] is message:
                    del self._members[message.namespace, message.job]
            case JobRequest() | ReplacementsSeen():
                key = (message.namespace, message.name if isinstance(message, JobRequest) else message.job)
                if key in self._asked and self._asked[key].message is message:
                    del self._asked[key]
            case JobCancel():
                pass

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
        self._open_all -= 1
        if self._is_full and self._open_all <= WINDOW_ALL // 2:
            self._is_full = False
            for held in list(self._waiting.held):
                self._let_on(held)
        elif not self._is_full:
            self._let_on(namespace)
        if not self._open[namespace]:
            del self._open[namespace]

    def _let_on(self, namespace: str) -> None:
        """Let a namespace take turns again if half of its window is judged."""
        if self._open[namespace] <= WINDOW // 2:
            self._waiting.release(namespace)

    def _hold_or_release(self, namespace: str) -> None:
        """Hold a namespace back whose next message is one too many; let one on whose next message is not judged."""
        first = self._waiting.first_of(namespace)
        if first is None or not _is_judged(first):
            self._waiting.release(namespace)
        elif self._is_full or self._open[namespace] >= WINDOW:
            self._waiting.hold(namespace)


def _is_judged(message: Outbound) -> bool:
    return isinstance(message, JobRequest | JobCancel)
