"""Gangs by key, and the gang of each pod.

A gang of a PodGroup has no uid in its key. When another gang has the name of its PodGroup, it becomes a *past* gang: it
keeps what is placed under the uid of its PodGroup, until the pods are gone. Pods that hold no place go to the gang that
has the name now.

A pod may be bound before a controller gives it a PodGroup, or before another controller adopts it. It stays in its
gang, and is a *latecomer* of the PodGroup or controller, until that turns out to be the same gang: then the gang
*joins* it, with all that it has placed.
"""

from collections.abc import Callable
from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.rejections import rejection_of
from berth.formats.kubernetes.workloads.port import GangKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.schemas.facts import MembersSeen, Owner
from berth.services.inventory.gangs.identity import GroupsByController, controller_uid, family_of, is_same_after_restart
from berth.services.inventory.gangs.model import Gang, Member, is_past
from berth.services.inventory.gangs.request_lifecycle import unassigned
from berth.services.inventory.gangs.restoring import restored_owner

_LOST: Final = "lost"
"""Kind of a gang of which only requests are left."""
_UNKNOWN_UID: Final = "unknown"
"""Uid of a PodGroup that is gone, in facts of releases that did not write it."""
_REJECTING_MAX: Final = 16
"""Most nodes that the requests of a gang avoid."""


