"""Run times of ended jobs, as estimates for similar jobs.

Jobs are similar if they have the same namespace and the same number of chips. The estimate is the mean of the last two:
users repeat their jobs, and older ones add nothing. It follows from the records alone.

Decisions rest on that. An expected start, on which none rests, looks closer: at the last jobs with the same stem of
their name as well, and at how much these differ. The stem of a name is what is left without the parts at its end that
tell runs apart: numbers, and words of five and more letters with a digit in them, as times and hashes are.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

LIKES_MAX: Final = 10_000
"""Most kinds of jobs in the table; beyond it the kind whose last job ended first is removed."""
TIMES_MAX: Final = 16
"""Run times that are kept of the jobs of a stem: those of the last ones."""
_NONE: Final = -1
_LOW, _HIGH = 20, 80
"""Percentiles of a range."""
_RUN: Final = re.compile(r"(?<=.)[-.](?:[0-9]+|(?=[a-z]*[0-9])[a-z0-9]{5,})\Z")
"""A part at the end of a name that tells runs apart."""


class RunTime(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Run times of the last two similar jobs in milliseconds; ``before_ms`` is -1 if there was only one."""

    namespace: str
    chips: int
    last_ms: int
    before_ms: int = _NONE

    @property
    def mean_ms(self) -> int:
        """Estimate for the next job."""
        return self.last_ms if self.before_ms == _NONE else (self.last_ms + self.before_ms) // 2


class StemTimes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Run times of the last jobs of a namespace that have a stem of their name and a number of chips in common."""

    namespace: str
    name: str
    """The stem."""
    chips: int
    times: tuple[int, ...]
    """In milliseconds, that of the last job at the end; :data:`TIMES_MAX` at most."""


class Range(NamedTuple):
    """Between what a run time is expected to be, in milliseconds: percentiles 20 and 80 of those of similar jobs."""

    low_ms: int
    high_ms: int


class RunTimes:
    """Estimates by namespace and number of chips, and ranges by the stem of a name, too."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], RunTime] = {}
        """The kind whose last job ended last is the last one."""
        self._stems: dict[tuple[str, str, int], StemTimes] = {}
        """Likewise."""

    def note(self, namespace: str, name: str, chips: int, run_ms: int) -> None:
        """Record the run time of a job that ended."""
        run_ms = max(0, run_ms)
        stem = (namespace, stem_of(name), chips)
        former = self._stems.pop(stem, None)
        times = (*(former.times if former is not None else ()), run_ms)[-TIMES_MAX:]
        self._stems[stem] = StemTimes(*stem, times)
        if len(self._stems) > LIKES_MAX:
            del self._stems[next(iter(self._stems))]
        key = (namespace, chips)
        before = self._known.pop(key, None)
        self._known[key] = RunTime(namespace, chips, run_ms, _NONE if before is None else before.last_ms)
        if len(self._known) > LIKES_MAX:
            del self._known[next(iter(self._known))]

    def estimate_ms(self, namespace: str, chips: int) -> int | None:
        """Estimated run time of a job; None if no similar job has ended."""
        known = self._known.get((namespace, chips))
        return None if known is None else known.mean_ms

    def range_ms(self, namespace: str, name: str, chips: int, *, beyond_ms: int = -1) -> Range | None:
        """Range of the run time of a job by those of its stem; without any by the last two of its size.

        Args:
            namespace: Of the job.
            name: Its name.
            chips: All of its chips.
            beyond_ms: It runs for so long already: only jobs that ran longer tell when it ends.

        Returns:
            The range; None if no such job has ended.
        """
        stem, like = self._stems.get((namespace, stem_of(name), chips)), self._known.get((namespace, chips))
        times: Sequence[int] = ()
        if stem is not None:
            times = stem.times
        elif like is not None:
            times = (like.last_ms,) if like.before_ms == _NONE else (like.last_ms, like.before_ms)
        longer = sorted(one for one in times if one > beyond_ms)
        return Range(_percentile(longer, _LOW), _percentile(longer, _HIGH)) if longer else None

    def dump(self) -> list[RunTime]:
        """All kinds, the one whose last job ended last at the end."""
        return list(self._known.values())

    def dump_stems(self) -> list[StemTimes]:
        """All stems, likewise."""
        return list(self._stems.values())

    def load(self, known: Iterable[RunTime], stems: Iterable[StemTimes] = ()) -> None:
        """Restore the results of :meth:`dump` and :meth:`dump_stems`."""
        self._known = {(one.namespace, one.chips): one for one in known}
        self._stems = {(one.namespace, one.name, one.chips): one for one in stems}


def stem_of(name: str) -> str:
    """Stem of the name of a job: ``train`` of ``train-20261130-3`` and of ``train-x7k2p``."""
    while (found := _RUN.search(name)) is not None:
        name = name[: found.start()]
    return name


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """A percentile of numbers in ascending order: the nearest of them, for low ones below and for high ones above."""
    last = len(ordered) - 1
    return ordered[last * percent // 100 if percent <= _LOW else -(-last * percent // 100)]
