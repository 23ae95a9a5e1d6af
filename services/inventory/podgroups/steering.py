"""What PodGroups say about faults of their jobs, and what they wait for, as facts. Pure."""

from collections.abc import Iterable

import msgspec

from berth.formats.ascend.fault_marks import steering_annotations, steering_labels
from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.facts import MembersSeen, is_repeat
from berth.schemas.fault_facts import PROCESS_RECOVER, GroupSeen
from berth.schemas.units import UnixMs
from berth.services.inventory.podgroups.queue_admission import Name, Told


class SteeringGroups:
    """PodGroups with labels or annotations that steer faults, or that wait for their queue, and facts about them."""

    def __init__(self) -> None:
        self._groups: dict[Name, GroupSeen] = {}
        """Those with any, without their jobs."""
        self._group_of: dict[Name, str] = {}
        """PodGroup of each job request."""
        self._jobs_of: dict[Name, dict[str, None]] = {}
        """Job requests of each PodGroup."""
        self._existing: dict[Name, None] = {}
        self._told: dict[Name, Told | None] = {}
        """What PodGroups ask for; what the last run said counts for those of which nothing is known yet."""
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
        self._dirty.update(dict.fromkeys(self._existing))
        self._groups, self._existing = {}, {}
        for group in groups:
            self.put(group)

    def tell(self, told: dict[Name, Told | None]) -> None:
        """Take, and clear, what PodGroups ask for; None for those that need no decision of the dispatcher."""
        self._told.update(told)
        self._dirty.update(dict.fromkeys(told))
        told.clear()

    def put(self, group: PodGroup) -> None:
        """Take the current state of a PodGroup."""
        meta = group.metadata
        self._existing[meta.namespace, meta.name] = None
        labels, annotations = steering_labels(meta.labels or {}), steering_annotations(meta.annotations or {})
        key = (meta.namespace, meta.name)
        if not labels and not annotations:
            if self._groups.pop(key, None) is not None:
                self._dirty[key] = None
            return
        self._groups[key] = GroupSeen(*key, uid=meta.uid, labels=labels, annotations=annotations)
        self._dirty[key] = None

    def drop(self, namespace: str, name: str) -> None:
        """Take that a PodGroup is gone."""
        key = (namespace, name)
        if any([self._groups.pop(key, None), self._told.pop(key, None), key in self._published]):
            self._dirty[key] = None
        self._existing.pop(key, None)

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
            told = self._told_of(key, published)
            fact = GroupSeen(*key, gone=True)
            if group is not None:
                jobs = sorted(self._jobs_of.get(key, ()))
                fact = msgspec.structs.replace(group, jobs=jobs, recover_ms=_recover_ms(group, published, at_ms))
            if told is not None:
                fact = msgspec.structs.replace(fact, uid=told[0], gone=False, waiting=told[1])
            if is_repeat(published, fact) or (published is None and fact.gone):
                del self._dirty[key]
            else:
                facts.append(msgspec.structs.replace(fact, at_ms=at_ms))
        return facts

    def _told_of(self, key: Name, published: GroupSeen | None) -> Told | None:
        """What a PodGroup asks for; whether it was admitted is as it was when that was told of first."""
        before = published.waiting if published is not None else None
        if key not in self._existing:
            return None
        if key not in self._told:
            return (published.uid, before) if published is not None and before is not None else None
        told = self._told[key]
        if told is None or before is None or published is None or published.uid != told[0]:
            return told
        return told[0], msgspec.structs.replace(told[1], is_admitted=before.is_admitted)

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