class GangIndex:
    """All gangs.

    Args:
        touch: Called with the key of a gang that has changed.
        names: Gang of each name (namespace, name) of a request; kept up to date when requests change their gang.
    """

    def __init__(self, touch: Callable[[GangKey], None], names: dict[tuple[str, str], GangKey]) -> None:
        self.gangs: dict[GangKey, Gang] = {}
        self._request_names = names
        self._groups = GroupsByController()
        self._owned: dict[str, GangKey] = {}
        """Gang of each controller, by its uid."""
        self._gang_of: dict[str, GangKey] = {}
        """Gang of each pod, by uid of the pod."""
        self._touch = touch
        self._latecomers: dict[GangKey, dict[str, Member]] = {}
        """Pods of other gangs that name a PodGroup or a controller, by its key and their uids."""
        self._names: dict[str, GangKey] = {}
        """Key of the PodGroup or controller that a latecomer names, by uid of the pod."""
        self._running: dict[tuple[str, str], dict[str, str]] = {}
        """Uid of the ReplicaSet of pods that run, by uid of the pod, of each Deployment: its namespace and name."""
        self._namesakes: dict[tuple[str, str, str], dict[GangKey, None]] = {}
        """Gangs of controllers of one kind and name, by their uids: at most one of these controllers exists."""

    def gang(self, key: GangKey) -> Gang:
        """Gang of a key; created if there is none."""
        gang = self.gangs.get(key)
        if gang is None:
            gang = self.gangs[key] = Gang(key)
            if key.uid and not is_past(key):
                namesakes = self._namesakes.setdefault(key[:3], {})
                for before in namesakes:
                    self.gangs[before].is_succeeded = True
                    self.gangs[before].whole_ms = None
                    self._touch(before)
                namesakes[key] = None
                self._owned[key.uid] = key
        return gang

    def forget(self, key: GangKey) -> None:
        """Take out a gang that has no state."""
        self._groups.forget(key, self.gangs.pop(key).owner_uid)
        if self._owned.get(key.uid) == key:
            del self._owned[key.uid]
        namesakes = self._namesakes.get(key[:3], {})
        if namesakes.pop(key, key) is None and not namesakes:
            del self._namesakes[key[:3]]

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is in some gang, by uid of the pod."""
        return uid in self._gang_of

    def put(self, member: Member) -> None:
        """Take a new or changed pod."""
        key = self._key_of(member)
        before = self._gang_of.get(member.uid, key)
        if before != key:
            gang = self.gangs[before]
            gang.moved[member.uid] = key
            age_seq = gang.ages.pop(member.uid, 0) or _age_of(gang, member.uid)
            if age_seq:
                self.gang(key).ages[member.uid] = age_seq
            self.drop(member.uid)
        gang = self.gang(key)
        if member.uid in gang.members:
            self._note_running(gang.members[member.uid], is_there=False)
        gang.members[member.uid] = member
        _note_rejection(gang, member)
        self._note_running(member, is_there=member.is_bound and member.is_live)
        self._gang_of[member.uid] = key
        self._touch(key)
        self._note_latecomer(member, key)
        self._unite(key.uid)
        self._follow(key, self._named(member))

    def add_group(self, key: GangKey, group: PodGroup) -> None:
        """Note that a PodGroup exists; gangs that turn out to be the same one join its gang."""
        uid = controller_uid(group)
        self._groups.add(key, uid)
        self._unite(uid)
        self._rename_latecomers(uid)
        for late in self.latecomers(key):
            if late.uid in self._gang_of:
                self._touch(self._gang_of[late.uid])  # its PodGroup counts the pod no more
                self._follow(self._gang_of[late.uid], key)

    def lose_group(self, key: GangKey, uid: str) -> None:
        """Note that a PodGroup does not exist any more, and the uid of its controller; its gang stays."""
        self._groups.remove(key)
        if key in self.gangs:
            self._groups.leave(key, uid)
            self._unite(uid)
        self._rename_latecomers(uid)

    def names_other(self, member: Member, key: GangKey) -> bool:
        """Whether a pod names another PodGroup than that of a gang by now."""
        return member.place.key[:3] != key[:3] and member.place.key in self._groups

    def latecomers(self, key: GangKey) -> list[Member]:
        """Pods that name a PodGroup or controller and are in another gang: they were bound before they named it."""
        return list(self._latecomers.get(key, {}).values())

    def drop(self, uid: str) -> None:
        """Take a pod out; nothing happens if no gang has it."""
        key = self._gang_of.pop(uid, None)
        if key is not None:
            self._note_running(self.gangs[key].members.pop(uid), is_there=False)
            self._touch(key)
            self._forget_latecomer(uid)

    def _key_of(self, member: Member) -> GangKey:
        """Gang of a pod.

        A pod with a node, or with a rank of a request that is placed, stays in its gang whatever its metadata says by
        now, and so does a pod of a past gang.
        """
        key, known = self._named(member), self._gang_of.get(member.uid)
        if known is None or known == key:
            return key
        stays = member.is_bound or (is_past(known) and known[:3] == key[:3]) or self.gangs[known].has_placed(member.uid)
        return known if stays else key

    def _named(self, member: Member) -> GangKey:
        """Gang that a pod names by now: that of the one PodGroup of its controller, or its own, if it names none."""
        key = member.place.key
        return (self._groups.only(key.uid) if key.uid and not kinds().is_group(key.kind) else None) or key

    def _unite(self, uid: str) -> None:
        """Join the gangs of a controller: into that of its PodGroup, or into its own when it has none any more."""
        own, group = self._owned.get(uid), self._groups.only(uid)
        if group is not None:
            for before in (own, *self._groups.before(uid)):
                self._join(before, group)
        elif own is not None:
            for before in self._groups.gone(uid):
                self._join(before, own)

    def _follow(self, before: GangKey, named: GangKey) -> None:
        """Join a gang to that of a PodGroup, or of a controller, which all of its live pods name by now."""
        gang = self.gangs.get(before)
        if before == named or kinds().is_group(before.kind) or gang is None:
            return
        if named not in self._groups and not _is_of_controller(named):
            return
        if all(self._named(member) == named for member in gang.members.values() if member.is_live):
            self._join(before, named)

    def _join(self, before: GangKey | None, into: GangKey) -> None:
        """Give what is placed of a gang to another one; pods that wait are requested anew there.

        Such a request ends with the name of the PodGroup that its pods are of now.
        """
        old = self.gangs.get(before) if before is not None else None
        if before is None or old is None or before == into or not (old.members or old.parts):
            return
        new = self.gang(into)
        for name in [name for name, part in old.parts.items() if part.is_placed and not part.is_over]:
            part = new.parts[name] = old.parts.pop(name)
            part.gang = into
            self._request_names[into.namespace, name] = into
            if old.published_names.pop(name, name) is None:
                new.published_names[name] = None
            if name in old.replacements:
                new.replacements[name] = old.replacements.pop(name)
        new.age_seq = min(filter(None, (old.age_seq, new.age_seq)), default=0)
        new.largest = max(old.largest, new.largest)
        held = {slot.uid for part in new.parts.values() for slot in part.slots}
        held.update(uid for part in new.parts.values() for uid in part.backups.values())
        for member in list(old.members.values()):
            if member.uid not in old.members:
                continue
            if member.is_bound or not member.is_live or member.uid in held:
                self._move(member, before, new)
                if member.uid in old.previous_uids:
                    new.previous_uids[member.uid] = old.previous_uids.pop(member.uid)
            elif member.place.key != before or into.kind == "podgroup":
                self.put(member)
        self._touch(before)
        self._touch(into)

    def retire(self, key: GangKey, uid: str, why: str) -> Gang | None:
        """Turn the gang of a PodGroup whose name another one has into a past gang; None if there is none.

        Args:
            key: The gang.
            uid: Uid of the PodGroup.
            why: What became of the PodGroup, as a sentence.
        """
        gang = self.gangs.pop(key, None)
        if gang is None:
            return None
        gang.key = key._replace(uid=uid)
        gang.ended = why
        gang.whole_ms = None
        gang.podgroup_uid = uid
        self.gangs[gang.key] = gang
        for pod in gang.members:
            self._gang_of[pod] = gang.key
        for part in gang.parts.values():
            part.gang = gang.key
        self._request_names.update({(key.namespace, name): gang.key for name in (*gang.published_names, *gang.parts)})
        self._groups.forget(key, gang.owner_uid)
        self._touch(gang.key)
        return gang

    def release(self, past: Gang) -> None:
        """Give pods that no request of a past gang holds to the gang that has the name now."""
        for member in unassigned(past):
            previous_uid = past.previous_uids.pop(member.uid, "")
            self._move(member, past.key, self.gang(member.place.key))
            if previous_uid:
                self.gang(member.place.key).previous_uids[member.uid] = previous_uid

    def of_fact(self, seen: MembersSeen, group: PodGroup | None) -> Gang:
        """Gang of a request that an earlier run made.

        Args:
            seen: What the earlier run published about its pods.
            group: The PodGroup that has the name now, if there is one.
        """
        if not seen.podgroup:
            known = (self._gang_of[uid] for uid in seen.pod_uids if uid in self._gang_of)
            uid = seen.owner.uid
            key = next(known, None) or self._groups.only(uid) or self._owned.get(uid)
            gang = self.gang(key or GangKey(_LOST, seen.namespace, seen.job))
            if key is None:
                gang.look, gang.owner_uid = restored_owner(seen), seen.owner.uid
                gang.ended = "its pod was deleted" if not seen.owner.name and seen.job.startswith("pod.") else ""
            return gang
        key = GangKey("podgroup", seen.namespace, seen.podgroup)
        pods = [self.gangs[self._gang_of[uid]].members[uid] for uid in seen.pod_uids if uid in self._gang_of]
        has_holder = any(member.is_live and member.is_bound for member in pods)
        if is_same_after_restart(seen, group, self.gangs.get(key), has_holder=has_holder):
            gang = self.gang(key)
            if group is None:
                gang.podgroup_uid, gang.owner_uid, gang.group_owner = seen.podgroup_uid, seen.owner.uid, seen.owner
                self.lose_group(key, seen.owner.uid)
            return gang
        gang = self.gang(key._replace(uid=seen.podgroup_uid or _UNKNOWN_UID))
        gang.podgroup_uid, gang.group_owner = seen.podgroup_uid, seen.owner
        gang.ended = f"PodGroup {seen.podgroup} was deleted" + (" and created again" if group is not None else "")
        return gang

    def keep(self, seen: MembersSeen, gang: Gang) -> None:
        """Put the pods of a restored request into its gang: all pods of a past gang, otherwise those with a node."""
        for uid in seen.pod_uids:
            known = self._gang_of.get(uid)
            if known is None or known == gang.key:
                continue
            member = self.gangs[known].members[uid]
            if member.is_bound or gang.is_past:
                self._move(member, known, gang)

    def _move(self, member: Member, before: GangKey, gang: Gang) -> None:
        del self.gangs[before].members[member.uid]
        gang.members[member.uid] = member
        self._gang_of[member.uid] = gang.key
        self._touch(before)
        self._touch(gang.key)
        self._note_latecomer(member, gang.key)

    def replaces_others(self, gang: Gang) -> bool:
        """Whether pods run that another ReplicaSet of the same Deployment has made."""
        owner = next((member.place.owner for member in gang.members.values()), None)
        if owner is None:
            return False
        others = self._running.get(_deployment_of(gang.key, owner), {})
        return any(uid != owner.uid for uid in others.values())

    def _note_running(self, member: Member, *, is_there: bool) -> None:
        owner = member.place.owner
        if family_of(owner) is None:
            return
        deployment = _deployment_of(member.place.key, owner)
        running = self._running.setdefault(deployment, {})
        if is_there:
            running[member.uid] = owner.uid
        else:
            running.pop(member.uid, None)
        if not running:
            del self._running[deployment]

    def _note_latecomer(self, member: Member, key: GangKey) -> None:
        self._forget_latecomer(member.uid)
        named = self._named(member)
        if (kinds().is_group(named.kind) and named[:3] != key[:3]) or (_is_of_controller(named) and named != key):
            self._latecomers.setdefault(named, {})[member.uid] = member
            self._names[member.uid] = named
            self._touch(named)

    def _rename_latecomers(self, uid: str) -> None:
        """See latecomers of a controller again: whether it has a PodGroup has changed."""
        keys = [key for key in self._latecomers if uid and (key.uid == uid or key in self._groups)]
        for late in [late for key in keys for late in self.latecomers(key)]:
            self._note_latecomer(late, self._gang_of[late.uid])

    def _forget_latecomer(self, uid: str) -> None:
        named = self._names.pop(uid, None)
        if named is not None:
            del self._latecomers[named][uid]
            if not self._latecomers[named]:
                del self._latecomers[named]
            self._touch(named)


def _deployment_of(key: GangKey, owner: Owner) -> tuple[str, str]:
    """Namespace and name of the Deployment of a ReplicaSet."""
    family = family_of(owner)
    return key.namespace, owner.name if family is None else family


def _is_of_controller(key: GangKey) -> bool:
    """Whether the pods of a gang name it by the uid of their controller."""
    return bool(key.uid) and key.kind != "pod" and not kinds().is_group(key.kind)


def _note_rejection(gang: Gang, member: Member) -> None:
    """Note a node whose kubelet has rejected a pod, until one runs there; the oldest of many are forgotten."""
    node = member.pod.spec.node_name
    if rejection_of(member.pod):
        gang.rejecting.pop(node, None)
        gang.rejecting[node] = None
        if len(gang.rejecting) > _REJECTING_MAX:
            del gang.rejecting[next(iter(gang.rejecting))]
    elif member.pod.status.phase == "Running":
        gang.rejecting.pop(node, None)


def _age_of(gang: Gang, uid: str) -> int:
    """Place in the queue of the request of a pod that waits; 0 without one."""
    waiting = (part for part in gang.parts.values() if not part.is_placed)
    return next((part.age_seq for part in waiting if any(slot.uid == uid for slot in part.slots)), 0)
