"""Gangs: pods that belong together become job requests, and stay the pods of their requests.

A state machine without clock and I/O: observations go in, :meth:`Gangs.settle` returns the effects. Only gangs that
changed are processed, in the order of their keys. The published facts are enough for a restart: names, uids and ranks
of requests are read back from them.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

import heapq
from typing import Final

from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.pods import PodAsks
from berth.formats.kubernetes.workloads import GangKey, base_name, group_owner
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen
from berth.schemas.status import JobStatus
from berth.services.inventory.effects import Effect, ReadOwner
from berth.services.inventory.gangs.completeness import Completeness
from berth.services.inventory.gangs.model import Gang, member_of
from berth.services.inventory.gangs.resolver import Name, Resolver
from berth.services.inventory.gangs.restoring import part_from
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.podgroups.collection import Capacity, Groups
from berth.services.inventory.podgroups.pods import GroupPods, group_pods
from berth.services.inventory.publishing.pace import LONGEST, apart_ms

_LOST: Final = "lost"
"""Kind of a gang of which only requests are left."""
_PATIENCE: Final = 4
"""Settle times after which a gang that lacks pods is processed though more of them keep coming."""


class Gangs:
    """All gangs whose pods Berth places, and all Volcano PodGroups.

    Args:
        settings: Settings.
        settle_ms: Time that a gang waits for more changes unless it is known to be complete. A large gang that is
            complete is processed at once, but not more often than this.
    """

    def __init__(self, settings: GangSettings, *, settle_ms: int = 0) -> None:
        self._settings = settings
        self._settle_ms = settle_ms
        self._schedulers = frozenset(settings.scheduler_names)
        self._asks = PodAsks()
        self._resolver = Resolver(settings)
        self._gangs: dict[GangKey, Gang] = {}
        self._gang_of: dict[str, GangKey] = {}
        """Gang of each pod, by uid of the pod."""
        self._dirty: dict[GangKey, int] = {}
        """Gangs that changed, and the time at which each is processed; 0 until that is known."""
        self._due: list[tuple[int, GangKey]] = []
        self._podgroups: dict[Name, PodGroup] = {}
        self._groups = Groups(settings)
        self._foreign: dict[str, Name] = {}
        """PodGroup of each pod of another scheduler, by uid of the pod."""
        self._foreign_pods: dict[Name, int] = {}
        self._restored: dict[Name, tuple[MembersSeen, JobSeen | None]] = {}
        self._early_notes: list[JobSeen | JobStatus | OutcomeSeen] | None = []
        """Notes that arrive before the first :meth:`settle`, which assigns requests to their gangs; None afterwards."""
        self._podless: dict[Name, MembersSeen] | None = {}
        """Published facts of requests without pods, until the requests are assigned to their gangs; None afterwards."""

    def restore(self, seen: MembersSeen, job: JobSeen | None) -> None:
        """Restore a fact that an earlier run published. All calls come before the first :meth:`settle`, in any order.

        Args:
            seen: The last published pods of a request.
            job: Verdict on the name, if there is one.
        """
        if job is not None:
            self._resolver.note_job(job)
        name = (seen.namespace, seen.job)
        if not seen.pod_uids:
            if self._podless is not None and self._early_notes is not None and job is not None:
                self._podless[name] = seen
                self._early_notes.append(job)
            return
        self._resolver.published_members[name] = seen
        self._restored[name] = (seen, job)

    def set_pod(self, pod: Pod) -> None:
        """Take a new or changed pod, of any scheduler."""
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
        """Take the deletion of a pod."""
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
        """Take a new or changed Volcano PodGroup."""
        name = (group.metadata.namespace, group.metadata.name)
        self._podgroups[name] = group
        self._groups.set(group)
        self._touch(GangKey("podgroup", *name))

    def drop_group(self, namespace: str, name: str) -> None:
        """Take the deletion of a Volcano PodGroup."""
        if self._podgroups.pop((namespace, name), None) is None:
            return
        self._groups.drop((namespace, name))
        key = GangKey("podgroup", namespace, name)
        if key not in self._gangs:
            self._resolver.lookups.use(key, None)
        self._touch(key)

    def set_owner(self, key: OwnerKey, facts: OwnerFacts | None) -> None:
        """Take the result of a lookup; None when the object does not exist, is not served, or may not be read."""
        for gang in self._resolver.lookups.answer(key, facts):
            self._touch(gang)

    @property
    def awaits_admission(self) -> bool:
        """Whether the free capacity matters to a PodGroup."""
        return self._groups.awaits_admission

    @property
    def has_new_groups(self) -> bool:
        """Whether a PodGroup that is not admitted changed."""
        return self._groups.has_new

    def set_capacity(self, capacity: Capacity) -> None:
        """Take the free capacity of schedulable nodes. No PodGroup is admitted before the first call."""
        self._groups.set_capacity(capacity)

    def group_failed(self, namespace: str, name: str) -> None:
        """Note that the patch of a PodGroup failed for good."""
        self._groups.failed((namespace, name))

    def note_job(self, seen: JobSeen) -> None:
        """Note the verdict on a job's name. Jobs that were not requested here are ignored."""
        self._resolver.note_job(seen)
        if self._early_notes is not None:
            self._early_notes.append(seen)
        gang = self._gang_named(seen.namespace, seen.name)
        part = gang.parts.get(seen.name) if gang is not None else None
        if gang is None or part is None:
            self._adopt_request(seen)
        elif part.note_job(seen):
            self._touch(gang.key)

    def note_status(self, status: JobStatus) -> None:
        """Note the status of a job. Jobs that were not requested here are ignored."""
        self._resolver.note_status(status)
        if self._early_notes is not None:
            self._early_notes.append(status)
        gang = self._gang_named(status.namespace, status.name)
        if gang is None:
            return
        part = gang.parts.get(status.name)
        if part is not None and part.note_status(status):
            self._touch(gang.key)

    def note_outcome(self, outcome: OutcomeSeen) -> None:
        """Note the outcome of a binding. Jobs that were not requested here are ignored."""
        if self._early_notes is not None:
            self._early_notes.append(outcome)
        gang = self._gang_named(outcome.namespace, outcome.name)
        part = gang.parts.get(outcome.name) if gang is not None else None
        if gang is None or part is None or not part.note_outcome(outcome):
            return
        if outcome.state == "bound":
            gang.failures = 0
        self._touch(gang.key)

    def settle(self, now_ms: int) -> list[Effect]:
        """Effects that are due, in order; empty when nothing changed since the last call."""
        self._attach()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._due)
            if self._is_due(key, at_ms):
                self._touch(key)
                self._dirty[key] = now_ms
        effects: list[Effect] = []
        for key in self._ready(now_ms):
            effects += self._settle_gang(key, now_ms)
        reads: list[Effect] = []
        patches = self._groups.settle(lambda group: self._pods_of(group, reads, now_ms), now_ms)
        return [*effects, *reads, *patches]

    def next_due_ms(self) -> int | None:
        """Time at which :meth:`settle` must be called even if nothing changes; None for never."""
        while self._due and not self._is_due(self._due[0][1], self._due[0][0]):
            heapq.heappop(self._due)
        moments = [self._due[0][0]] if self._due else []
        moments += self._dirty.values()
        groups = self._groups.next_due_ms()
        return min(moments if groups is None else [*moments, groups], default=None)

    def published_members(self, namespace: str, name: str) -> MembersSeen | None:
        """Fact that was published last under a name."""
        return self._resolver.published_members.get((namespace, name))

    def has_pods(self, namespace: str, name: str) -> bool:
        """Whether a PodGroup has pods."""
        gang = self._gangs.get(GangKey("podgroup", namespace, name))
        return gang is not None and bool(gang.members)

    def group_uid(self, namespace: str, name: str) -> str:
        """Uid of a PodGroup; empty when it does not exist."""
        group = self._podgroups.get((namespace, name))
        return group.metadata.uid if group is not None else ""

    @property
    def held(self) -> int:
        """Number of names under which pods are held."""
        return sum(1 for seen in self._resolver.published_members.values() if seen.hold)

    @property
    def parts(self) -> int:
        """Number of requests that have pods."""
        return sum(len(gang.parts) for gang in self._gangs.values())

    def _ready(self, now_ms: int) -> list[GangKey]:
        """Gangs to process now, in order of their keys; the others of those that changed wait."""
        ready: list[GangKey] = []
        for key, known_ms in list(self._dirty.items()):
            at_ms = known_ms if 0 < known_ms <= now_ms + LONGEST * self._settle_ms else self._ready_ms(key, now_ms)
            if at_ms <= now_ms:
                del self._dirty[key]
                ready.append(key)
            else:
                self._dirty[key] = at_ms
        return sorted(ready)

    def _ready_ms(self, key: GangKey, now_ms: int) -> int:
        """Time at which a gang that has just changed is processed."""
        gang = self._gangs.get(key)
        if gang is None or not self._settle_ms:
            return now_ms
        since_ms = gang.changed_ms = min(now_ms if gang.changed_ms is None else gang.changed_ms, now_ms)
        if gang.whole_ms is not None:
            next_ms = min(gang.whole_ms, now_ms) + apart_ms(self._settle_ms, len(gang.members))
            if next_ms > now_ms:
                return next_ms
        match self._resolver.completeness(gang, self._podgroup_of(key), now_ms):
            case Completeness.COMPLETE:
                return now_ms
            case Completeness.SHORT:
                return min(now_ms + self._settle_ms, since_ms + _PATIENCE * self._settle_ms)
            case _:
                return since_ms + self._settle_ms

    def _settle_gang(self, key: GangKey, now_ms: int) -> list[Effect]:
        gang = self._gangs.get(key)
        if gang is None:
            return []
        group = self._podgroup_of(key)
        if self._settle_ms:
            is_whole = self._resolver.completeness(gang, group, now_ms) is Completeness.COMPLETE
            gang.changed_ms, gang.whole_ms = None, now_ms if is_whole else None
        effects = self._resolver.settle(gang, group, now_ms)
        if gang.due_ms is not None:
            heapq.heappush(self._due, (gang.due_ms, key))
        if gang.is_empty:
            del self._gangs[key]
        if key.kind == "podgroup":
            self._groups.touch((key.namespace, key.name))
        return effects

    def _pods_of(self, group: PodGroup, reads: list[Effect], now_ms: int) -> GroupPods:
        """State of a PodGroup's pods; appends the reads that are needed to find out which scheduler places them."""
        name = (group.metadata.namespace, group.metadata.name)
        key = GangKey("podgroup", *name)
        gang = self._gangs.get(key)
        if gang is not None and gang.members:
            return group_pods(gang, self._resolver.published_members)
        if name in self._foreign_pods:
            return GroupPods(is_ours=False)
        look = group_owner(group)
        self._resolver.lookups.use(key, look)
        lookup = self._resolver.lookups.lookup(key, now_ms)
        if look is not None and not lookup.is_known:
            asked = self._resolver.lookups.ask(key)
            reads += [ReadOwner(asked)] if asked is not None else []
            return GroupPods(is_ours=None)
        scheduler = lookup.facts.scheduler_name if lookup.facts is not None else ""
        return GroupPods(is_ours=scheduler in self._schedulers if scheduler else self._takes_unknown)

    @property
    def _takes_unknown(self) -> bool:
        configured = self._settings.groups_without_scheduler
        return "volcano" in self._schedulers if configured is None else configured

    def _set_foreign(self, pod: Pod) -> None:
        """Take a pod of another scheduler; its PodGroup belongs to that scheduler too."""
        uid, name = pod.metadata.uid, pod.metadata.annotation(GROUP_NAME)
        group = (pod.metadata.namespace, name) if name else None
        if uid in self._gang_of or self._foreign.get(uid, group) != group:
            self.drop_pod(uid)
        if group is not None and uid not in self._foreign:
            self._foreign[uid] = group
            self._foreign_pods[group] = self._foreign_pods.get(group, 0) + 1
            self._groups.touch(group)

    def _adopt_request(self, job: JobSeen) -> None:
        """Adopt a request that no gang has: its pods vanished, and the process ended before the withdrawal."""
        name = (job.namespace, job.name)
        if self._early_notes is not None or job.state != "accepted" or not self._resolver.is_open(name, job.uid):
            return
        if self._podless is None:
            seen = MembersSeen(job.namespace, job.name, job.uid)
        elif name in self._podless and self._podless[name].uid == job.uid:
            seen = self._podless[name]
        else:
            return  # its pods may exist: they are requested again, under the same uid
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
            self._dirty[key] = 0
        elif key.kind == "podgroup":
            self._groups.touch((key.namespace, key.name))

    def _is_due(self, key: GangKey, at_ms: int) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.due_ms == at_ms

    def _podgroup_of(self, key: GangKey) -> PodGroup | None:
        return self._podgroups.get((key.namespace, key.name)) if key.kind == "podgroup" else None

    def _attach(self) -> None:
        """Assign the restored facts to the gangs of their pods."""
        restored, self._restored = self._restored, {}
        early, self._early_notes = self._early_notes or [], None
        by_owner = {key.uid: key for key in sorted(self._gangs) if key.uid} if restored else {}
        for _, (seen, job) in sorted(restored.items(), key=lambda item: item[0]):
            known = (self._gang_of[uid] for uid in seen.pod_uids if uid in self._gang_of)
            group = (
                GangKey("podgroup", seen.namespace, seen.podgroup) if seen.podgroup else by_owner.get(seen.owner.uid)
            )
            gang = self._gang(next(known, None) or group or GangKey(_LOST, seen.namespace, seen.job))
            gang.published_names[seen.job] = None
            self._resolver.names[seen.namespace, seen.job] = gang.key
            if seen.uid:
                is_first = seen.job == base_name(gang.key, self._podgroup_of(gang.key))
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
