"""Jobs on each leaf switch (ToR) and the resulting state of the leaf. Every event updates the counts incrementally.

A job counts from its decision until its last pod has ended; without the decision busy-from-decision it counts as in the
reference: for most rules only when it runs, and also without chips. The states that pods report for a leaf are merged
independently of their order: a leaf is unhealthy if any pod marks it so; it is shared if it is unhealthy or any pod
marks it shared; otherwise it is exclusive if any pod marks it so. In the reference an unhealthy leaf is not shared: it
stays free or exclusive, and no rule of 2.0 then takes it.

Source: docs/reference/switches.md, "Shared leaf states" and "Rebuilding leaf states". See decisions
busy-from-decision and order-free-merge.
"""

import functools
from enum import IntEnum
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from berth.core.copies import copied
from berth.core.parity import OWN, Differences
from berth.core.topologies.switches.occupancy.leaf_bits import (
    CROSS,
    EXCLUSIVE,
    LARGE,
    LARGE_CROSS,
    NORMAL,
    NOT_NORMAL,
    SHARED,
    STATE,
    UNHEALTHY,
)
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable

LARGE_PODS_MIN: Final = 4
"""A foundation-model job with fewer pods with chips is a padding job."""
Bits = npt.NDArray[np.uint8]


class JobPhase(IntEnum):
    """Progress of the pods of a job. Only the rules of the reference read it."""

    DECIDED = 0
    PARTLY = 1
    """Some of its pods run."""
    RUNNING = 2


class LeafJob(msgspec.Struct, frozen=True, gc=False):
    """A job with the properties that count for leaf states.

    Attributes:
        tor_affinity: Label of that name; empty if it is missing.
        pods: Number of pods with chips of the whole gang.
        nodes: Node of each placed pod.
        states: State byte of each pod in ``nodes``: ``isSharedTor`` plus 4 times ``isHealthy``; empty if all are 0.
        has_chips: The job has pods with chips.
        phase: Progress of its pods.
        is_part: Its other pods, if any, are recorded as jobs of their own, because pods of other schedulers are adopted
            one by one. The state that it reports for its leaf then shows whether it is on several leaves.
    """

    tor_affinity: str
    pods: int
    nodes: list[str]
    states: bytes = b""
    has_chips: bool = True
    phase: JobPhase = JobPhase.DECIDED
    is_part: bool = False

    @property
    def is_marked(self) -> bool:
        """Whether it is part of a job on several leaves. Only such a job reports anything but free and healthy."""
        return self.is_part and any(self.states)


class _Count(IntEnum):
    CROSS = 0
    NOT_NORMAL = 1
    LARGE_CROSS = 2
    SHARED = 3
    EXCLUSIVE = 4
    UNHEALTHY = 5


_BIT_OF_COUNT: Final = {
    _Count.UNHEALTHY: UNHEALTHY,
    _Count.CROSS: CROSS,
    _Count.NOT_NORMAL: NOT_NORMAL,
    _Count.LARGE_CROSS: LARGE_CROSS,
}
"""Bit that a nonzero count sets in the byte of its leaf."""

_Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Leaves of a job, ascending: ``int64[n]``; and what it adds to their counts: ``int32[counts, n]``."""
_Parts = int | _Columns
"""Contribution of a job to the counts. Most jobs are below one leaf and report no state; such a job is an integer: the
index of its leaf if it is not a common job, -1 if it adds to no count."""
_NOTHING: Final = -1


class LeafOccupancy:
    """Jobs by leaf, and the state of each leaf.

    Args:
        table: The leaves.
        differs: Which documented decisions about counting go Berth's way.
    """

    def __init__(self, table: LeafTable, differs: Differences = OWN) -> None:
        self.table = table
        self.differs = differs
        self._counts = np.zeros((len(_Count), len(table)), np.int32)
        self._bits_of = _bits_by_counts(merged_states=differs.merged_states)
        self._jobs: dict[tuple[str, int], tuple[LeafJob, _Parts]] = {}

    @property
    def follows_pods(self) -> bool:
        """Whether the progress of pods decides what counts (without the decision busy-from-decision)."""
        return not self.differs.busy_from_decision

    def fork(self) -> "LeafOccupancy":
        """A copy that is changed alone."""
        return copied(self, _counts=self._counts.copy(), _jobs=self._jobs.copy())

    def put(self, key: tuple[str, int], job: LeafJob) -> bool:
        """Add or update a job; returns whether some leaf may be open to more jobs than before."""
        known = self._jobs.get(key)
        if known is not None and known[0] == job:
            return False
        parts = self._parts(job)
        self._jobs[key] = (job, parts)
        return self._exchange(_NOTHING if known is None else known[1], parts)

    def drop(self, key: tuple[str, int]) -> bool:
        """Remove a job; returns whether some leaf may be open to more jobs than before."""
        known = self._jobs.pop(key, None)
        return known is not None and self._exchange(known[1], _NOTHING)

    def set(self, key: tuple[str, int], job: LeafJob | None) -> bool:
        """As :meth:`put`, or as :meth:`drop` for None."""
        return self.drop(key) if job is None else self.put(key, job)

    def _exchange(self, old: _Parts, new: _Parts) -> bool:
        """Replace the contribution ``old`` of a job by ``new``; returns whether some leaf may be open to more jobs."""
        if isinstance(old, int) and isinstance(new, int):
            if old >= 0:
                self._counts[_Count.NOT_NORMAL, old] -= 1
            if new >= 0:
                self._counts[_Count.NOT_NORMAL, new] += 1
            return old >= 0 and not self._counts[_Count.NOT_NORMAL, old]
        (lost, less), (won, more) = _columns(old), _columns(new)
        leaves = np.union1d(lost, won)
        before = self._bits(self._counts[:, leaves])
        self._counts[:, lost] -= less
        self._counts[:, won] += more
        after = self._bits(self._counts[:, leaves])
        # A leaf opens when a bit is cleared, and also when it becomes unhealthy: fewer rules then bar common jobs.
        opened = (before & ~after) | (after & ~before & UNHEALTHY)
        return bool(opened.any())

    def job(self, key: tuple[str, int]) -> LeafJob | None:
        """The recorded job; None if there is none."""
        known = self._jobs.get(key)
        return None if known is None else known[0]

    def jobs(self) -> dict[tuple[str, int], LeafJob]:
        """All recorded jobs."""
        return {key: job for key, (job, _) in self._jobs.items()}

    def bits(self, *, without: tuple[str, int] | None = None, instead: LeafJob | None = None) -> Bits:
        """State byte of each leaf: ``uint8[leaves]``.

        ``STATE`` (0 free, 1 shared, 2 exclusive), ``UNHEALTHY``, ``CROSS`` (a job is here and on another leaf),
        ``NOT_NORMAL`` (a job here is not a common job), ``LARGE_CROSS`` (a foundation-model job is here and on another
        leaf).

        Args:
            without: Job whose presence is not counted; the states that it reports still count.
            instead: What this job is taken to be; None for what it is.
        """
        known = self._jobs.get(without) if without is not None else None
        if known is None:
            return self._bits(self._counts)
        counts = self._counts.copy()
        leaves, amounts = _columns(known[1])
        if instead is not None:
            counts[:, leaves] -= amounts
            leaves, amounts = _columns(self._parts(instead))
            counts[:, leaves] += amounts
        rows = slice(_Count.CROSS, _Count.LARGE_CROSS + 1)
        counts[rows, leaves] -= amounts[rows]
        return self._bits(counts)

    def _parts(self, job: LeafJob) -> _Parts:
        """Contribution of a job to the counts."""
        if not len(self.table) or not (job.has_chips or self.follows_pods):
            return _NOTHING
        leaf_of = self.table.leaf_of
        if len(job.nodes) == 1 and not job.states:
            return leaf_of(job.nodes[0]) if job.tor_affinity != NORMAL else _NOTHING
        above = [leaf_of(node) for node in job.nodes]
        found = sorted(set(above) - {-1})
        if not found:
            return _NOTHING
        leaves = np.array(found, np.int64)
        amounts = np.zeros((len(_Count), len(found)), np.int32)
        if (len(found) > 1 or -1 in above or job.is_marked) and (
            not self.follows_pods or job.phase == JobPhase.RUNNING
        ):
            amounts[_Count.CROSS] = 1
            if job.tor_affinity == LARGE and (job.pods >= LARGE_PODS_MIN or job.is_marked):
                amounts[_Count.LARGE_CROSS] = 1
        if job.tor_affinity != NORMAL:
            amounts[_Count.NOT_NORMAL] = 1
        if job.states and (not self.follows_pods or (job.has_chips and job.phase != JobPhase.DECIDED)):
            place = {leaf: index for index, leaf in enumerate(found)}
            for leaf, state in zip(above, job.states, strict=True):
                if leaf >= 0 and state:
                    column = amounts[:, place[leaf]]
                    column[_Count.SHARED] += state & STATE == SHARED
                    column[_Count.EXCLUSIVE] += state & STATE == EXCLUSIVE
                    column[_Count.UNHEALTHY] += bool(state & UNHEALTHY)
        return leaves, amounts

    def _bits(self, counts: npt.NDArray[np.int32]) -> Bits:
        found: Bits = self._bits_of[np.packbits(counts > 0, axis=0, bitorder="little")[0]]
        return found


@functools.cache
def _bits_by_counts(*, merged_states: bool) -> Bits:
    """State byte of a leaf by its nonzero counts: bit n of the index is that of ``_Count`` n. Shape (64,)."""
    bits = np.zeros(1 << len(_Count), np.uint8)
    for index in range(len(bits)):
        some = {count for count in _Count if index >> count & 1}
        is_shared = _Count.SHARED in some or (_Count.UNHEALTHY in some and merged_states)
        state = SHARED if is_shared else EXCLUSIVE if _Count.EXCLUSIVE in some else 0
        marks = sum(_BIT_OF_COUNT[count] for count in _BIT_OF_COUNT if count in some)
        bits[index] = state + marks
    return bits


def _columns(parts: _Parts) -> _Columns:
    if not isinstance(parts, int):
        return parts
    leaves = np.array([parts] if parts >= 0 else [], np.int64)
    amounts = np.zeros((len(_Count), len(leaves)), np.int32)
    amounts[_Count.NOT_NORMAL] = 1
    return leaves, amounts
