"""One gang at a time: which requests its pods need, and what is told of them.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

from dataclasses import dataclass
from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.workloads import GangKey, base_name, digest, group_owner
from berth.schemas.facts import JobSeen, MembersSeen, Owner
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.status import JobStatus
from berth.services.inventory.effects import CancelRequest, Effect, PublishMembers, ReadOwner, SubmitRequest
from berth.services.inventory.gangs.barriers import barrier_of_group, judged_by_ms, taken_back, unreadable
from berth.services.inventory.gangs.lookups import Lookups
from berth.services.inventory.gangs.members import held, is_same, members_of, tombstone
from berth.services.inventory.gangs.model import OVER, Gang, Member, Part
from berth.services.inventory.gangs.plan import GangContext, Plan, is_fresh, plan
from berth.services.inventory.gangs.ranks import slots_of
from berth.services.inventory.gangs.request_lifecycle import dissolve, fill, see_pods, settle_parts, unassigned
from berth.services.inventory.gangs.requests import request_of
from berth.services.inventory.gangs.settings import GangSettings

Name = tuple[str, str]
"""Namespace and name of a job request."""

_SUFFIXES: Final = (8, 12, 16, 24)
"""Digits of a part's name; more when fewer are taken."""


@dataclass(slots=True)
class _Holder:
    """Job that has a name."""

    uid: str
    is_over: bool


