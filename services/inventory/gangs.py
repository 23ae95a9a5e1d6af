"""Gangs: pods that belong together become job requests, and stay the pods of their requests.

A state machine without clock or wire: what was seen goes in, :meth:`Gangs.settle` says what is to be done. Work is done
for the gangs that something has touched, in the order of their keys. What was told in the facts is enough to go on after a
restart: names, uids and ranks of requests are read back from there.

Source: specification, Kubernetes contracts, sections E.1 to E.4.
"""

import heapq
from typing import Final

from berth.formats.kube_objects import Pod, PodGroup
from berth.formats.kube_owners import OwnerKey
from berth.formats.kube_pods import PodAsks
from berth.formats.owner_facts import OwnerFacts
from berth.formats.workloads import GangKey, base_name, digest, group_owner
from schemas.facts import JobSeen, MembersSeen, OutcomeSeen, Owner
from schemas.intake import JobCancel, JobRequest
from schemas.status import JobStatus
from services.inventory.barriers import barrier_of_group, taken_back, unreadable
from services.inventory.effects import Effect, Look, Publish, Tell, Withdraw
from services.inventory.gang_parts import dissolve, fill, see_pods, settle_parts, unassigned
from services.inventory.gang_plan import Around, Plan, is_fresh, plan
from services.inventory.gang_settings import GangSettings
from services.inventory.lookups import Lookups
from services.inventory.members import held, is_same, members_of, tombstone
from services.inventory.parts import OVER, Gang, Member, Part, member_of
from services.inventory.ranks import slots_of
from services.inventory.requests import request_of
from services.inventory.restoring import part_from

Name = tuple[str, str]
"""Namespace and name of a job request."""

_SUFFIXES: Final = (8, 12, 16, 24)
"""Digits of a part's name; more when fewer are taken."""
_LOST: Final = "lost"
"""Kind of gangs of which only requests are left."""


