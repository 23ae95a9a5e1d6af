"""When gangs last saved their work, as an annotation of their PodGroup or of the pod of rank 0 says.

A gang may be stamped often: its stamps are looked at once in :data:`APART_MS`, and its fact has the last one then. A
stamp that does not count then is not looked at again until it changes.

Source: docs/reference/workloads.md, "Preemption"; RFC 3339.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from berth.formats.kubernetes.bound_pods import quoted
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import PODGROUP_VERSION, PodGroup
from berth.schemas.facts import PodsSeen
from berth.schemas.intake import CHECKPOINT_AT
from berth.schemas.units import UnixMs, rfc3339, unix_ms
from berth.services.inventory.pod_rows import PodRow

APART_MS: Final = 30_000
"""Least time between two looks at the stamps of a gang, and so between two facts that differ in them."""
_CLOCKS_APART_MS: Final = 30_000
"""Clocks of nodes may be ahead by so much: such a stamp is one of now."""
_FORM: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)

Name: TypeAlias = tuple[str, str]
"""Namespace, and name of a job or a PodGroup."""


class _Stamp(NamedTuple):
    """What an object says: the value of its annotation, and the object."""

    text: str
    about: Involved


class _Judged(NamedTuple):
    """A stamp that was looked at.

    Attributes:
        stamp: The stamp.
        attempt: Uid and attempt of the job for which it was.
        at_ms: Its time; 0 if it does not count.
        wrong: Why it does not count, as a sentence; empty if it does.
    """

    stamp: _Stamp
    attempt: tuple[str, int]
    at_ms: UnixMs
    wrong: str


@dataclass(slots=True)
class _Gang:
    """A gang that was stamped: its stamps, that of the pod first, and when others are looked at."""

    judged: list[_Judged] = field(default_factory=list)
    next_ms: UnixMs = 0


class Checkpoints:
    """Stamps of all gangs."""

    def __init__(self) -> None:
        self._stamps: dict[Name, _Stamp] = {}
        """Of PodGroups that have one."""
        self._group_of: dict[Name, Name] = {}
        self._jobs_of: dict[Name, dict[Name, None]] = {}
        self._gangs: dict[Name, _Gang] = {}
        """By name of the job."""
        self._due: dict[Name, UnixMs] = {}
        """Gangs whose stamps are to be looked at, and when."""
        self._about: dict[str, Involved] = {}

    def replace_groups(self, groups: Iterable[PodGroup]) -> None:
        """Take all PodGroups."""
        gone = dict.fromkeys(self._stamps)
        for group in groups:
            gone.pop((group.metadata.namespace, group.metadata.name), None)
            self.set_group(group)
        for key in gone:
            self.drop_group(*key)

    def set_group(self, group: PodGroup) -> None:
        """Take the current state of a PodGroup."""
        meta = group.metadata
        text = meta.annotation(CHECKPOINT_AT)
        if not text:
            self.drop_group(meta.namespace, meta.name)
            return
        about = Involved(
            api_version=PODGROUP_VERSION, kind="PodGroup", namespace=meta.namespace, name=meta.name, uid=meta.uid
        )
        key, stamp = (meta.namespace, meta.name), _Stamp(text, about)
        if self._stamps.get(key) != stamp:
            self._stamps[key] = stamp
            self._set_due(self._jobs_of.get(key, ()))

    def drop_group(self, namespace: str, name: str) -> None:
        """Take that a PodGroup is gone, or says nothing any more."""
        if self._stamps.pop((namespace, name), None) is not None:
            self._set_due(self._jobs_of.get((namespace, name), ()))

    def restore(self, job: Name, seen: PodsSeen) -> None:
        """Take the fact that an earlier run published last."""
        if seen.checkpoint_ms:
            self._gangs[job] = _Gang(next_ms=seen.at_ms + APART_MS)

    def see(self, job: Name, before: PodRow | None, row: PodRow) -> bool:
        """Take a bound pod of a job; returns whether anything but its stamp is new.

        Args:
            job: The job.
            before: The pod as it was; None for a new one.
            row: The pod.
        """
        group, linked = (row.namespace, row.group), self._group_of.get(job)
        if row.group and group != linked:
            self._unlink(job)
            self._group_of[job] = group
            self._jobs_of.setdefault(group, {})[job] = None
        if before is None or before.checkpoint == row.checkpoint:
            return True
        self._set_due((job,))
        return msgspec.structs.replace(before, checkpoint=row.checkpoint) != row

    def of(
        self,
        job: Name,
        attempt: tuple[str, int],
        rows: Mapping[int, PodRow],
        published: PodsSeen | None,
        now_ms: UnixMs,
    ) -> UnixMs:
        """When a gang last saved its work; 0 if nothing says so.

        What was published of an attempt stays if nothing says otherwise: a pod of rank 0 that was made anew says
        nothing yet.

        Args:
            job: The job.
            attempt: Its uid and attempt.
            rows: Its pods, by rank.
            published: What was published of this attempt; None if nothing was.
            now_ms: The time.
        """
        before_ms = published.checkpoint_ms if published is not None else 0
        stamps, gang = self._stamps_of(job, rows), self._gangs.get(job)
        if gang is None:
            if not stamps:
                return before_ms
            gang = self._gangs[job] = _Gang()
        if [(one.stamp, one.attempt) for one in gang.judged] != [(stamp, attempt) for stamp in stamps]:
            if now_ms < gang.next_ms <= now_ms + APART_MS:
                self._due[job] = gang.next_ms
                return before_ms
            gang.next_ms = now_ms + APART_MS
            started = min((row.scheduled or row.created for row in rows.values()), default="")
            known = {(one.stamp, one.attempt): one for one in gang.judged}
            gang.judged = [
                known.get((stamp, attempt)) or _judged(stamp, attempt, unix_ms(started), now_ms) for stamp in stamps
            ]
        return max((one.at_ms for one in gang.judged), default=0) or before_ms

    def forget(self, job: Name) -> None:
        """Forget a job without pods."""
        self._unlink(job)
        self._gangs.pop(job, None)
        self._due.pop(job, None)

    def take_due(self, now_ms: UnixMs) -> dict[Name, None]:
        """Jobs whose stamps are to be looked at now."""
        found = dict.fromkeys(job for job, at_ms in self._due.items() if not now_ms < at_ms <= now_ms + APART_MS)
        for job in found:
            del self._due[job]
        return found

    def next_due_ms(self) -> UnixMs | None:
        """When :meth:`take_due` has more even if nothing changes; None for never."""
        return min(self._due.values(), default=None)

    def sentences(self) -> dict[str, str]:
        """Why stamps do not count, by uid of the object; one that counts for a job of its PodGroup is right."""
        found: dict[str, str] = {}
        right: set[str] = set()
        self._about = {}
        for gang in self._gangs.values():
            for one in gang.judged:
                uid = one.stamp.about.uid
                self._about[uid] = one.stamp.about
                if one.wrong:
                    found.setdefault(uid, one.wrong)
                else:
                    right.add(uid)
        return {uid: wrong for uid, wrong in found.items() if uid not in right}

    def involved(self, uid: str) -> Involved | None:
        """Object of a sentence."""
        return self._about.get(uid)

    def _set_due(self, jobs: Iterable[Name]) -> None:
        for job in jobs:
            gang = self._gangs.get(job)
            self._due[job] = gang.next_ms if gang is not None else 0

    def _unlink(self, job: Name) -> None:
        group = self._group_of.pop(job, None)
        if group is None:
            return
        jobs = self._jobs_of[group]
        del jobs[job]
        if not jobs:
            del self._jobs_of[group]

    def _stamps_of(self, job: Name, rows: Mapping[int, PodRow]) -> list[_Stamp]:
        first = rows.get(0)
        found = [_Stamp(first.checkpoint, first.involved)] if first is not None and first.checkpoint else []
        group = self._group_of.get(job)
        return found + ([self._stamps[group]] if group in self._stamps else [])


def _judged(stamp: _Stamp, attempt: tuple[str, int], start_ms: UnixMs, now_ms: UnixMs) -> _Judged:
    """Whether a stamp counts, by its form and its time."""
    at_ms = _time_ms(stamp.text)
    what = f"annotation {CHECKPOINT_AT} is {quoted(stamp.text)}: "
    if at_ms is None:
        return _Judged(stamp, attempt, 0, f"{what}expected a time of RFC 3339 such as {rfc3339(now_ms)}")
    if at_ms < start_ms:
        return _Judged(stamp, attempt, 0, f"{what}expected no time before {rfc3339(start_ms)}, the start of its pods")
    if at_ms > now_ms + _CLOCKS_APART_MS:
        return _Judged(stamp, attempt, 0, f"{what}expected no time in the future, it is {rfc3339(now_ms)}")
    return _Judged(stamp, attempt, min(at_ms, now_ms), "")


def _time_ms(text: str) -> UnixMs | None:
    """Time of an RFC 3339 text, 0 for one before 1970; None for another text."""
    if not _FORM.fullmatch(text):
        return None
    return unix_ms(text) or (0 if text < "1970" else None)
