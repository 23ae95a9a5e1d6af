"""Gangs: pods that belong together become job requests, and stay the pods of their requests.

A state machine without clock and I/O: observations go in, :meth:`Gangs.settle` returns the effects. Only gangs that
changed are processed, in the order of their keys. After a restart, requests are read back from the published facts.

Longer than 400 lines because every observation of the cluster and the bus has its step.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

import heapq
from collections import Counter
from collections.abc import Sequence

from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.formats.kubernetes.policies import PriorityClass
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.membership import base_name, group_of, group_owner
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey, OwnerKind, OwnerObject
from berth.formats.kubernetes.workloads.registry import PODGROUP, kinds, owner_facts
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.status import JobStatus
from berth.services.inventory.effects import Effect, PublishReplacements, ReadOwner
from berth.services.inventory.gangs.completeness import Completeness
from berth.services.inventory.gangs.gang_index import GangIndex
from berth.services.inventory.gangs.identity import controller_uid, is_of_one, update_group, why_over
from berth.services.inventory.gangs.lookups import ObjectKey
from berth.services.inventory.gangs.model import Gang, member_of
from berth.services.inventory.gangs.queues import JobQueues
from berth.services.inventory.gangs.replacements import attach
from berth.services.inventory.gangs.resolver import Name, Resolver
from berth.services.inventory.gangs.restoring import part_from
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.gangs.settling import Settling
from berth.services.inventory.podgroups.collection import Groups
from berth.services.inventory.podgroups.native_conditions import NativeConditions
from berth.services.inventory.podgroups.pods import GroupPods, group_pods
from berth.services.inventory.podgroups.status import least_of


class Gangs:
    """All gangs whose pods Berth places, and all Volcano PodGroups.

    Args:
        settings: Settings.
        settle_ms: Time that a gang waits for more changes unless it is known to be complete.
    """

    def __init__(self, settings: GangSettings, *, settle_ms: int = 0) -> None:
        self._settings = settings
        self._schedulers = frozenset(settings.scheduler_names)
        self._asks = PodRequirementsReader()
        self._podgroups: dict[Name, PodGroup] = {}
        self.queues = JobQueues(self._podgroups, lambda: list(self._gangs), self._touch)
        self._resolver = Resolver(settings, self.queues)
        self._index = GangIndex(self._touch, self._resolver.names)
        self._gangs = self._index.gangs
        self._settling = Settling(settle_ms, self._gangs.get, self._completeness)
        self._due: list[tuple[int, GangKey]] = []
        self.groups = Groups(settings)
        self._conditions = NativeConditions()
        self._foreign: dict[str, tuple[GangKey, str]] = {}
        """Group of each pod of another scheduler that names one, and the scheduler, by uid of the pod."""
        self._foreign_pods: dict[GangKey, Counter[str]] = {}
        self._restored: dict[Name, tuple[MembersSeen, JobSeen | None]] = {}
        self._early_notes: list[JobSeen | JobStatus | OutcomeSeen] | None = []
        """Notes that arrive before the first :meth:`settle`, which assigns requests to their gangs; None afterwards."""
        self._podless: dict[Name, MembersSeen] | None = {}
        """Published facts of requests without pods, until the requests are assigned to their gangs; None afterwards."""
        self._replacements: list[ReplacementsSeen] = []

    def restore_replacements(self, seen: ReplacementsSeen) -> None:
        """Restore a fact about new pods that an earlier run published; before the first :meth:`settle`."""
        self._replacements.append(seen)

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
        if uid in self._foreign:
            self.drop_pod(uid)
        member = member_of(pod, self._asks)
        gang = self._gangs.get(member.place.key)
        if gang is not None and uid not in self._index and not is_of_one(gang.former_tops, member):
            self._retire(gang.key, gang.former_uid, why_over(gang.key, is_made_again=True))
        self._index.put(member)

    def drop_pod(self, uid: str) -> None:
        """Take the deletion of a pod."""
        if (found := self._foreign.pop(uid, None)) is not None:
            group, scheduler = found
            self._foreign_pods[group][scheduler] -= 1
            if not self._foreign_pods[group].total():
                del self._foreign_pods[group]
            self._touch_group(group)
        self._index.drop(uid)

    def set_group(self, group: PodGroup) -> None:
        """Take a new or changed Volcano PodGroup."""
        name = (group.metadata.namespace, group.metadata.name)
        if group.metadata.deletion_timestamp is not None:
            self.drop_group(*name)
            return
        key = GangKey("podgroup", *name)
        gang = self._gangs.get(key)
        if gang is not None and (why := update_group(gang, group.metadata.uid, controller_uid(group))):
            self._retire(key, gang.podgroup_uid, why)
        self._podgroups[name] = group
        self.groups.set(group)
        self._index.add_group(key, group)
        self._touch(key)

    def drop_group(self, namespace: str, name: str) -> None:
        """Take the deletion of a Volcano PodGroup."""
        group = self._podgroups.pop((namespace, name), None)
        if group is None:
            return
        self.groups.drop((namespace, name))
        key = GangKey("podgroup", namespace, name)
        self._index.lose_group(key, controller_uid(group))
        if key not in self._gangs:
            self._resolver.lookups.use(key, None)
        self._touch(key)

    def set_owner(self, key: OwnerKey, facts: OwnerFacts | None, *, is_gone: bool = False) -> None:
        """Take the result of a lookup.

        Args:
            key: The owner.
            facts: Its facts; None when the object does not exist, is not served, or may not be read.
            is_gone: The object does not exist.
        """
        for gang_key in self._resolver.lookups.answer(key, facts, is_gone=is_gone):
            gang = self._gangs.get(gang_key)
            if gang is not None and kinds().is_group(gang_key.kind) and gang_key.kind != PODGROUP:
                self._update_group(gang, facts, is_gone=is_gone)
            self._touch(gang_key)

    def change_owner(self, kind: OwnerKind, owner: OwnerObject, *, is_gone: bool = False) -> bool:
        """Take an object that a watch shows, or its deletion; returns whether it has to be read again."""
        return self._change_object((kind, owner.metadata.namespace, owner.metadata.name), None if is_gone else owner)

    def replace_owners(self, kind: OwnerKind, owners: Sequence[OwnerObject]) -> bool:
        """Take all objects of a kind; returns whether one was read otherwise, and is to be read again."""
        used: dict[ObjectKey, OwnerObject | None] = dict.fromkeys(self._resolver.lookups.objects(kind))
        for one in owners:
            key = (kind, one.metadata.namespace, one.metadata.name)
            if key in used:
                used[key] = one
        return sum(self._change_object(key, owner) for key, owner in used.items()) > 0

    def _change_object(self, key: ObjectKey, owner: OwnerObject | None) -> bool:
        gangs = self._resolver.lookups.see(key, lambda one: owner_facts(one, owner) if owner is not None else None)
        for gang in gangs:
            self._touch(gang)
        return bool(gangs)

    def set_priority_classes(self, classes: Sequence[PriorityClass]) -> None:
        """Take all PriorityClasses; jobs that wait with another priority are requested anew."""
        self._resolver.priorities.replace(classes)
        for name, group in self._podgroups.items():
            if group.spec.priority_class_name:
                self._touch(GangKey("podgroup", *name))

    def open_requests(self) -> list[JobRequest]:
        """Requests that are not over, as far as they are known after a restart."""
        parts = (part for gang in self._gangs.values() for part in gang.parts.values() if not part.is_over)
        return [part.request for part in parts if part.request is not None]

    @property
    def awaits_admission(self) -> bool:
        """Whether the free capacity matters to a PodGroup."""
        return self.groups.awaits_admission

    @property
    def has_new_groups(self) -> bool:
        """Whether a PodGroup that is not admitted changed."""
        return self.groups.has_new

    def group_failed(self, namespace: str, name: str) -> None:
        """Note that the patch of a PodGroup failed for good."""
        self.groups.failed((namespace, name))

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
        if part is not None and part.note_status(status, names_others=self._settings.name_others):
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
        """Effects of gangs that are due, in order, few gangs at a time; empty when nothing has changed."""
        effects = self._attach(now_ms)
        while self._due and self._due[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._due)
            if self._is_due(key, at_ms):
                self._settling.hurry(key)
        # Gangs of the past come first: names that they give up are free for their successors.
        for key in self._settling.take(now_ms, past=True):
            effects += self._settle_gang(key, now_ms)
        for key in self._settling.take(now_ms, past=False):
            effects += self._settle_gang(key, now_ms)
        reads: list[Effect] = []
        patches = self.groups.settle(lambda group: self._pods_of(group, reads, now_ms), now_ms)
        return [*effects, *reads, *patches]

    def next_due_ms(self) -> int | None:
        """Time at which :meth:`settle` must be called even if nothing changes; None for never."""
        while self._due and not self._is_due(self._due[0][1], self._due[0][0]):
            heapq.heappop(self._due)
        own = self._due[0][0] if self._due else None
        moments = (own, self._settling.next_ms(), self.groups.next_due_ms())
        return min((at_ms for at_ms in moments if at_ms is not None), default=None)

    def published_members(self, namespace: str, name: str) -> MembersSeen | None:
        """Fact that was published last under a name."""
        return self._resolver.published_members.get((namespace, name))

    def has_pods(self, namespace: str, name: str) -> bool:
        """Whether a PodGroup has pods."""
        key = GangKey("podgroup", namespace, name)
        gang = self._gangs.get(key)
        return (gang is not None and bool(gang.members)) or bool(self._index.latecomers(key))

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

    def _settle_gang(self, key: GangKey, now_ms: int) -> list[Effect]:
        gang = self._gangs.get(key)
        if gang is None:
            return []
        self._settling.note_processed(gang, now_ms)
        gang.latecomers = self._index.latecomers(key)
        elsewhere = self._foreign_pods.get(key, Counter())
        is_surge = self._is_surge(gang, now_ms)
        effects = self._resolver.settle(gang, self._podgroup_of(key), now_ms, elsewhere, is_surge=is_surge)
        if kinds().as_kube_scheduler(key.kind):
            effects += self._conditions_of(gang, now_ms, has_others=bool(elsewhere.total()))
        if gang.is_past:
            self._index.release(gang)
        if gang.due_ms is not None:
            heapq.heappush(self._due, (gang.due_ms, key))
        if gang.is_empty and not (gang.age_seq and self._podgroup_of(key)):  # all of its pods may be made again
            self._index.forget(key)
        if key.kind == "podgroup":
            self.groups.touch((key.namespace, key.name))
        return effects

    def _is_surge(self, gang: Gang, now_ms: int) -> bool:
        """Whether the pods of a gang replace others of their Deployment, which run until they do."""
        facts = self._resolver.lookups.lookup(gang.key, now_ms).facts
        return facts is not None and facts.has_versions and self._index.replaces_others(gang)

    def _conditions_of(self, gang: Gang, now_ms: int, *, has_others: bool) -> list[Effect]:
        """What is to be said of the PodGroup of Kubernetes of a gang; it cannot be judged with pods of others in it."""
        facts = self._resolver.lookups.lookup(gang.key, now_ms).facts
        held = self._resolver.published_members.get((gang.key.namespace, base_name(gang.key, None)))
        is_refused = held is not None and (has_others or (facts is not None and bool(facts.refused)))
        if not gang.members:
            self._conditions.forget(gang.key.namespace, gang.key.name)
            return []
        return [*self._conditions.settle(gang, facts, held.hold if held is not None and is_refused else "", now_ms)]

    def _update_group(self, gang: Gang, facts: OwnerFacts | None, *, is_gone: bool) -> None:
        """Note which object has the name of a group that is read on demand."""
        uid = facts.uid if facts is not None and not facts.is_ending else ""
        is_known = bool(uid) or is_gone or facts is not None
        if is_known and (why := update_group(gang, uid, "")):
            self._retire(gang.key, gang.podgroup_uid, why)

    def _retire(self, key: GangKey, uid: str, why: str) -> None:
        """End the gang of a group that is gone: a later one of the name begins without requests and ranks."""
        if self._index.retire(key, uid, why) is not None:
            self._settling.drop(key)
            self._resolver.lookups.use(key, None)

    def _pods_of(self, group: PodGroup, reads: list[Effect], now_ms: int) -> GroupPods:
        """State of a PodGroup's pods; appends the reads that are needed to find out which scheduler places them."""
        name = (group.metadata.namespace, group.metadata.name)
        key = GangKey("podgroup", *name)
        gang, latecomers = self._gangs.get(key) or Gang(key), self._index.latecomers(key)
        own = [member for member in gang.members.values() if not self._index.names_other(member, key)]
        if members := [*own, *latecomers]:
            priorities, published = self._resolver.priorities, self._resolver.published_members
            facts = self._resolver.lookups.lookup(key, now_ms).facts
            priority, displaces = priorities.of(members, group), priorities.may_displace(members, group)
            least = least_of(group)
            return group_pods(
                gang, members, published, least=least, priority=priority, may_displace=displaces, facts=facts
            )
        if key in self._foreign_pods:
            return GroupPods(is_ours=False)
        look, made_by = group_owner(group), group.metadata.controller
        self._resolver.lookups.use(key, look, made_by.uid if made_by is not None else "")
        lookup = self._resolver.lookups.lookup(key, now_ms)
        is_changed = lookup.is_changed and now_ms >= lookup.refresh_ms
        if look is not None and (not lookup.is_known or (lookup.is_unread and lookup.is_old) or is_changed):
            asked = self._resolver.lookups.ask(key)
            reads += [ReadOwner(asked)] if asked is not None else []
        if look is not None and not lookup.is_known:
            return GroupPods(is_ours=None)
        scheduler = lookup.facts.scheduler_name if lookup.facts is not None else ""
        is_ours = scheduler in self._schedulers if scheduler else self._settings.takes_unknown
        again_ms = self._resolver.lookups.again_ms(lookup) if lookup.is_unread and not lookup.is_old else None
        again_ms = lookup.refresh_ms if lookup.is_changed and not is_changed else again_ms
        priority, displaces = self._resolver.priorities.of((), group), self._resolver.priorities.may_displace((), group)
        return GroupPods(is_ours=is_ours, priority=priority, again_ms=again_ms, may_displace=displaces)

    def _set_foreign(self, pod: Pod) -> None:
        """Take a pod of another scheduler; a PodGroup of which Berth places no pod belongs to that scheduler too."""
        uid, group = pod.metadata.uid, group_of(pod)
        found = (group, pod.spec.scheduler_name) if group is not None else None
        if uid in self._index or self._foreign.get(uid, found) != found:
            self.drop_pod(uid)
        if group is not None and found is not None and uid not in self._foreign:
            self._foreign[uid] = found
            self._foreign_pods.setdefault(group, Counter())[pod.spec.scheduler_name] += 1
            self._touch_group(group)

    def _touch_group(self, key: GangKey) -> None:
        """Process a group again, whether or not Berth places one of its pods."""
        self._touch(key)
        if key.kind == "podgroup":
            self.groups.touch((key.namespace, key.name))

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
        gang = self._index.of_fact(seen, self._podgroups.get((seen.namespace, seen.podgroup)))
        gang.parts[job.name] = part_from(seen, job, gang, is_first=False)
        self._resolver.names[name] = gang.key
        self._touch(gang.key)

    def _gang_named(self, namespace: str, name: str) -> Gang | None:
        key = self._resolver.names.get((namespace, name))
        return self._gangs.get(key) if key is not None else None

    def _touch(self, key: GangKey) -> None:
        if key in self._gangs:
            self._settling.touch(key)
        elif key.kind == "podgroup":
            self.groups.touch((key.namespace, key.name))

    def _completeness(self, gang: Gang, now_ms: int) -> Completeness:
        return self._resolver.completeness(gang, self._podgroup_of(gang.key), now_ms)

    def _is_due(self, key: GangKey, at_ms: int) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.due_ms == at_ms

    def _podgroup_of(self, key: GangKey) -> PodGroup | None:
        return self._podgroups.get((key.namespace, key.name)) if key.kind == "podgroup" and not key.uid else None

    def _attach(self, now_ms: int) -> list[Effect]:
        """Assign the restored facts to the gangs of their pods; returns what is published about those without one."""
        restored, self._restored = self._restored, {}
        early, self._early_notes = self._early_notes or [], None
        for _, (seen, job) in sorted(restored.items(), key=lambda item: item[0]):
            gang = self._index.of_fact(seen, self._podgroups.get((seen.namespace, seen.podgroup)))
            self._index.keep(seen, gang)
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
        replacements, self._replacements = self._replacements, []
        return [PublishReplacements(lost) for lost in attach(replacements, self._gang_named, at_ms=now_ms)]
