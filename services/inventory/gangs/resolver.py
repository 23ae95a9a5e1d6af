"""Resolver of one gang at a time: the requests that its pods need, and the facts about them.

Longer than 400 lines because the steps of one gang follow one another, each on what those before found.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from berth.core.explain.refusal_text import sentence
from berth.core.requests.bounds import above_bounds
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.membership import base_name, digest, group_owner
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey
from berth.formats.kubernetes.workloads.registry import PODGROUP, kinds
from berth.schemas.facts import JobSeen, MembersSeen, Owner, is_repeat
from berth.schemas.intake import FROM_PODS, JobCancel, JobRequest
from berth.schemas.status import JobStatus
from berth.services.inventory.effects import Effect, PublishCancel, PublishMembers, PublishReplacements, PublishRequest
from berth.services.inventory.gangs.ages import changed_precedence, give_age, is_below, lost_ranks, update_size
from berth.services.inventory.gangs.backups import assign_backups
from berth.services.inventory.gangs.barriers import admission_grace_ends_ms, barrier_of_group, pending_again, unreadable
from berth.services.inventory.gangs.chip_pods import request_with_chips
from berth.services.inventory.gangs.completeness import Completeness, completeness
from berth.services.inventory.gangs.gang_context import GangContext
from berth.services.inventory.gangs.lookups import Lookups
from berth.services.inventory.gangs.members import held, members_of, owner_of, tombstone
from berth.services.inventory.gangs.model import OVER, Gang, Member, Part
from berth.services.inventory.gangs.owner_reads import (
    owner_in_turn,
    read_for_missing,
    read_in_time,
    read_owner,
    read_unread,
    record_changes,
)
from berth.services.inventory.gangs.plan import Plan, minimum_now, plan, stated_priority
from berth.services.inventory.gangs.priorities import PRIORITY_ASSUMED, Priorities
from berth.services.inventory.gangs.queues import JobQueues
from berth.services.inventory.gangs.ranks import slots_of
from berth.services.inventory.gangs.replacements import TAKEN_BACK, changed_replacements, replace_ranks
from berth.services.inventory.gangs.request_lifecycle import (
    REPLACED,
    dissolve,
    fill,
    resized,
    settle_parts,
    suspended,
    too_large,
    unassigned,
    update_slots,
)
from berth.services.inventory.gangs.requests import request_of, requested_gang_pods
from berth.services.inventory.gangs.revisions import revised
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.gangs.warnings import (
    CONSTRAINT_IGNORED,
    GANG_UNKNOWN,
    ignored_constraints,
    unknown_kind,
)

Name = tuple[str, str]
"""Namespace and name of a job request."""

_SUFFIXES: Final = (8, 12, 16, 24)
"""Digits of a request's name suffix; a longer one is used when shorter ones are taken."""


@dataclass(slots=True)
class _Holder:
    """Job that uses a name."""

    uid: str
    is_over: bool


