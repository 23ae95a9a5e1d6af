"""What waits for a time before it is decided: jobs with a pause, and places of pods that were deleted or have failed.

A job whose pods could not be bound is not placed for a while, nor is one whose last try took much work. The place of a
pod of a gang that runs, which was deleted or has failed, is not given to others before the controller can have made the
pod again, and that has been requested: then the order of the queue decides.

Both follow from the state and the moment of the turn, also after the clock was set back.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from berth.core.requests.gangs import accepted_of
from berth.core.requests.job_validation import gang_pods
from berth.core.scheduling.queue import Queue
from berth.core.state.cell import JobKey, State
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.pod_phases import ENDED, rows_of
from berth.core.state.records.entries import GangRecord
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import FROM_PODS

KEEP_MS: Final = 3_000
"""How long the place of such a pod is kept: controllers make pods again within a second, and that is requested."""
_LOST: Final = frozenset({PodPhase.GONE, PodPhase.FAILED})
"""Phases in which a controller makes a pod again: it was deleted, evicted by its kubelet, or has crashed."""


class Delays:
    """What waits for a time in one cell.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: dict[JobKey, None] = {}
        """Jobs that wait with a pause, whether it is over or not."""
        self.kept_ms: dict[str, int] = {}
        """Until when places of gangs (uid) are kept, as the newest turn found: it left these gangs out."""
        self.now_ms = 0
        """The moment: of the newest turn, or of the newest record before the first turn."""

    def see(self, key: JobKey, gang: GangRecord | None) -> bool:
        """Note a job that waits, by its record if it has one; returns whether it may not be placed now."""
        if gang is None or not gang.retry_ms:
            return False
        self._jobs[key] = None
        return gang.pauses_at(self.now_ms)

    def advance(self, at_ms: int) -> dict[JobKey, None]:
        """Go to a moment, and return the jobs whose pause is over by then, or is not over although it was."""
        before = {key: gang.pauses_at(self.now_ms) for key, gang in self._records()}
        self._jobs = dict.fromkeys(before)
        self.now_ms = at_ms
        return {key: None for key, gang in self._records() if gang.pauses_at(at_ms) != before[key]}

    def unkept(self, gangs: Iterable[str], queue: Queue) -> list[str]:
        """Gangs (uid) that may be examined now; those are left out whose places are kept."""
        self.kept_ms = {uid: until_ms for uid in gangs if (until_ms := self._keeps(uid)) > self.now_ms}
        if self.kept_ms:
            waiting = {gang.accepted_seq for gang in queue.gangs()}
            self.kept_ms = {uid: until for uid, until in self.kept_ms.items() if self._age(uid) not in waiting}
        return [uid for uid in gangs if uid not in self.kept_ms]

    def moments(self) -> Iterator[int]:
        """When pauses end that are not over, and when places are kept no longer."""
        yield from (gang.retry_ms for _, gang in self._records() if gang.pauses_at(self.now_ms))
        yield from self.kept_ms.values()

    def _keeps(self, uid: str) -> int:
        """Until when places of a gang may be kept; 0 if they are not, because nobody makes such a pod again."""
        state = self._state
        record = state.fold.gangs.get(uid)
        holding = state.fold.holdings.get((uid, record.attempt)) if record is not None else None
        if holding is None or holding.ending:
            return 0
        job, seen = self._job(holding), state.pods_seen(holding)
        if job is None or job.request is None or job.state != "accepted" or job.request.origin != FROM_PODS:
            return 0
        if seen is None or self.now_ms < seen.at_ms:
            return 0
        is_part = gang_pods(job.request) > holding.placement.pods()
        return seen.at_ms + KEEP_MS if _has_lost(holding, seen, is_part=is_part) else 0

    def _job(self, holding: Holding) -> JobSeen | None:
        job = self._state.jobs.get((holding.namespace, holding.name))
        return job if job is not None and job.uid == holding.uid else None

    def _age(self, uid: str) -> int:
        """Place in the queue of a gang (uid) that runs: requests for ranks that it has lost have the same."""
        key = self._state.name_of.get(uid)
        job = self._state.jobs.get(key) if key is not None else None
        return accepted_of(job, job.request) if job is not None and job.request is not None else 0

    def _records(self) -> list[tuple[JobKey, GangRecord]]:
        """Jobs that wait with a pause, and their records."""
        jobs, gangs = self._state.jobs, self._state.fold.gangs
        found = ((key, gangs.get(job.uid)) for key in self._jobs if (job := jobs.get(key)) is not None)
        return [(key, gang) for key, gang in found if gang is not None and gang.phase == "waiting" and gang.retry_ms]


def _has_lost(holding: Holding, seen: PodsSeen, *, is_part: bool) -> bool:
    """Whether a pod is gone or has failed while others of its gang run; ``is_part``: those may have their own requests.

    Ranks that leave for a fault do not count: they get other places.
    """
    if _LOST.isdisjoint(seen.phase):
        return False
    phases = {rank: phase for rank, phase in rows_of(holding, seen) if rank not in holding.gone}
    stays = phases.keys() - holding.leaving().keys()
    is_lost = any(phases[rank] in _LOST for rank in stays)
    return is_lost and (is_part or any(phase not in ENDED for phase in phases.values()))
