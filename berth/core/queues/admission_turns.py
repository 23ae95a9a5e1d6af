"""Who is admitted: those that wait, one after another as queues have their turns, until the limits are reached.

Those that ask for the same in the same queue are of one class. Whoever of a class is refused, the rest of it would be,
too: what counts only grows meanwhile. So it takes time by the number of those that are admitted and of classes.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from berth.core.queues.admission import Ask, Minima, queue_refusal
from berth.core.queues.tree import Tree
from berth.schemas.refusal import QueueRefusal

PODS_MAX: Final = 10_000
"""Most pods of one queue that wait, by default; a larger gang is admitted alone."""
Place = tuple[int, int, int, str, str]
"""Place in its queue, the smallest first: rank by priority, whether it is not admitted, age, namespace, name or uid."""


class WaitingClass(NamedTuple):
    """What those that wait to be admitted have in common.

    Attributes:
        queue: Their queue.
        namespace: Their namespace.
        minimum: What the minimum of each asks for, by dimension.
        pods: Pods of the minimum.
        priority: Their priority.
        may_displace: They may displace others some day.
        is_declared: The minimum is declared.
    """

    queue: str
    namespace: str
    minimum: tuple[tuple[str, int], ...]
    pods: int
    priority: int
    may_displace: bool
    is_declared: bool

    @property
    def ask(self) -> Ask:
        """What one of it asks."""
        return Ask(self.queue, dict(self.minimum), self.namespace, self.priority, self.may_displace, self.is_declared)


class Counted(NamedTuple):
    """One that waits and is admitted.

    Attributes:
        place: Its place in its queue.
        queue: Its queue.
        namespace: Its namespace.
        minimum: What its minimum asks for.
        pods: Pods of the minimum.
    """

    place: Place
    queue: str
    namespace: str
    minimum: Mapping[str, int]
    pods: int


class Turns(Protocol):
    """Turns of queues, by which those that wait are asked."""

    def open(self, queues: Iterable[str]) -> None:
        """Begin with queues that have one that waits."""

    def next(self) -> str | None:
        """The queue that has the next turn; None without one."""

    def took(self, queue: str, charge: Mapping[str, int]) -> None:
        """Count what the first one of the queue that has its turn asks for."""

    def close(self, queue: str) -> None:
        """Note that the queue that has its turn has no further one."""


class NoTurns:
    """All of one line, whatever their queue."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def open(self, queues: Iterable[str]) -> None:
        """As :meth:`Turns.open`."""
        self._open = sorted(queues, reverse=True)

    def next(self) -> str | None:
        """As :meth:`Turns.next`."""
        return self._open[-1] if self._open else None

    def took(self, queue: str, charge: Mapping[str, int]) -> None:
        """It makes no difference."""

    def close(self, queue: str) -> None:
        """As :meth:`Turns.close`."""
        self._open.remove(queue)


class Outcome(NamedTuple):
    """Result of a walk along all that wait.

    Attributes:
        admitted: Places of those that are admitted, each with its class, in their order.
        refused: Why the others of each class wait.
    """

    admitted: Sequence[tuple[Place, WaitingClass]]
    refused: Mapping[WaitingClass, QueueRefusal]


class _Line:
    """Those of one line that wait, in order: a heap of the first ones of each class."""

    def __init__(self) -> None:
        self._counted: list[Counted] = []
        self._heap: list[tuple[Place, int, Counted | WaitingClass, Iterator[Place]]] = []
        self._pushed = 0

    def count(self, one: Counted) -> None:
        self._push(one.place, one, iter(()))

    def ask(self, asks: WaitingClass, places: Iterable[Place]) -> None:
        self.go_on(asks, iter(places))

    def go_on(self, asks: WaitingClass, places: Iterator[Place]) -> None:
        place = next(places, None)
        if place is not None:
            self._push(place, asks, places)

    def _push(self, place: Place, one: Counted | WaitingClass, places: Iterator[Place]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (place, self._pushed, one, places))

    def pop(self) -> tuple[Place, Counted | WaitingClass, Iterator[Place]] | None:
        if not self._heap:
            return None
        place, _, one, places = heapq.heappop(self._heap)
        return place, one, places


def admitted(
    tree: Tree,
    minima: Minima,
    turns: Turns,
    counted: Iterable[Counted],
    asking: Mapping[WaitingClass, Iterable[Place]],
    *,
    by_queue: bool,
    most: int,
    pods_max: int = PODS_MAX,
) -> Outcome:
    """Ask all that wait, as they have their turns.

    Args:
        tree: The queues.
        minima: Minima of what runs; it is changed.
        turns: Turns of the lines.
        counted: Those that wait and are admitted, in any order.
        asking: Places of the others by class, in order.
        by_queue: Each queue has a line; otherwise all have one.
        most: Nobody is asked any more once so many are admitted.
        pods_max: Most pods of one queue that wait.
    """
    lines: dict[str, _Line] = {}
    pods: Counter[str] = Counter()
    for known in counted:
        lines.setdefault(known.queue if by_queue else "", _Line()).count(known)
        pods[known.queue] += known.pods
    for asks, places in asking.items():
        lines.setdefault(asks.queue if by_queue else "", _Line()).ask(asks, places)
    found: list[tuple[Place, WaitingClass]] = []
    refused: dict[WaitingClass, QueueRefusal] = {}
    closed: dict[str, None] = {}
    """Fifo queues of which one was refused."""
    turns.open(lines)
    while len(found) < most and (name := turns.next()) is not None:
        step = lines[name].pop()
        if step is None:
            turns.close(name)
            continue
        place, one, places = step
        if isinstance(one, Counted):
            minima.admit(one.queue, one.minimum, namespace=one.namespace)
            turns.took(name, one.minimum)
            continue
        refusal = _refusal(tree, minima, one, waiting=pods[one.queue], is_behind=one.queue in closed, most=pods_max)
        if refusal is not None:
            refused[one] = refusal
            if (refusal.dimension or refusal.code == "too-many-pods") and tree.queues[one.queue].is_fifo:
                closed[one.queue] = None
            continue
        minimum = dict(one.minimum)
        minima.admit(one.queue, minimum, namespace=one.namespace)
        pods[one.queue] += one.pods
        turns.took(name, minimum)
        found.append((place, one))
        lines[name].go_on(one, places)
    return Outcome(found, refused)


def _refusal(
    tree: Tree, minima: Minima, asks: WaitingClass, *, waiting: int, is_behind: bool, most: int
) -> QueueRefusal | None:
    if is_behind:
        return queue_refusal(tree, asks.queue, asks.namespace) or QueueRefusal("behind-in-queue", asks.queue)
    refusal = minima.refusal(asks.ask)
    if refusal is None and waiting and waiting + asks.pods > most:
        refusal = QueueRefusal("too-many-pods", asks.queue, held=waiting, limit=most, asked=asks.pods)
    return refusal


def reason_of(refusal: QueueRefusal) -> QueueRefusal:
    """A refusal without what changes all the time, or is told from the tree as it is."""
    return _SHORT if refusal.dimension else msgspec.structs.replace(refusal, held=0, reason="")


_SHORT: Final = QueueRefusal("over-capability", "")