class Resolver:
    """Turns pods into requests, and tracks the names that are in use."""

    def __init__(self, settings: GangSettings, queues: JobQueues) -> None:
        self._settings = settings
        self._queues = queues
        self.priorities = Priorities()
        self.lookups = Lookups(again_ms=round(settings.look_again_s * 1000))
        self.names: dict[Name, GangKey] = {}
        """Names under which a request or a fact was published, and their gangs."""
        self.published_members: dict[Name, MembersSeen] = {}
        """Last published fact of each name."""
        self._holders: dict[Name, _Holder] = {}
        """Job that uses, or used last, each name under which pods were requested."""

    def note_job(self, seen: JobSeen) -> None:
        """Note which job uses a name. A uid is not accepted twice, and a name is free only after its job is over."""
        name = (seen.namespace, seen.name)
        if seen.state == "tombstone":
            self._holders.pop(name, None)
            return
        holder = self._holders.get(name)
        if holder is not None and holder.uid == seen.uid:
            holder.is_over = holder.is_over or seen.state == "rejected"
        elif (seen.request is not None and seen.request.origin == FROM_PODS) or (seen.rejection and name in self.names):
            self._holders[name] = _Holder(seen.uid, is_over=seen.state == "rejected")

    def note_status(self, status: JobStatus) -> None:
        """Note whether the job that uses a name is over."""
        holder = self._holders.get((status.namespace, status.name))
        if holder is not None and holder.uid == status.uid:
            holder.is_over = status.phase in OVER

    def is_open(self, name: Name, uid: str) -> bool:
        """Whether a job was requested here and is not over."""
        holder = self._holders.get(name)
        return holder is not None and holder.uid == uid and not holder.is_over

    def settle(
        self,
        gang: Gang,
        group: PodGroup | None,
        now_ms: int,
        elsewhere: Mapping[str, int] | None = None,
        *,
        is_surge: bool = False,
    ) -> list[Effect]:
        """Effects that are due for a gang.

        Args:
            gang: The gang; it is changed.
            group: Its Volcano PodGroup, if there is one.
            now_ms: The time.
            elsewhere: Number of its pods that other schedulers place, by scheduler.
            is_surge: Its pods replace others of their Deployment, which run until they do.
        """
        # 1. Update the slots from the pods; end requests that are over, vanished or not admitted any more.
        gang.due_ms = None
        if group is not None:
            gang.podgroup_uid = group.metadata.uid
        self._update_owner(gang, group, now_ms)
        update_slots(gang)
        backups = assign_backups(gang)
        back = settle_parts(gang, self._settings, is_pending=pending_again(group), now_ms=now_ms)
        if any(reason == REPLACED for _, reason in back):
            self.lookups.outdate(gang.key)
        context = replace(self._context(gang, group, now_ms), elsewhere=elsewhere or {}, is_surge=is_surge)
        update_size(gang, now_ms)
        changed, old = self._outdated(gang, group, context)
        again, lost = self._rebuild(gang, context)
        effects = [self._withdraw(part, reason, now_ms) for part, reason in (*back, *old, *lost)]
        # 2. Free pods take the ranks of pods that are gone.
        tasks = context.tasks
        held_backups = {member.uid for member, _ in backups}
        free = [member for member in unassigned(gang) if member.uid not in held_backups]
        free.sort(key=lambda member: member.order(tasks))
        free, misplaced, outdated = replace_ranks(gang, free)
        effects += [self._withdraw(part, TAKEN_BACK, now_ms) for part in outdated]
        for part in outdated:
            dissolve(gang, part)
        reads = read_unread(self.lookups, gang, context)
        free = fill(gang, free)
        reads += read_for_missing(self.lookups, gang, now_ms)
        reads += read_in_time(self.lookups, gang, now_ms)
        # 3. The other pods become requests, or wait.
        found = plan(gang, free, context, now_ms=now_ms) if not gang.is_past else Plan()
        found.held_single += [*misplaced, *backups]
        base = base_name(gang.key, group)
        if found.is_short and context.again_ms is not None:
            gang.due(context.again_ms)
        if found.needs_owner or (found.is_short and context.is_old):
            reads += read_owner(self.lookups, gang)
        new = self._new_parts(gang, found, base, context)
        # 4. The pods of each rank are published before the request.
        wanted = self._members_to_publish(gang, found, base, now_ms)
        effects += self._publish_members(gang, wanted, now_ms)
        effects += [PublishReplacements(fact) for fact in changed_replacements(gang, now_ms)]
        effects += [
            PublishRequest(part.request, self._warnings(gang, part, context), is_new=is_new)
            for parts, is_new in (((*again, *changed), False), (new, True))
            for part in parts
            if part.request is not None
        ]
        effects += reads
        self._forget(gang, group)
        return effects

    def completeness(self, gang: Gang, group: PodGroup | None, now_ms: int) -> Completeness:
        """What is known of the pods of a gang."""
        return completeness(gang, group, _look(gang, group), self.lookups.lookup(gang.key, now_ms))

    def _update_owner(self, gang: Gang, group: PodGroup | None, now_ms: int) -> None:
        """Note which owner the gang has, and whether it is over."""
        if gang.key.kind == "pod" and not gang.members:
            gang.ended = f"pod {gang.key.name} was deleted"
        if gang.is_past:
            return
        gang.look = _look(gang, group)
        gang.ungrouped = ""
        if group is not None:
            made_by = group.metadata.controller
            gang.group_owner = Owner(made_by.kind, made_by.name, made_by.uid) if made_by is not None else None
            gang.owner_uid = made_by.uid if made_by is not None else ""
        elif gang.key.kind == "podgroup":
            gang.ungrouped = f"PodGroup {gang.key.name} was deleted" if gang.podgroup_uid else ""
        elif kinds().has_uid(gang.key.kind):
            gang.owner_uid = gang.key.uid or gang.owner_uid
        is_beneath = _is_beneath(gang, group)
        self.lookups.use(gang.key, gang.look, "" if is_beneath else gang.owner_uid)
        record_changes(self.lookups, gang, group)
        if gang.is_succeeded and not any(member.is_live for member in gang.members.values()):
            gang.ended = f"{gang.key.kind} {gang.key.name} was deleted and created again"
        elif is_beneath:
            gang.ended = gang.finished = ""  # its PodGroup is its owner
        elif gang.look is not None:
            lookup = self.lookups.lookup(gang.key, now_ms)
            is_sized = any(member.place.size is not None for member in gang.members.values())
            gang.ended, gang.finished = "" if is_sized else lookup.ended, lookup.finished

    def _outdated(
        self, gang: Gang, group: PodGroup | None, context: GangContext
    ) -> tuple[list[Part], list[tuple[Part, str]]]:
        """Requests with another queue, priority or preemption now; and those with another minimum, size or precedence.

        The latter are withdrawn, with the reasons.
        """
        back = suspended(gang) if context.is_suspended else []
        least = minimum_now(gang, context)
        back += resized(gang, context.facts, least)
        for part, reason in changed_precedence(gang, least.count):
            back.append((part, reason))
            dissolve(gang, part)
        back += too_large(gang, least, is_surge=context.is_surge)
        stated = stated_priority(context)
        is_read = not context.is_unread and (gang.look is None or (context.facts or context.turns) is not None)
        has_priority = group is not None or stated is not None
        has_claims = is_read and (group is not None or gang.key.kind != "podgroup") and not gang.is_past
        found, too_long = revised(
            gang,
            (lambda members: self._queues.of(group, context.facts, members)) if is_read else None,
            (lambda members: self.priorities.of(members, group, stated)) if has_priority else None,
            (lambda members: self.priorities.preemption(members, group, context.facts, stated)) if has_claims else None,
        )
        return found, [*back, *too_long]

    def _context(self, gang: Gang, group: PodGroup | None, now_ms: int) -> GangContext:
        """State besides the pods."""
        look = gang.look if not gang.is_past else None
        lookup = self.lookups.lookup(gang.key, now_ms)
        barrier = barrier_of_group(gang.key, group)
        grace_ends_ms = admission_grace_ends_ms(group, now_ms)
        if grace_ends_ms:
            gang.due(grace_ends_ms)
        if look is None:
            return GangContext(group, barrier=barrier, is_reading=bool(grace_ends_ms))
        if _is_beneath(gang, group):
            return GangContext(
                group,
                turns=lookup.facts,
                barrier=barrier,
                is_reading=bool(grace_ends_ms) or not lookup.is_known,
                is_unread=not lookup.is_known,
            )
        if not barrier and lookup.is_known and (gang.ended or lookup.facts is None):
            barrier = gang.ended or unreadable(look, group, gang.members.values())
        return GangContext(
            group,
            lookup.facts,
            barrier=barrier,
            is_reading=bool(grace_ends_ms) or (not lookup.is_known and not barrier),
            is_unread=not lookup.is_known,
            is_old=lookup.is_old,
            read=lookup.read if lookup.is_known else None,
            again_ms=self.lookups.again_ms(lookup) if lookup.is_known and not lookup.is_old else None,
        )

    def _new_parts(self, gang: Gang, found: Plan, base: str, context: GangContext) -> list[Part]:
        """Requests for pods that have none."""
        batches = [(found.first, True)] if found.first else []
        batches += [(members, False) for members in (*found.later, *([member] for member in found.single))]
        parts: list[Part] = []
        lost, below = lost_ranks(gang), is_below(gang, found.minimum)
        for members, is_first in batches:
            slots = slots_of(gang, members, context.facts)
            previous = {m.uid: gang.previous_uids[m.uid] for m in members if m.uid in gang.previous_uids}
            uid = digest(
                [gang.key.namespace, base, gang.podgroup_uid, *sorted({*previous.values()}), *(m.uid for m in members)],
                32,
            )
            name = self._free_name(gang, base, uid, may_be_base=is_first)
            while self._is_over((gang.key.namespace, name), uid):
                uid = digest([uid], 32)
                name = self._free_name(gang, base, uid, may_be_base=is_first)
            part = Part(gang.key, name, uid, slots, is_first=is_first, gang_pods=found.gang_pods, minimum=found.minimum)
            give_age(gang, part, members, is_lost=lost > 0, is_below=below)
            part.request = self._request(gang, part, members, context)
            above = above_bounds(part.request)
            if above is not None:
                found.hold(members, f"no request is made for so large a gang: {sentence(above)}")
                continue
            for member_uid in previous:
                del gang.previous_uids[member_uid]
            lost -= len(members)
            part.published = True
            gang.parts[name] = part
            parts.append(part)
        return parts

    def _rebuild(self, gang: Gang, context: GangContext) -> tuple[list[Part], list[tuple[Part, str]]]:
        """Requests to publish again after a restart, and those that cannot be; drops refusals that no longer hold.

        What a request says is not known before its owner was read: until then both stay as they are.
        """
        again: list[Part] = []
        lost: list[tuple[Part, str]] = []
        for name in sorted(gang.parts):
            part = gang.parts[name]
            if part.published and not part.is_refused:
                continue
            members = [gang.members[slot.uid] for slot in part.slots if slot.uid in gang.members]
            complete = len(members) == len(part.slots)
            if part.is_refused:
                if complete and not context.is_unread and self._is_changed(gang, part, members, context):
                    dissolve(gang, part)
            elif not complete:
                lost.append((part, "its pods are gone"))
                dissolve(gang, part)
            elif not context.is_unread:
                chip_pods = sum(1 for member in gang.members.values() if member.is_live and member.ask.chips)
                part.gang_pods = max(part.gang_pods, chip_pods)
                part.request = self._request(gang, part, members, context)
                part.published = True
                again.append(part)
        return again, lost

    def _is_changed(self, gang: Gang, part: Part, members: list[Member], context: GangContext) -> bool:
        """Whether a request would be another one now, for the same pods."""
        if part.request is None:
            return False
        part.gang_pods = requested_gang_pods(part.request, part.gang_pods)  # its verdict may come after its pods
        return self._request(gang, part, members, context) != part.request

    def _request(self, gang: Gang, part: Part, members: list[Member], context: GangContext) -> JobRequest:
        return request_of(
            part,
            members,
            group=context.group,
            facts=context.facts,
            queue=self._queues.of(context.group, context.facts, members),
            priority=self.priorities.of(members, context.group, stated_priority(context)),
            preemption=self.priorities.preemption(members, context.group, context.facts, stated_priority(context)),
            beside=request_with_chips(gang, part),
            avoided=part.request.avoided if part.request is not None else sorted(gang.rejecting),
        )

    def _warnings(self, gang: Gang, part: Part, context: GangContext) -> dict[str, str]:
        members = [gang.members[slot.uid] for slot in part.slots if slot.uid in gang.members]
        found = {
            PRIORITY_ASSUMED: self.priorities.warning(members, context.group, stated_priority(context)),
            GANG_UNKNOWN: unknown_kind(members, context.facts),
            CONSTRAINT_IGNORED: ignored_constraints(context.group, members),
        }
        return {reason: sentence for reason, sentence in found.items() if sentence}

    def _withdraw(self, part: Part, reason: str, now_ms: int) -> Effect:
        """Withdraw a request. Its name is free at once unless the request has chips, which must be released first."""
        holder = self._holders.get((part.gang.namespace, part.name))
        if holder is not None and holder.uid == part.uid and not part.is_placed:
            holder.is_over = True
        cancel = JobCancel(part.gang.namespace, part.name, part.uid, reason, now_ms, inferred=True)
        return PublishCancel(cancel)

    def _is_over(self, name: Name, uid: str) -> bool:
        """Whether a job of this uid had the name and is over: the dispatcher would not accept it again."""
        holder = self._holders.get(name)
        return holder is not None and holder.is_over and holder.uid == uid

    def _free_name(self, gang: Gang, base: str, uid: str, *, may_be_base: bool) -> str:
        """Name that no other request uses."""
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

    def _members_to_publish(self, gang: Gang, found: Plan, base: str, now_ms: int) -> dict[str, MembersSeen]:
        """Facts to publish about the gang's pods, by name."""
        owner = owner_of(gang)
        wanted = {name: members_of(gang, part, owner, at_ms=now_ms) for name, part in gang.parts.items()}
        is_alone = gang.key.kind == "pod"
        waiting = [([member], why, is_alone) for member, why in found.held_single]
        if found.held is not None:
            waiting.insert(0, (*found.held, True))
        for members, why, may_be_base in waiting:
            name = self._free_name(gang, base, digest([members[0].uid], 32), may_be_base=may_be_base)
            wanted[name] = held(gang.key.namespace, name, members, why, owner, at_ms=now_ms)
        return wanted

    def _publish_members(self, gang: Gang, wanted: dict[str, MembersSeen], now_ms: int) -> list[Effect]:
        """Facts that differ from the published ones."""
        effects: list[Effect] = []
        namespace = gang.key.namespace
        for name in sorted({*gang.published_names, *wanted}):
            before, now = self.published_members.get((namespace, name)), wanted.get(name)
            if now is None:
                effects.append(
                    PublishMembers(tombstone(namespace, name, before.uid if before is not None else "", at_ms=now_ms))
                )
                self.published_members.pop((namespace, name), None)
                gang.published_names.pop(name, None)
                self.names.pop((namespace, name), None)
            elif not is_repeat(before, now):
                effects.append(PublishMembers(now))
                self.published_members[namespace, name] = now
                gang.published_names[name] = None
        return effects

    def _forget(self, gang: Gang, group: PodGroup | None) -> None:
        """Drop state that is not needed any more."""
        gang.moved.clear()
        for uid in [uid for uid in gang.ages if uid not in gang.members]:
            del gang.ages[uid]
        for uid in [uid for uid in gang.previous_uids if uid not in gang.members]:
            del gang.previous_uids[uid]
        if not gang.members and not gang.parts and group is None:
            self.lookups.use(gang.key, None)


def _look(gang: Gang, group: PodGroup | None) -> OwnerKey | None:
    """Owner that is read for a gang; None when none is."""
    if gang.is_past:
        return gang.look
    if gang.key.kind == "podgroup":
        made_by = group_owner(group) if group is not None else None
        place = next((member.place for member in gang.members.values()), None)
        return made_by or (place.beneath if place is not None and place.key.kind == PODGROUP else None)
    return next((member.place.look or owner_in_turn(gang) for member in gang.members.values()), gang.look)


def _is_beneath(gang: Gang, group: PodGroup | None) -> bool:
    """Whether the object that is read for a PodGroup made its pods, and is not its owner."""
    return gang.key.kind == "podgroup" and gang.look is not None and (group is None or group_owner(group) is None)
