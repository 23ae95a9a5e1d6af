"""Which PodGroups are the same gang: one that appears, has another name, or is made again.

The controller of a PodGroup decides, or that of its pods. Without a controller the name does, as long as a pod lives
that holds a rank. What another controller makes under the same name is another gang.

See decision owner-identity.
"""

from collections.abc import Sequence

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.port import GangKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.schemas.facts import MembersSeen, Owner
from berth.services.inventory.gangs.model import Gang, Member


def controller_uid(group: PodGroup | None) -> str:
    """Uid of the controller of a PodGroup; empty without one."""
    made_by = group.metadata.controller if group is not None else None
    return made_by.uid if made_by is not None else ""


def holders(gang: Gang) -> list[Member]:
    """Live pods that hold a rank: they have a node, or their request is placed."""
    return [one for one in gang.members.values() if one.is_live and (one.is_bound or gang.has_placed(one.uid))]


def update_group(gang: Gang, uid: str, made_by: str) -> str:
    """Note which group has the name of a gang now; returns why the gang is over if that is another one, else nothing.

    Args:
        gang: The gang; its ``owner_uid`` is that of the former group's controller.
        uid: Uid of the group; empty if there is none.
        made_by: Uid of its controller; empty without one.
    """
    if gang.podgroup_uid in {"", uid}:
        gang.podgroup_uid = uid
        return ""
    if not _is_same(gang, made_by):
        return why_over(gang.key, is_made_again=bool(uid))
    if uid:
        gang.former_tops = _tops_of(holders(gang)) if not made_by else frozenset()
        gang.former_uid, gang.podgroup_uid = gang.podgroup_uid, uid
    return ""


def why_over(key: GangKey, *, is_made_again: bool) -> str:
    """Why a gang is over whose group is gone, as a sentence."""
    kind = "PodGroup" if key.kind == "podgroup" else f"{key.kind} group"
    return f"{kind} {key.name} was deleted{' and created again' if is_made_again else ''}"


def _is_same(gang: Gang, made_by: str) -> bool:
    """Whether a group that has the name of a gang now is the one that the gang belongs to, made again."""
    if made_by and made_by == gang.owner_uid:
        return True
    holding = holders(gang)
    if made_by:
        return any(member.place.owner.uid == made_by for member in holding)
    tops = _tops_of(holding)
    waiting = [member for member in gang.members.values() if member.waits and member not in holding]
    return bool(holding) and all(is_of_one(tops, member) for member in waiting)


def _tops_of(members: Sequence[Member]) -> frozenset[str]:
    """Top controllers of some pods, as far as they have any."""
    return frozenset(filter(None, map(_top, members)))


def is_of_one(tops: frozenset[str], member: Member) -> bool:
    """Whether a pod may be of one of some top controllers; any may if there are none."""
    top = _top(member)
    return not tops or not top or top in tops


def _top(member: Member) -> str:
    """Controller of a pod by its uid; of one of several versions the object that makes these, by its name."""
    owner = member.place.owner
    family = family_of(owner)
    return f"{owner.kind} {family}" if family is not None else owner.uid


def family_of(owner: Owner) -> str | None:
    """Name of the object that makes a controller for each version of its pods; None if nothing does."""
    kind = kinds().named.get(owner.kind)  # also of another API
    return kind.family(owner.name) if kind is not None and kind.family is not None else None


def is_same_after_restart(seen: MembersSeen, group: PodGroup | None, before: Gang | None, *, has_holder: bool) -> bool:
    """Whether a published request belongs to the gang that has the name of its PodGroup now.

    Args:
        seen: What an earlier run published about the request.
        group: The PodGroup that has the name now, if there is one.
        before: The gang of this name; None if there is none.
        has_holder: A pod of the request lives and has a node.
    """
    if group is None:
        other = before.podgroup_uid if before is not None else ""
        return other in {"", seen.podgroup_uid} or (before is not None and before.owner_uid == seen.owner.uid != "")
    if seen.podgroup_uid in {"", group.metadata.uid}:
        return True
    made_by = controller_uid(group)
    return made_by == seen.owner.uid if made_by else has_holder


class GroupsByController:
    """PodGroups by the uid of their controller: those that exist, and those that are gone but have a gang."""

    def __init__(self) -> None:
        self._existing: dict[GangKey, str] = {}
        self._made_by: dict[str, dict[GangKey, None]] = {}
        self._gone: dict[str, dict[GangKey, None]] = {}

    def __contains__(self, key: GangKey) -> bool:
        """Whether a PodGroup exists."""
        return key in self._existing

    def add(self, key: GangKey, uid: str) -> None:
        """Note that a PodGroup exists, and the uid of its controller; empty without one."""
        self.remove(key)
        self._existing[key] = uid
        if uid:
            self._made_by.setdefault(uid, {})[key] = None
            self._gone.get(uid, {}).pop(key, None)

    def remove(self, key: GangKey) -> None:
        """Note that a PodGroup does not exist."""
        uid = self._existing.pop(key, "")
        if uid:
            del self._made_by[uid][key]
            if not self._made_by[uid]:
                del self._made_by[uid]

    def leave(self, key: GangKey, uid: str) -> None:
        """Note that a PodGroup of a controller is gone and its gang is not."""
        if uid and key not in self._existing:
            self._gone.setdefault(uid, {})[key] = None

    def forget(self, key: GangKey, uid: str) -> None:
        """Note that the gang of a PodGroup is gone too, by the uid of its controller."""
        gone = self._gone.get(uid, {})
        gone.pop(key, None)
        if not gone:
            self._gone.pop(uid, None)

    def only(self, uid: str) -> GangKey | None:
        """PodGroup of a controller that has exactly one; None otherwise: what has several divides its pods itself."""
        keys = self._made_by.get(uid, {})
        return next(iter(keys)) if len(keys) == 1 else None

    def gone(self, uid: str) -> list[GangKey]:
        """Former PodGroups of a controller of which it has none now."""
        return [] if uid in self._made_by else list(self._gone.get(uid, ()))

    def before(self, uid: str) -> list[GangKey]:
        """Former PodGroups of a controller."""
        return list(self._gone.get(uid, ()))