class Resolver:
    """Turns pods into requests, and keeps the names that are in use."""

    def __init__(self, settings: GangSettings) -> None:
        self._settings = settings
        self.lookups = Lookups(again_ms=round(settings.look_again_s * 1000))
        self.names: dict[Name, GangKey] = {}
        """Names under which something was requested or told, and the gangs."""
        self.told: dict[Name, MembersSeen] = {}
        """What was told last under a name."""
        self._holders: dict[Name, _Holder] = {}
        """Who has, or had last, a name that pods were requested under."""

    def note_job(self, seen: JobSeen) -> None:
        """Note who has a name: a uid is not accepted twice, and nobody else gets a name before its job is over."""
        name = (seen.namespace, seen.name)
        if seen.state == "tombstone":
            self._holders.pop(name, None)
            return
        holder = self._holders.get(name)
        if holder is not None and holder.uid == seen.uid:
            holder.is_over = holder.is_over or seen.state == "rejected"
        elif (seen.request is not None and seen.request.origin == "pods") or (seen.rejection and name in self.names):
            self._holders[name] = _Holder(seen.uid, is_over=seen.state == "rejected")

    def note_status(self, status: JobStatus) -> None:
        """Note whether the job that has a name is over."""
        holder = self._holders.get((status.namespace, status.name))
        if holder is not None and holder.uid == status.uid:
            holder.is_over = status.phase in OVER

    def is_open(self, name: Name, uid: str) -> bool:
        """Whether a job was made here and is not over."""
        holder = self._holders.get(name)
        return holder is not None and holder.uid == uid and not holder.is_over

    def settle(self, gang: Gang, group: PodGroup | None, now_ms: int) -> list[Effect]:
        """What is to be done for a gang.

        Args:
            gang: The gang; it is changed.
            group: Its Volcano PodGroup, if there is one.
            now_ms: The time.
        """
        # 1. Pods as they are now; requests that are over, vanished or not let in any more.
        gang.due_ms = None
        see_pods(gang)
        back = settle_parts(gang, self._settings, is_pending=taken_back(group), now_ms=now_ms)
        around, looks = self._context(gang, group, now_ms)
        again, lost = self._rebuild(gang, around)
        effects = [self._take_back(part, reason, now_ms) for part, reason in (*back, *lost)]
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
        effects += [SubmitRequest(part.request) for part in (*again, *new) if part.request is not None]
        effects += looks
        self._forget(gang, group)
        return effects

    def _context(self, gang: Gang, group: PodGroup | None, now_ms: int) -> tuple[GangContext, list[Effect]]:
        """What is known besides the pods, and what must be read."""
        look = self._look(gang, group)
        self.lookups.use(gang.key, look)
        looked = self.lookups.looked(gang.key, now_ms)
        barrier = barrier_of_group(gang.key, group)
        judged_ms = judged_by_ms(group, now_ms)
        if judged_ms:
            gang.due(judged_ms)
        if look is None:
            return GangContext(group, barrier=barrier, is_reading=bool(judged_ms)), []
        is_old = looked.is_old and is_fresh(gang)
        looks: list[Effect] = []
        if (is_old or not looked.is_known) and unassigned(gang):
            asked = self.lookups.ask(gang.key)
            looks = [ReadOwner(asked)] if asked is not None else []
        if not barrier and looked.is_known and looked.facts is None:
            barrier = unreadable(look, group)
        return (
            GangContext(
                group,
                looked.facts,
                barrier=barrier,
                is_reading=bool(judged_ms) or (not looked.is_known and not barrier),
                is_old=is_old,
                again_ms=self.lookups.again_ms(looked) if looked.is_known and not looked.is_old else None,
            ),
            looks,
        )

    def _look(self, gang: Gang, group: PodGroup | None) -> OwnerKey | None:
        if gang.key.kind == "podgroup":
            return group_owner(group) if group is not None else None
        return next((member.place.look for member in gang.members.values()), None)

    def _new_parts(self, gang: Gang, found: Plan, base: str, around: GangContext) -> list[Part]:
        """Requests for pods that have none."""
        batches = [(found.first, True)] if found.first else []
        batches += [([member], False) for member in found.single]
        parts: list[Part] = []
        for members, is_first in batches:
            slots = slots_of(gang, members, around.facts)
            former = {gang.former.pop(member.uid) for member in members if member.uid in gang.former}
            uid = digest([gang.key.namespace, base, *sorted(former), *(member.uid for member in members)], 32)
            name = self._free_name(gang, base, uid, may_be_base=is_first)
            while self._is_over((gang.key.namespace, name), uid):
                uid = digest([uid], 32)
                name = self._free_name(gang, base, uid, may_be_base=is_first)
            part = Part(gang.key, name, uid, slots, is_first=is_first, gang_pods=found.gang_pods)
            part.request = _request(part, members, around)
            part.published = True
            gang.parts[name] = part
            parts.append(part)
        return parts

    def _rebuild(self, gang: Gang, around: GangContext) -> tuple[list[Part], list[tuple[Part, str]]]:
        """Requests to publish again after a restart, and those that cannot be; forget refusals that no longer hold."""
        again: list[Part] = []
        lost: list[tuple[Part, str]] = []
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
                chip_pods = sum(1 for member in gang.members.values() if member.is_live and member.ask.chips)
                part.gang_pods = max(part.gang_pods, chip_pods)
                part.request = _request(part, members, around)
                part.published = True
                again.append(part)
            else:
                lost.append((part, "its pods are gone"))
                dissolve(gang, part)
        return again, lost

    def _take_back(self, part: Part, reason: str, now_ms: int) -> Effect:
        """Withdraw a request; its name is free at once unless it has chips that must be given back first."""
        holder = self._holders.get((part.gang.namespace, part.name))
        if holder is not None and holder.uid == part.uid and not part.is_placed:
            holder.is_over = True
        return CancelRequest(JobCancel(part.gang.namespace, part.name, part.uid, reason, now_ms))

    def _is_over(self, name: Name, uid: str) -> bool:
        """Whether a job of this uid had the name and is over: it would not be accepted again."""
        holder = self._holders.get(name)
        return holder is not None and holder.is_over and holder.uid == uid

    def _free_name(self, gang: Gang, base: str, uid: str, *, may_be_base: bool) -> str:
        """Name that no other request has."""
        names = [base] if may_be_base else []
        names += [f"{base}-{uid[:digits]}" for digits in _SUFFIXES]
        for name in names:
            full = (gang.key.namespace, name)
            holder = self._holders.get(full)
            is_free = holder is None or holder.is_over or holder.uid == uid
            if is_free and self.names.get(full, gang.key) == gang.key and name not in gang.parts:
                break
        else:
            name = names[-1]
        self.names[gang.key.namespace, name] = gang.key
        return name

    def _wanted(self, gang: Gang, found: Plan, base: str, around: GangContext, now_ms: int) -> dict[str, MembersSeen]:
        """What is to be told of the gang's pods, by name."""
        podgroup = gang.key.name if gang.key.kind == "podgroup" else ""
        owner = _owner(gang, around)
        wanted = {
            name: members_of(part, owner=owner, podgroup=podgroup, at_ms=now_ms) for name, part in gang.parts.items()
        }
        is_alone = gang.key.kind == "pod"
        waiting = [([member], why, is_alone) for member, why in found.held_alone]
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
            before, now = self.told.get((namespace, name)), wanted.get(name)
            if now is None:
                effects.append(
                    PublishMembers(tombstone(namespace, name, before.uid if before is not None else "", at_ms=now_ms))
                )
                self.told.pop((namespace, name), None)
                gang.told.pop(name, None)
                self.names.pop((namespace, name), None)
            elif before is None or not is_same(before, now):
                effects.append(PublishMembers(now))
                self.told[namespace, name] = now
                gang.told[name] = None
        return effects

    def _forget(self, gang: Gang, group: PodGroup | None) -> None:
        """Let go of what is not needed any more."""
        for uid in [uid for uid in gang.former if uid not in gang.members]:
            del gang.former[uid]
        if not gang.members and not gang.parts and group is None:
            self.lookups.use(gang.key, None)


def _request(part: Part, members: list[Member], around: GangContext) -> JobRequest:
    return request_of(
        part.gang,
        members,
        name=part.name,
        uid=part.uid,
        group=around.group,
        facts=around.facts,
        gang_pods=part.gang_pods,
    )


def _owner(gang: Gang, around: GangContext) -> Owner:
    """Controller of a gang: that of its PodGroup, else that of its pods."""
    controller = around.group.metadata.controller if around.group is not None else None
    if controller is not None:
        return Owner(controller.kind, controller.name, controller.uid)
    return min(
        (member.place.owner for member in gang.members.values()),
        key=lambda it: (it.kind, it.name, it.uid),
        default=Owner(),
    )
