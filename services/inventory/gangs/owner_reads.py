"""When the owner of a gang is read: for its first request, and again whenever it may have changed.

A watch of its kind shows changes soon, but it may be late, or not be allowed. So an owner is read as well when
something else shows that it may have changed: pods come or are missing, or the PodGroup changes. An owner of which
nothing is seen is read again after ever longer pauses while a request waits.
"""

from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.services.inventory.effects import Effect, ReadOwner
from berth.services.inventory.gangs.gang_context import GangContext
from berth.services.inventory.gangs.lookups import Lookups
from berth.services.inventory.gangs.model import Gang
from berth.services.inventory.gangs.request_lifecycle import unassigned

_CHECK_AGAIN_MS: Final = 1_000
"""First pause before the owner of a gang that lacks pods is read again; it doubles."""


def owner_in_turn(gang: Gang) -> OwnerKey | None:
    """Owner of pods that state the size of their gang, if it says why they are not all there, or not all placed.

    Whether workers wait for their leader, for instance, is not in the pods.
    """
    member = next(iter(gang.members.values()), None)
    if member is None or member.place.size is None:
        return None
    live = [one for one in gang.members.values() if one.is_live]
    is_whole = len(live) >= member.place.size and (gang.look is None or not gang.parts)
    if is_whole and len({one.is_bound for one in live}) == 1:
        return None
    return member.place.beneath


def read_owner(lookups: Lookups, gang: Gang) -> list[Effect]:
    """Read of a gang's owner, unless one has begun."""
    asked = lookups.ask(gang.key)
    return [ReadOwner(asked)] if asked is not None else []


def read_unread(lookups: Lookups, gang: Gang, context: GangContext) -> list[Effect]:
    """Read of an owner that was not read yet, if pods or requests of before a restart wait for it.

    Pods may be free only since their requests were dropped, so this comes after that.
    """
    if not context.is_unread:
        return []
    waits = any(not part.published or part.is_refused for part in gang.parts.values())
    return read_owner(lookups, gang) if waits or unassigned(gang) else []


def read_for_missing(lookups: Lookups, gang: Gang, now_ms: int) -> list[Effect]:
    """Read of the owner of a gang that lacks pods: it may be gone.

    The owner may go after its pods, so it is read again after ever longer pauses, as long as they are missing.
    """
    since = [at_ms for part in gang.parts.values() if (at_ms := part.lacking_since_ms) is not None]
    if not since or gang.look is None or gang.is_past:
        gang.check_ms = None
        return []
    is_due = gang.check_ms is None or now_ms >= gang.check_ms
    if is_due:
        gang.check_ms = now_ms + max(now_ms - min(since), _CHECK_AGAIN_MS)
    gang.due(gang.check_ms or now_ms)
    return read_owner(lookups, gang) if is_due else []


def read_in_time(lookups: Lookups, gang: Gang, now_ms: int) -> list[Effect]:
    """Read of an owner that a watch shows otherwise, or whose request waits: no pod shows a new minimum or queue."""
    waits = any(part.phase == "waiting" and part.state == "open" for part in gang.parts.values())
    lookup = lookups.lookup(gang.key, now_ms)
    if not (waits or lookup.is_changed) or gang.look is None or gang.is_past or not lookup.is_known:
        return []
    if now_ms >= lookup.refresh_ms:
        return read_owner(lookups, gang)
    gang.due(lookup.refresh_ms)
    return []


def record_changes(lookups: Lookups, gang: Gang, group: PodGroup | None) -> None:
    """Note which pods have come, and a change of the spec of the PodGroup: the owner may have changed before that.

    Only a read that begins later says what the owner is now.
    """
    reads = lookups.reads(gang.key)
    gang.arrivals = {uid: gang.arrivals.get(uid, reads) for uid in gang.members}
    if group is not None and group.spec != gang.group_spec:
        gang.group_reads = reads if gang.group_spec is not None else -1
        gang.group_spec = group.spec
