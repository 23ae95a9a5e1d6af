"""Gangs: pods that belong together become job requests, and stay the pods of their requests.

A state machine without clock or wire: what was seen goes in, :meth:`Gangs.settle` says what is to be done. Work is done
for the gangs that something has touched, in the order of their keys. What was told in the facts is enough to go on after a
restart: names, uids and ranks of requests are read back from there.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

import heapq

from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.pods import PodAsks
from berth.formats.kubernetes.workloads import GangKey, base_name, group_owner
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen
from berth.schemas.status import JobStatus
from berth.services.inventory.effects import Effect, ReadOwner
from berth.services.inventory.gangs.model import Gang, member_of
from berth.services.inventory.gangs.resolver import Name, Resolver
from berth.services.inventory.gangs.restoring import part_from
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.podgroups.collection import Capacity, Groups
from berth.services.inventory.podgroups.pods import GroupPods, group_pods

_LOST = "lost"
"""Kind of gangs of which only requests are left."""


class Gangs:
    """All gangs of a cluster whose pods are Berth's to place, and all Volcano PodGroups."""

    def __init__(self, settings: GangSettings) -> None:
        self._settings = settings
        self._schedulers = frozenset(settings.scheduler_names)
        self._asks = PodAsks()
        self._resolver = Resolver(settings)
        self._gangs: dict[GangKey, Gang] = {}
        self._gang_of: dict[str, GangKey] = {}
        """Gang of each pod, by its uid."""
        self._dirty: dict[GangKey, None] = {}
        self._due: list[tuple[int, GangKey]] = []
        self._shown: dict[Name, PodGroup] = {}
        self._groups = Groups(settings)
        self._foreign: dict[str, Name] = {}
        """PodGroup of each pod that others place, by its uid."""
        self._foreign_pods: dict[Name, int] = {}
        self._restored: dict[Name, tuple[MembersSeen, JobSeen | None]] = {}
        self._early: list[JobSeen | JobStatus | OutcomeSeen] | None = []
        """What was noted before the first :meth:`settle`, when requests are given to their gangs; None after that."""
        self._podless: dict[Name, MembersSeen] | None = {}
        """What was told of requests without pods, until they are given to their gangs; None after that."""

    def restore(self, seen: MembersSeen, job: JobSeen | None) -> None:
        """Take back what was told before the start; all of it before the first :meth:`settle`, in any order with the rest.

        Args:
            seen: What was told of a request's pods.
            job: Verdict on the name, if there is one.
        """
        if job is not None:
            self._resolver.note_job(job)
        name = (seen.namespace, seen.job)
        if not seen.pod_uids:
            if self._podless is not None and self._early is not None and job is not None:
                self._podless[name] = seen
                self._early.append(job)
            return
        self._resolver.told[name] = seen
        self._restored[name] = (seen, job)

    def set_pod(self, pod: Pod) -> None:
        """A pod is there, or has changed; pods of all schedulers may be given."""
        uid = pod.metadata.uid
        if pod.spec.scheduler_name not in self._schedulers:
            self._set_foreign(pod)
            return
        member = member_of(pod, self._asks)
        key = member.place.key
        if self._gang_of.get(uid, key) != key or uid in self._foreign:
            self.drop_pod(uid)
        self._gang(key).members[uid] = member
        self._gang_of[uid] = key
        self._touch(key)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        group = self._foreign.pop(uid, None)
        if group is not None:
            self._foreign_pods[group] -= 1
            if not self._foreign_pods[group]:
                del self._foreign_pods[group]
            self._groups.touch(group)
        key = self._gang_of.pop(uid, None)
        if key is not None:
            del self._gangs[key].members[uid]
            self._touch(key)

    def set_group(self, group: PodGroup) -> None:
        """A Volcano PodGroup is there, or has changed."""
        name = (group.metadata.namespace, group.metadata.name)
        self._shown[name] = group
        self._groups.set(group)
        self._touch(GangKey("podgroup", *name))

    def drop_group(self, namespace: str, name: str) -> None:
        """A Volcano PodGroup is gone."""
        if self._shown.pop((namespace, name), None) is None:
            return
        self._groups.drop((namespace, name))
        key = GangKey("podgroup", namespace, name)
        if key not in self._gangs:
            self._resolver.lookups.use(key, None)
        self._touch(key)

    def set_owner(self, key: OwnerKey, facts: OwnerFacts | None) -> None:
        """Answer to a look-up; None when the object is not there, not served, or must not be read."""
        for gang in self._resolver.lookups.answer(key, facts):
            self._touch(gang)

    def set_capacity(self, capacity: Capacity) -> None:
        """What is free on nodes that take work; no PodGroup is let in before it is known."""
        self._groups.set_capacity(capacity)

    def group_failed(self, namespace: str, name: str) -> None:
        """A patch of a PodGroup was given up."""
        self._groups.failed((namespace, name))

    def note_job(self, seen: JobSeen) -> None:
        """Note the verdict on a job's name; jobs that were not made here are ignored."""
        self._resolver.note_job(seen)
        if self._early is not None:
            self._early.append(seen)
        gang = self._gang_named(seen.namespace, seen.name)
        part = gang.parts.get(seen.name) if gang is not None else None
        if gang is None or part is None:
            self._take_up(seen)
        elif part.note_job(seen):
            self._touch(gang.key)

    def note_status(self, status: JobStatus) -> None:
        """Note where a job stands; jobs that were not made here are ignored."""
        self._resolver.note_status(status)
        if self._early is not None:
            self._early.append(status)
        gang = self._gang_named(status.namespace, status.name)
        if gang is None:
            return
        part = gang.parts.get(status.name)
        if part is not None and part.note_status(status):
            self._touch(gang.key)

    def note_outcome(self, outcome: OutcomeSeen) -> None:
        """Note what the binder achieved; jobs that were not made here are ignored."""
        if self._early is not None:
            self._early.append(outcome)
        gang = self._gang_named(outcome.namespace, outcome.name)
        part = gang.parts.get(outcome.name) if gang is not None else None
        if gang is None or part is None or not part.note_outcome(outcome):
            return
        if outcome.state == "bound":
            gang.failures = 0
        self._touch(gang.key)

    def settle(self, now_ms: int) -> list[Effect]:
        """What is to be done now, in order; nothing when nothing has changed since the last time."""
        self._attach()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._due)
            if self._is_due(key, at_ms):
                self._touch(key)
        touched, self._dirty = sorted(self._dirty), {}
        effects: list[Effect] = []
        for key in touched:
            effects += self._settle_gang(key, now_ms)
        looks: list[Effect] = []
        patches = self._groups.settle(lambda group: self._pods_of(group, looks, now_ms), now_ms)
        return [*effects, *looks, *patches]

    def next_due_ms(self) -> int | None:
        """When :meth:`settle` must be called though nothing happens; None for never."""
        while self._due and not self._is_due(self._due[0][1], self._due[0][0]):
            heapq.heappop(self._due)
        own = self._due[0][0] if self._due else None
        return min((at_ms for at_ms in (own, self._groups.next_due_ms()) if at_ms is not None), default=None)

    def told(self, namespace: str, name: str) -> MembersSeen | None:
        """What was told last under a name."""
        return self._resolver.told.get((namespace, name))

    def has_pods(self, namespace: str, name: str) -> bool:
        """Whether a PodGroup has pods."""
        gang = self._gangs.get(GangKey("podgroup", namespace, name))
        return gang is not None and bool(gang.members)

    def group_uid(self, namespace: str, name: str) -> str:
        """Uid of a PodGroup; empty when it is not there."""
        group = self._shown.get((namespace, name))
        return group.metadata.uid if group is not None else ""

    @property
    def held(self) -> int:
        """Names under which pods are held."""
        return sum(1 for seen in self._resolver.told.values() if seen.hold)

    @property
    def parts(self) -> int:
        """Requests whose pods there are."""
        return sum(len(gang.parts) for gang in self._gangs.values())

    def _settle_gang(self, key: GangKey, now_ms: int) -> list[Effect]:
        gang = self._gangs.get(key)
        if gang is None:
            return []
        effects = self._resolver.settle(gang, self._shown_of(key), now_ms)
        if gang.due_ms is not None:
            heapq.heappush(self._due, (gang.due_ms, key))
        if gang.is_empty:
            del self._gangs[key]
        if key.kind == "podgroup":
            self._groups.touch((key.namespace, key.name))
        return effects

    def _pods_of(self, group: PodGroup, looks: list[Effect], now_ms: int) -> GroupPods:
        """What is known of a PodGroup's pods; adds what must be read to know whose they are."""
        name = (group.metadata.namespace, group.metadata.name)
        key = GangKey("podgroup", *name)
        gang = self._gangs.get(key)
        if gang is not None and gang.members:
            return group_pods(gang, self._resolver.told)
        if name in self._foreign_pods:
            return GroupPods(is_ours=False)
        look = group_owner(group)
        self._resolver.lookups.use(key, look)
        looked = self._resolver.lookups.looked(key, now_ms)
        if look is not None and not looked.is_known:
            asked = self._resolver.lookups.ask(key)
            looks += [ReadOwner(asked)] if asked is not None else []
            return GroupPods(is_ours=None)
        scheduler = looked.facts.scheduler_name if looked.facts is not None else ""
        return GroupPods(is_ours=scheduler in self._schedulers if scheduler else self._takes_unknown)

    @property
    def _takes_unknown(self) -> bool:
        told = self._settings.groups_without_scheduler
        return "volcano" in self._schedulers if told is None else told

    def _set_foreign(self, pod: Pod) -> None:
        """A pod that others place: its PodGroup is theirs too."""
        uid, name = pod.metadata.uid, pod.metadata.annotation(GROUP_NAME)
        group = (pod.metadata.namespace, name) if name else None
        if uid in self._gang_of or self._foreign.get(uid, group) != group:
            self.drop_pod(uid)
        if group is not None and uid not in self._foreign:
            self._foreign[uid] = group
            self._foreign_pods[group] = self._foreign_pods.get(group, 0) + 1
            self._groups.touch(group)

    def _take_up(self, job: JobSeen) -> None:
        """A request that nobody remembers: its pods vanished, and then so did who was to take it back in time."""
        name = (job.namespace, job.name)
        if self._early is not None or job.state != "accepted" or not self._resolver.is_open(name, job.uid):
            return
        if self._podless is None:
            seen = MembersSeen(job.namespace, job.name, job.uid)
        elif name in self._podless and self._podless[name].uid == job.uid:
            seen = self._podless[name]
        else:
            return  # its pods may be there: they are asked for anew, under the same uid
        key = GangKey("podgroup", job.namespace, seen.podgroup) if seen.podgroup else GangKey(_LOST, *name)
        gang = self._gang(key)
        gang.parts[job.name] = part_from(seen, job, gang, is_first=False)
        self._resolver.names[name] = gang.key
        self._touch(gang.key)

    def _gang(self, key: GangKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def _gang_named(self, namespace: str, name: str) -> Gang | None:
        key = self._resolver.names.get((namespace, name))
        return self._gangs.get(key) if key is not None else None

    def _touch(self, key: GangKey) -> None:
        if key in self._gangs:
            self._dirty[key] = None
        if key.kind == "podgroup":
            self._groups.touch((key.namespace, key.name))

    def _is_due(self, key: GangKey, at_ms: int) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.due_ms == at_ms

    def _shown_of(self, key: GangKey) -> PodGroup | None:
        return self._shown.get((key.namespace, key.name)) if key.kind == "podgroup" else None

    def _attach(self) -> None:
        """Give what was told before the start to the gangs of its pods."""
        restored, self._restored = self._restored, {}
        early, self._early = self._early or [], None
        by_owner = {key.uid: key for key in sorted(self._gangs) if key.uid} if restored else {}
        for _, (seen, job) in sorted(restored.items(), key=lambda item: item[0]):
            known = (self._gang_of[uid] for uid in seen.pod_uids if uid in self._gang_of)
            group = (
                GangKey("podgroup", seen.namespace, seen.podgroup) if seen.podgroup else by_owner.get(seen.owner.uid)
            )
            gang = self._gang(next(known, None) or group or GangKey(_LOST, seen.namespace, seen.job))
            gang.told[seen.job] = None
            self._resolver.names[seen.namespace, seen.job] = gang.key
            if seen.uid:
                is_first = seen.job == base_name(gang.key, self._shown_of(gang.key))
                gang.parts[seen.job] = part_from(seen, job, gang, is_first=is_first)
            self._touch(gang.key)
        for note in early:
            match note:
                case JobSeen():
                    self.note_job(note)
                case JobStatus():
                    self.note_status(note)
                case OutcomeSeen():
                    self.note_outcome(note)
        self._podless = None