class Gangs:
    """All gangs of a cluster whose pods are Berth's to place."""

    def __init__(self, settings: GangSettings) -> None:
        self._settings = settings
        self._schedulers = frozenset(settings.scheduler_names)
        self._asks = PodAsks()
        self._gangs: dict[GangKey, Gang] = {}
        self._gang_of: dict[str, GangKey] = {}
        """Gang of each pod, by its uid."""
        self._dirty: dict[GangKey, None] = {}
        self._due: list[tuple[int, GangKey]] = []
        self._groups: dict[Name, PodGroup] = {}
        self._lookups = Lookups(again_ms=round(settings.look_again_s * 1000))
        self._names: dict[Name, GangKey] = {}
        """Names under which something was requested or told."""
        self._uids: dict[Name, str] = {}
        """Uid of the job that has, or had last, a name that pods were requested under."""
        self._told: dict[Name, MembersSeen] = {}
        self._restored: list[tuple[MembersSeen, JobSeen | None]] = []

    def restore(self, seen: MembersSeen, job: JobSeen | None) -> None:
        """Take back what was told before the start; all of it before the first :meth:`settle`.

        Args:
            seen: What was told of a request's pods.
            job: Verdict on the name, if there is one.
        """
        if job is not None:
            self._remember(job)
        if not seen.pod_uids:
            return
        self._told[seen.namespace, seen.job] = seen
        self._restored.append((seen, job))

    def set_pod(self, pod: Pod) -> None:
        """A pod is there, or has changed; pods of all schedulers may be given."""
        uid = pod.metadata.uid
        if pod.spec.scheduler_name not in self._schedulers:
            self.drop_pod(uid)
            return
        member = member_of(pod, self._asks)
        key = member.place.key
        before = self._gang_of.get(uid)
        if before is not None and before != key:
            self.drop_pod(uid)
        gang = self._gang(key)
        gang.members[uid] = member
        self._gang_of[uid] = key
        self._touch(key)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        key = self._gang_of.pop(uid, None)
        if key is None:
            return
        gang = self._gangs[key]
        del gang.members[uid]
        self._touch(key)

    def set_group(self, group: PodGroup) -> None:
        """A Volcano PodGroup is there, or has changed."""
        name = (group.metadata.namespace, group.metadata.name)
        self._groups[name] = group
        self._touch(GangKey("podgroup", *name))

    def drop_group(self, namespace: str, name: str) -> None:
        """A Volcano PodGroup is gone."""
        if self._groups.pop((namespace, name), None) is not None:
            self._touch(GangKey("podgroup", namespace, name))

    def set_owner(self, key: OwnerKey, facts: OwnerFacts | None) -> None:
        """Answer to a look-up; None when the object is not there, not served, or must not be read."""
        for gang in self._lookups.answer(key, facts):
            self._touch(gang)

    def note_job(self, seen: JobSeen) -> None:
        """Note the verdict on a job's name; jobs that were not made here are ignored."""
        self._remember(seen)
        gang = self._gang_named(seen.namespace, seen.name)
        if gang is None:
            return
        part = gang.parts.get(seen.name)
        changed = part is not None and part.note_job(seen)
        if seen.name in gang.busy and seen.state in {"tombstone", "rejected"}:
            del gang.busy[seen.name]
            changed = True
        if changed:
            self._touch(gang.key)

    def note_status(self, status: JobStatus) -> None:
        """Note where a job stands; jobs that were not made here are ignored."""
        gang = self._gang_named(status.namespace, status.name)
        if gang is None:
            return
        part = gang.parts.get(status.name)
        changed = part is not None and part.note_status(status)
        if status.phase in OVER and gang.busy.pop(status.name, None) is not None:
            changed = True
        if changed:
            self._touch(gang.key)

    def note_outcome(self, outcome: OutcomeSeen) -> None:
        """Note what the binder achieved; jobs that were not made here are ignored."""
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
            gang = self._gangs.get(key)
            if gang is not None and gang.due_ms == at_ms:
                self._touch(key)
        touched, self._dirty = sorted(self._dirty), {}
        effects: list[Effect] = []
        for key in touched:
            gang = self._gangs.get(key)
            if gang is not None:
                effects += self._settle_gang(gang, now_ms)
        return effects

    def next_due_ms(self) -> int | None:
        """When :meth:`settle` must be called though nothing happens; None for never."""
        while self._due:
            at_ms, key = self._due[0]
            gang = self._gangs.get(key)
            if gang is not None and gang.due_ms == at_ms:
                return at_ms
            heapq.heappop(self._due)
        return None

    @property
    def held(self) -> int:
        """Names under which pods are held."""
        return sum(1 for seen in self._told.values() if seen.hold)

    @property
    def parts(self) -> int:
        """Requests that are not over."""
        return sum(len(gang.parts) for gang in self._gangs.values())

    def _gang(self, key: GangKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def _remember(self, job: JobSeen) -> None:
        """Note who has a name: the same uid would not be accepted again once it is over."""
        name = (job.namespace, job.name)
        if job.state == "tombstone":
            self._uids.pop(name, None)
        elif job.request is not None and job.request.origin == "pods":
            self._uids[name] = job.uid

    def _gang_named(self, namespace: str, name: str) -> Gang | None:
        key = self._names.get((namespace, name))
        return self._gangs.get(key) if key is not None else None

    def _touch(self, key: GangKey) -> None:
        if key in self._gangs:
            self._dirty[key] = None

    def _attach(self) -> None:
        """Give what was told before the start to the gangs of its pods."""
        restored, self._restored = self._restored, []
        for seen, job in sorted(restored, key=lambda pair: (pair[0].namespace, pair[0].job)):
            known = (self._gang_of[uid] for uid in seen.pod_uids if uid in self._gang_of)
            group = GangKey("podgroup", seen.namespace, seen.podgroup) if seen.podgroup else None
            gang = self._gang(next(known, None) or group or GangKey(_LOST, seen.namespace, seen.job))
            gang.told[seen.job] = None
            self._names[seen.namespace, seen.job] = gang.key
            if seen.uid:
                is_first = seen.job == base_name(gang.key, self._group_of(gang))
                gang.parts[seen.job] = part_from(seen, job, gang, is_first=is_first)
            self._touch(gang.key)

    def _group_of(self, gang: Gang) -> PodGroup | None:
        return self._groups.get((gang.key.namespace, gang.key.name)) if gang.key.kind == "podgroup" else None

    def _settle_gang(self, gang: Gang, now_ms: int) -> list[Effect]:
        """What is to be done for one gang."""
        # 1. Pods as they are now; requests that are over, vanished or not let in any more.
        gang.due_ms = None
        see_pods(gang)
        group = self._group_of(gang)
        effects = settle_parts(gang, self._settings, is_pending=taken_back(group), now_ms=now_ms)
        around, looks = self._around(gang, group, now_ms)
        again, lost = self._rebuild(gang, around, now_ms)
        effects += lost
        # 2. Free pods take over the ranks of pods that are gone.
        tasks = around.tasks
        free = fill(gang, sorted(unassigned(gang), key=lambda member: member.order(tasks)))
        # 3. The others become requests, or wait.
        found = plan(gang, free, around, now_ms=now_ms)
        base = base_name(gang.key, group)
        if found.is_short and around.again_ms is not None:
            gang.due(around.again_ms)
        new = self._new_parts(gang, found, base, around)
        # 4. Who stands for which rank is told before the request is published.
        wanted = self._wanted(gang, found, base, around, now_ms)
        effects += self._tell(gang, wanted, now_ms)
        effects += [Publish(part.request) for part in (*again, *new) if part.request is not None]
        effects += looks
        self._forget(gang)
        if gang.due_ms is not None:
            heapq.heappush(self._due, (gang.due_ms, gang.key))
        return effects

    def _around(self, gang: Gang, group: PodGroup | None, now_ms: int) -> tuple[Around, list[Effect]]:
        """What is known besides the pods, and what must be read."""
        look = self._look(gang, group)
        self._lookups.use(gang.key, look)
        looked = self._lookups.looked(gang.key, now_ms)
        barrier = barrier_of_group(gang.key, group)
        if look is None:
            return Around(group, barrier=barrier), []
        is_old = looked.is_old and is_fresh(gang)
        looks: list[Effect] = []
        if (is_old or not looked.is_known) and unassigned(gang):
            asked = self._lookups.ask(gang.key)
            looks = [Look(asked)] if asked is not None else []
        if not barrier and looked.is_known and looked.facts is None:
            barrier = unreadable(look, group)
        return (
            Around(
                group,
                looked.facts,
                barrier=barrier,
                is_reading=not looked.is_known and not barrier,
                is_old=is_old,
                again_ms=self._lookups.again_ms(looked) if looked.is_known and not looked.is_old else None,
            ),
            looks,
        )

    def _look(self, gang: Gang, group: PodGroup | None) -> OwnerKey | None:
        if gang.key.kind == "podgroup":
            return group_owner(group) if group is not None else None
        return next((member.place.look for member in gang.members.values()), None)

    def _new_parts(self, gang: Gang, found: Plan, base: str, around: Around) -> list[Part]:
        """Requests for pods that have none."""
        batches = [(found.first, True)] if found.first else []
        batches += [([member], False) for member in found.single]
        parts: list[Part] = []
        for members, is_first in batches:
            slots = slots_of(gang, members, around.facts)
            former = {gang.former.pop(member.uid) for member in members if member.uid in gang.former}
            uid = digest([gang.key.namespace, base, *sorted(former), *(member.uid for member in members)], 32)
            name = self._free_name(gang, base, uid, may_be_base=is_first)
            while self._uids.get((gang.key.namespace, name)) == uid:
                uid = digest([uid], 32)
                name = self._free_name(gang, base, uid, may_be_base=is_first)
            part = Part(gang.key, name, uid, slots, is_first=is_first, gang_pods=found.gang_pods)
            part.request = _request(part, members, around)
            part.published = True
            gang.parts[name] = part
            parts.append(part)
        return parts

    def _rebuild(self, gang: Gang, around: Around, now_ms: int) -> tuple[list[Part], list[Effect]]:
        """Requests to publish again after a restart, and those that cannot be; forget refusals that no longer hold."""
        again: list[Part] = []
        lost: list[Effect] = []
        for name in sorted(gang.parts):
            part = gang.parts[name]
            is_refused = part.state == "closed" and part.phase == "rejected"
            if part.published and not is_refused:
                continue
            members = [gang.members[slot.uid] for slot in part.slots if slot.uid in gang.members]
            complete = len(members) == len(part.slots)
            if is_refused:
                if complete and part.request is not None and _request(part, members, around) != part.request:
                    dissolve(gang, part)
            elif complete:
                part.request = _request(part, members, around)
                part.published = True
                again.append(part)
            else:
                lost.append(Withdraw(JobCancel(gang.key.namespace, name, part.uid, "its pods are gone", now_ms)))
                dissolve(gang, part)
        return again, lost

    def _free_name(self, gang: Gang, base: str, uid: str, *, may_be_base: bool) -> str:
        """Name that no other request has."""
        names = [base] if may_be_base else []
        names += [f"{base}-{uid[:digits]}" for digits in _SUFFIXES]
        for name in names:
            owner = self._names.get((gang.key.namespace, name), gang.key)
            if owner == gang.key and name not in gang.parts and name not in gang.busy:
                break
        else:
            name = names[-1]
        self._names[gang.key.namespace, name] = gang.key
        return name

    def _wanted(self, gang: Gang, found: Plan, base: str, around: Around, now_ms: int) -> dict[str, MembersSeen]:
        """What is to be told of the gang's pods, by name."""
        podgroup = gang.key.name if gang.key.kind == "podgroup" else ""
        owner = _owner(gang, around)
        wanted = {
            name: members_of(part, owner=owner, podgroup=podgroup, at_ms=now_ms) for name, part in gang.parts.items()
        }
        waiting = [([member], why, False) for member, why in found.held_alone]
        if found.held is not None:
            waiting.insert(0, (*found.held, True))
        for members, why, may_be_base in waiting:
            name = self._free_name(gang, base, digest([members[0].uid], 32), may_be_base=may_be_base)
            wanted[name] = held(gang.key.namespace, name, members, why, owner=owner, podgroup=podgroup, at_ms=now_ms)
        return wanted

    def _tell(self, gang: Gang, wanted: dict[str, MembersSeen], now_ms: int) -> list[Effect]:
        """Messages that differ from what was told."""
        effects: list[Effect] = []
        namespace = gang.key.namespace
        for name in sorted({*gang.told, *wanted}):
            before, now = self._told.get((namespace, name)), wanted.get(name)
            if now is None:
                effects.append(Tell(tombstone(namespace, name, before.uid if before is not None else "", at_ms=now_ms)))
                self._told.pop((namespace, name), None)
                gang.told.pop(name, None)
                if name not in gang.busy:
                    self._names.pop((namespace, name), None)
            elif before is None or not is_same(before, now):
                effects.append(Tell(now))
                self._told[namespace, name] = now
                gang.told[name] = None
        return effects

    def _forget(self, gang: Gang) -> None:
        """Let go of what is not needed any more."""
        for uid in [uid for uid in gang.former if uid not in gang.members]:
            del gang.former[uid]
        if not gang.members and not gang.parts:
            self._lookups.use(gang.key, None)
        if gang.is_empty:
            del self._gangs[gang.key]


def _request(part: Part, members: list[Member], around: Around) -> JobRequest:
    return request_of(
        part.gang,
        members,
        name=part.name,
        uid=part.uid,
        group=around.group,
        facts=around.facts,
        gang_pods=part.gang_pods,
    )


def _owner(gang: Gang, around: Around) -> Owner:
    """Controller of a gang: that of its PodGroup, else that of its pods."""
    controller = around.group.metadata.controller if around.group is not None else None
    if controller is not None:
        return Owner(controller.kind, controller.name, controller.uid)
    return min(
        (member.place.owner for member in gang.members.values()),
        key=lambda it: (it.kind, it.name, it.uid),
        default=Owner(),
    )
