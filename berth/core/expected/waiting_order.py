"""Order of the jobs that wait, and the position of each: in the cell and in its queue.

Gangs with chips and those without have positions of their own, as they have lanes of their own. Where queues have
turns, the order is that of the turns, each gang counted as if it were placed.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.gangs import Gang
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turns import Entry, Turns, in_turns
from berth.core.state.ledger import chips_in
from berth.schemas.queues.queue import DEFAULT

NO_QUEUES: Final[Mapping[str, str]] = {}


class Place(NamedTuple):
    """Where a gang is in the order.

    Attributes:
        queue: The queue that its request names, whether queues do anything or not.
        position: In its lane, from 1 on.
        chips_ahead: Chips of the gangs before it there.
        queue_position: Among those of its queue, from 1 on.
        queue_chips_ahead: Chips of those before it there.
    """

    queue: str
    position: int
    chips_ahead: int
    queue_position: int
    queue_chips_ahead: int


class WaitingOrder:
    """Gangs that wait, those with chips first, each lane in its order.

    Args:
        scheduler: Its state is read.
        gangs: The gangs.
        queues: Queues of gangs (uid) that no job has requested.
    """

    def __init__(self, scheduler: Scheduler, gangs: Iterable[Gang], queues: Mapping[str, str] = NO_QUEUES) -> None:
        self._scheduler = scheduler
        self._queues = queues
        self.lanes: tuple[Sequence[Gang], Sequence[Gang]] = ([], [])
        """Gangs with chips, and those without."""
        self.places: dict[str, Place] = {}
        """By uid."""
        lanes: tuple[list[Gang], list[Gang]] = ([], [])
        for gang in gangs:
            lanes[gang.is_plain].append(gang)
        self.lanes = tuple(_in_order(lane, scheduler.rules.turns(scheduler.state)) for lane in lanes)  # type: ignore[assignment]  # two of them
        for lane in self.lanes:
            self.places.update(self._placed(lane))

    def _placed(self, lane: Sequence[Gang]) -> Iterator[tuple[str, Place]]:
        chips = 0
        of_queue: dict[str, tuple[int, int]] = {}
        for index, gang in enumerate(lane):
            queue = self._queues.get(gang.uid) or queue_of(self._scheduler, gang)
            jobs, queue_chips = of_queue.get(queue, (0, 0))
            yield gang.uid, Place(queue, index + 1, chips, jobs + 1, queue_chips)
            own = chips_in(gang.runs)
            chips += own
            of_queue[queue] = (jobs + 1, queue_chips + own)


def queue_of(scheduler: Scheduler, gang: Gang) -> str:
    """The queue that a gang names."""
    job = scheduler.state.jobs.get((gang.namespace, gang.name))
    if job is not None and job.uid == gang.uid and job.request is not None:
        return job.request.queue or DEFAULT
    return gang.queue or DEFAULT


def _in_order(gangs: Sequence[Gang], turns: Turns | None) -> list[Gang]:
    gangs = sorted(gangs, key=lambda gang: gang.order)
    if turns is None:
        return gangs
    lines: dict[str, list[Entry]] = {}
    for gang in gangs:
        lines.setdefault(gang.line, []).append((gang.order, gang))
    opened = {line: functools.partial(iter, entries) for line, entries in sorted(lines.items())}
    return [gang for _, gang in in_turns(opened, turns)]
