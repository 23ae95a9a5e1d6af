"""What PodGroups say about faults of their jobs, as facts. Pure."""

from collections.abc import Iterable

import msgspec

from berth.formats.ascend.fault_marks import steering_annotations, steering_labels
from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.facts import MembersSeen, is_repeat
from berth.schemas.fault_facts import PROCESS_RECOVER, GroupSeen
from berth.schemas.units import UnixMs

Name = tuple[str, str]
"""Namespace and name."""


class SteeringGroups:
    """PodGroups with labels or annotations that steer faults, and the facts about them."""

    def __init__(self) -> None:
        self._groups: dict[Name, GroupSeen] = {}
        """Those with any, without their jobs."""
        self._group_of: dict[Name, str] = {}
        """PodGroup of each job request."""
        self._jobs_of: dict[Name, dict[str, None]] = {}
        """Job requests of each PodGroup."""
        self._published: dict[Name, GroupSeen] = {}
        self._dirty: dict[Name, None] = {}

    def restore(self, published: Iterable[GroupSeen]) -> None:
        """Restore the facts that earlier runs published last."""
        for fact in published:
            if not fact.gone:
                self._published[fact.namespace, fact.name] = fact
                self._dirty[fact.namespace, fact.name] = None

    def replace(self, groups: Iterable[PodGroup]) -> None:
        """Take all PodGroups."""
        self._dirty.update(dict.fromkeys(self._groups))
        self._groups = {}
        for group in groups:
            self.put(group)

    def put(self, group: PodGroup) -> None:
        """Take the current state of a PodGroup."""
        meta = group.metadata
        labels, annotations = steering_labels(meta.labels or {}), steering_annotations(meta.annotations or {})
        if not labels and not annotations:
            self.drop(meta.namespace, meta.name)
            return
        key = (meta.namespace, meta.name)
        self._groups[key] = GroupSeen(*key, uid=meta.uid, labels=labels, annotations=annotations)
        self._dirty[key] = None

    def drop(self, namespace: str, name: str) -> None:
        """Take that a PodGroup is gone."""
        if self._groups.pop((namespace, name), None) is not None:
            self._dirty[namespace, name] = None

    def note_members(self, seen: MembersSeen) -> None:
        """Take the pods of a job request, and its PodGroup; without pods it has none."""
        job = (seen.namespace, seen.job)
        now, before = seen.podgroup if seen.rank else "", self._group_of.pop(job, "")
        if now:
            self._group_of[job] = now
        if now == before:
            return
        for group in filter(None, (before, now)):
            self._dirty[seen.namespace, group] = None
        if before:
            jobs = self._jobs_of[seen.namespace, before]
            del jobs[seen.job]
            if not jobs:
                del self._jobs_of[seen.namespace, before]
        if now:
            self._jobs_of.setdefault((seen.namespace, now), {})[seen.job] = None

    def due(self, at_ms: UnixMs) -> list[GroupSeen]:
        """Facts that differ from the published ones, by namespace and name."""
        facts: list[GroupSeen] = []
        for key in sorted(self._dirty):
            published, group = self._published.get(key), self._groups.get(key)
            fact = GroupSeen(*key, gone=True)
            if group is not None:
                jobs = sorted(self._jobs_of.get(key, ()))
                fact = msgspec.structs.replace(group, jobs=jobs, recover_ms=_recover_ms(group, published, at_ms))
            if is_repeat(published, fact) or (published is None and fact.gone):
                del self._dirty[key]
            else:
                facts.append(msgspec.structs.replace(fact, at_ms=at_ms))
        return facts

    def note_published(self, fact: GroupSeen) -> None:
        """Note that a fact was published."""
        key = (fact.namespace, fact.name)
        if fact.gone:
            self._published.pop(key, None)
        else:
            self._published[key] = fact


def _recover_ms(group: GroupSeen, published: GroupSeen | None, at_ms: UnixMs) -> UnixMs:
    """Since when process recovery of a PodGroup is as its label says; 0 without the label."""
    value = group.labels.get(PROCESS_RECOVER)
    if value is None:
        return 0
    if published is None or published.uid != group.uid or published.labels.get(PROCESS_RECOVER) != value:
        return at_ms
    return published.recover_ms or published.at_ms
