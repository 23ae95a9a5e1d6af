"""Lifecycle of the requests of one gang: replacement of pods, end, disappearance and withdrawal of requests."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from berth.core.requests.waiting_jobs import TOO_MANY
from berth.formats.ascend.pod_annotations import JOB, JOB_UID
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.minimum import Minimum, size_of
from berth.formats.kubernetes.workloads.registry import kinds
from berth.runtime.backoff import Backoff
from berth.schemas.intake import JobRequest
from berth.services.inventory.gangs.ages import keep_ages
from berth.services.inventory.gangs.barriers import PENDING_AGAIN
from berth.services.inventory.gangs.chip_pods import chip_pods
from berth.services.inventory.gangs.model import Gang, Member, Part, Slot
from berth.services.inventory.gangs.requests import requested_gang_pods
from berth.services.inventory.gangs.settings import GangSettings

T = TypeVar("T")
_RETRY_MAX_S: Final = 600.0
"""Longest pause before pods whose request failed are requested again."""
REPLACED: Final = "its pods were replaced"
"""Reason of a cancellation: the pods are others, and so may be what their owner says."""
SUSPENDED: Final = "its job is suspended"
"""Reason for which nothing is requested, and of cancellations."""


def update_slots(gang: Gang) -> None:
    """Update the slots of all requests from their pods."""
    for part in gang.parts.values():
        for slot in part.slots:
            if slot.uid:
                slot.see(gang.members.get(slot.uid))


def unassigned(gang: Gang) -> list[Member]:
    """Live pods without a node and without a rank, gated or not; backup pods have one."""
    taken = {slot.uid for part in gang.parts.values() for slot in part.slots}
    taken.update(uid for part in gang.parts.values() for uid in part.backups.values())
    return [
        member for member in gang.members.values() if member.is_live and not member.is_bound and member.uid not in taken
    ]


def fill(gang: Gang, free: list[Member]) -> list[Member]:
    """Give ranks whose pods are gone to free pods; returns the pods that stay free.

    A pod that could replace a bound pod waits until it is known whether the attempt is rolled back. It is not among the
    returned pods.

    Args:
        gang: The gang.
        free: Pods without a rank, in order.
    """
    vacant: dict[tuple[str, str | None], list[tuple[Part, Slot]]] = {}
    for part, slot in _vacancies(gang):
        vacant.setdefault((slot.task, slot.source), []).append((part, slot))
    if not vacant:
        return free
    left: list[Member] = []
    for member in free:
        task, source = member.place.task, member.place.source
        key, found = next(
            (
                (key, pair)
                for key in ((task, source), (task, None))
                for pair in vacant.get(key, ())
                if pair[1].fits(member)
            ),
            (None, None),
        )
        if key is None or found is None or not member.waits:
            left.append(member)
            continue
        vacant[key].remove(found)
        part, slot = found
        if _may_fill(part, slot):
            slot.take(member)
    return left


def _vacancies(gang: Gang) -> Iterator[tuple[Part, Slot]]:
    for name in sorted(gang.parts):
        part = gang.parts[name]
        if part.state == "closed" or part.is_over or (part.is_settled and not part.restarts):
            continue
        for slot in part.slots:
            if not slot.is_live:
                yield part, slot


def _may_fill(part: Part, slot: Slot) -> bool:
    """Whether a rank may get another pod now: its previous pod was never bound, or its attempt was rolled back."""
    if part.phase in {"", "waiting"}:
        return True
    return part.phase != "ending" and (not slot.was_bound or 0 < slot.attempt < part.attempt)


def settle_parts(gang: Gang, settings: GangSettings, *, is_pending: str, now_ms: int) -> list[tuple[Part, str]]:
    """End the requests that are over; returns those that must be withdrawn, with the reasons.

    Args:
        gang: The gang.
        settings: Time limits.
        is_pending: Why the gang's PodGroup is not admitted any more; empty when it is.
        now_ms: The time.
    """
    back: list[tuple[Part, str]] = []
    for name in sorted(gang.parts):
        part = gang.parts[name]
        if part.is_first and (part.is_placed or part.is_over):
            gang.starts_least = False  # of room for the next first request nothing is known
        if part.is_over:
            _end(gang, part, settings, now_ms)
            continue
        _give_up_ranks(gang, part, settings, now_ms)
        reason = _withdrawal_reason(gang, part, settings, is_pending=is_pending, now_ms=now_ms)
        if reason:
            back.append((part, reason))
            gang.starts_least &= not part.is_first
            dissolve(gang, part)
    return back


def resized(gang: Gang, facts: OwnerFacts | None, least: Minimum) -> list[tuple[Part, str]]:
    """Withdraw requests that wait, were made for a larger gang, or are first with another minimum; with the reasons.

    So are those without pods that no pod will take over. A late pod may wait for the size of its gang alone: where that
    is more than a leaf has nodes.

    Args:
        gang: The gang.
        facts: Facts of its owner, if that was read.
        least: Pods that must start together now; their number is 0 when it is unknown.
    """
    pods, minimum = chip_pods(gang, facts, least) if least.size else 0, least.count
    back = _surplus(gang, facts)
    back += _redone(gang, "size", lambda one: max(requested_gang_pods(one, 0), pods), lambda _: pods) if pods else []
    for part in list(gang.parts.values()) if minimum else ():
        if not part.is_first or part.phase not in {"", "waiting"} or part.state == "closed":
            continue
        if part.minimum not in {0, minimum}:
            back.append((part, f"its minimum is now {minimum}, not {part.minimum}"))
            dissolve(gang, part)
        part.minimum = minimum
    return back


def _surplus(gang: Gang, facts: OwnerFacts | None) -> list[tuple[Part, str]]:
    """Withdraw the requests that wait without a pod if the owner has all of its pods beside them; with the reasons.

    As long as it has fewer it makes pods again, which take the ranks of those that are gone.
    """
    waiting = (part for part in gang.parts.values() if part.phase in {"", "waiting"} and part.state == "open")
    empty = [part for part in waiting if not any(slot.is_live for slot in part.slots)]
    if facts is None or not empty:
        return []
    size = size_of(facts)
    if size is None:
        return []
    free = {member.uid for member in unassigned(gang)}  # one of them may be in place of a pod that is gone
    there = sum(member.is_live and member.uid not in free for member in gang.members.values())
    back: list[tuple[Part, str]] = []
    for part in empty if there >= size else ():
        pods = "its pod is" if len(part.slots) == 1 else "its pods are"
        back.append((part, f"{pods} gone, and no other one will be made"))
        dissolve(gang, part)
    return back


def suspended(gang: Gang) -> list[tuple[Part, str]]:
    """Withdraw the requests of a suspended owner that wait: its controller is about to delete their pods."""
    back: list[tuple[Part, str]] = []
    for part in list(gang.parts.values()):
        if part.phase in {"", "waiting"} and part.state == "open":
            back.append((part, SUSPENDED))
            dissolve(gang, part)
    return back


def too_large(gang: Gang, least: Minimum, *, is_surge: bool) -> list[tuple[Part, str]]:
    """Withdraw the first request of a gang that waits for pods without which it may start.

    Such are pods beyond the minimum for which there is no room, the master of elastic workers that no node takes, and
    all but one where pods that run leave only when these run.

    Args:
        gang: The gang.
        least: Pods that must start together now; their number is 0 when it is unknown.
        is_surge: Its pods replace others of their Deployment, which run until they do.
    """
    back: list[tuple[Part, str]] = []
    for part in list(gang.parts.values()) if least.count else ():
        if not part.is_first or part.phase != "waiting" or part.state != "open":
            continue
        reason = ""
        if kinds().as_kube_scheduler(gang.key.kind) and part.code and len(part.slots) > least.count:
            reason = f"there is no room for all of its {len(part.slots)} pods: {least.count} start first"
        elif is_surge and part.code and len(part.slots) > 1:
            reason = f"there is no room for all of its {len(part.slots)} pods: they start one by one, as in a rollout"
        elif least.is_elastic and not gang.starts_least and _has_no_chips(part, part.unplaceable):
            reason = f"no node takes pods of task {part.unplaceable}: others start first"
        if reason:
            gang.starts_least = True
            back.append((part, reason))
            dissolve(gang, part)
    return back


def _has_no_chips(part: Part, task: str) -> bool:
    """Whether a request has pods of a task, and none of them has chips."""
    asks = [slot.ask for slot in part.slots if task and slot.task == task.lower()]
    return bool(asks) and all(ask is not None and not ask.chips for ask in asks)


def _redone(
    gang: Gang, what: str, of_request: Callable[[JobRequest], T], now: Callable[[Sequence[Member]], T]
) -> list[tuple[Part, str]]:
    back: list[tuple[Part, str]] = []
    for part in list(gang.parts.values()):
        members = [gang.members[slot.uid] for slot in part.slots if slot.uid in gang.members]
        if part.request is None or part.phase not in {"", "waiting"} or len(members) < len(part.slots):
            continue
        before, after = of_request(part.request), now(members)
        if before != after:
            back.append((part, f"its {what} is now {after}, not {before}"))
            dissolve(gang, part)
    return back


def _give_up_ranks(gang: Gang, part: Part, settings: GangSettings, now_ms: int) -> None:
    """Release pods that the binder could not bind while the rest runs, or that took the place of bound ones.

    A pod that was bound, deleted and made again while nobody looked is not known to have been replaced: the new one has
    no node although the binder has bound all. It may also be that the node is seen later, so it is released after a
    while.
    """
    ranks = range(len(part.slots)) if part.is_settled else ()
    others = [rank for rank in ranks if _is_unbound(part.slots[rank]) and rank not in part.open_ranks]
    part.unbound_since_ms = (now_ms if part.unbound_since_ms is None else part.unbound_since_ms) if others else None
    if part.unbound_since_ms is not None:
        due_ms = part.unbound_since_ms + round(settings.vanished_s * 1000)
        if now_ms < due_ms:
            others = []
            gang.due(due_ms)
    for rank in (*part.failed_ranks(), *others):
        slot = part.slots[rank]
        if not slot.was_bound:
            slot.uid = slot.pod = ""
            slot.is_live = False


def _is_unbound(slot: Slot) -> bool:
    return slot.is_live and not slot.was_bound


def _withdrawal_reason(gang: Gang, part: Part, settings: GangSettings, *, is_pending: str, now_ms: int) -> str:
    """Why a request must be withdrawn; empty when it continues."""
    waits = part.phase in {"", "waiting"}
    if is_pending and waits:
        return is_pending
    there = sum(1 for slot in part.slots if slot.is_live)
    if over := _end_of_owner(gang, part):
        return over
    if waits and (changed := _moved(gang, part) or _taken(gang, part) or _changed(gang, part)):
        return changed
    incomplete = there < len(part.slots) and waits
    recovers = part.awaits_pods
    gone = there == 0 and part.phase != "ending" and (recovers or not part.is_settled or _all_deleted(gang, part))
    gone = gone and not (recovers and gang.look is not None)  # its owner makes them anew, however late
    part.incomplete_since_ms = (
        (now_ms if part.incomplete_since_ms is None else part.incomplete_since_ms) if incomplete or recovers else None
    )
    part.gone_since_ms = (now_ms if part.gone_since_ms is None else part.gone_since_ms) if gone else None
    since_ms = part.gone_since_ms
    if since_ms is None and incomplete:
        since_ms = part.incomplete_since_ms
    if since_ms is None:
        return ""
    due_ms = since_ms + round(settings.vanished_s * 1000)
    if now_ms < due_ms:
        gang.due(due_ms)
        return ""
    lost = len(part.slots) - there
    whole = "its pod is gone" if len(part.slots) == 1 else "its pods are gone"
    return whole if gone else f"{lost} of its {len(part.slots)} pods {'is' if lost == 1 else 'are'} gone"


def _end_of_owner(gang: Gang, part: Part) -> str:
    """Why a request is withdrawn because of its owner; empty when it continues.

    An owner that has ended makes no pods any more, but those that it made may be there.
    """
    if gang.ended and _ends_with_owner(part):
        return gang.ended
    if gang.ungrouped and not part.awaits_pods and _ends_with_owner(part):
        return gang.ungrouped
    waits_for_none = part.phase in {"", "waiting"} and not any(slot.is_live for slot in part.slots)
    return gang.finished if part.awaits_pods or waits_for_none else ""


def _ends_with_owner(part: Part) -> bool:
    """Whether a request is withdrawn when its owner is over.

    A placement whose pods are all there, or of which some pod has a node, was decided before: it keeps its chips until
    its pods are gone. One that recovers gets no pod any more: it ends.
    """
    if part.phase in {"", "waiting"} or part.awaits_pods:
        return True
    if part.phase == "ending" or part.is_settled:
        return False
    live = [slot for slot in part.slots if slot.is_live]
    return len(live) < len(part.slots) and not any(slot.was_bound for slot in live)


def _moved(gang: Gang, part: Part) -> str:
    """Which pod of a waiting request is of another gang now; empty for none."""
    slot = next((slot for slot in part.slots if slot.uid in gang.moved), None)
    if slot is None:
        return ""
    key = gang.moved[slot.uid]
    kind = "PodGroup" if key.kind == "podgroup" else f"{key.kind} group"
    return f"pod {slot.pod} is now of {kind} {key.name}"


def _taken(gang: Gang, part: Part) -> str:
    """Which pod of a waiting request has a node that was not chosen for this request; empty for none.

    No attempt could ever bind it: it runs where it is, and the others are requested beside it.
    """
    for slot in part.slots if part.phase == "waiting" else ():
        member = gang.members.get(slot.uid)
        if member is None or not member.is_live or not member.is_bound:
            continue
        meta, node = member.pod.metadata, member.pod.spec.node_name
        if meta.annotation(JOB_UID) != part.uid:
            whom = f"an earlier request ({meta.annotation(JOB)})" if meta.annotation(JOB_UID) else "another scheduler"
            return f"pod {member.name} is on node {node} already, bound by {whom}"
    return ""


def _changed(gang: Gang, part: Part) -> str:
    """Why pods that came in place of those of a waiting request need a new one; empty when none do.

    Of a request that was never placed nothing has to last when all of its pods are others. A pod with another resource
    request never takes the rank of the pod that it replaces.
    """
    vacant = [slot for slot in part.slots if not slot.is_live]
    if not vacant:
        return ""
    free = [member for member in unassigned(gang) if member.waits]
    if free and len(vacant) == len(part.slots) and part.attempt <= 1:
        return REPLACED
    for member in free:
        replaced = [slot for slot in vacant if slot.task == member.place.task and slot.source == member.place.source]
        if replaced and all(slot.ask is not None and slot.ask != member.ask for slot in replaced):
            return f"pod {member.name} requests other resources than the pod that it replaces"
    return ""


def _all_deleted(gang: Gang, part: Part) -> bool:
    """Whether all bound pods are deleted. Facts about pods end such a request, unless no fact ever reported them."""
    return all(slot.uid not in gang.members for slot in part.slots)


def _end(gang: Gang, part: Part, settings: GangSettings, now_ms: int) -> None:
    """End a request: drop it, or keep it closed while its pods must not be requested again."""
    left = [slot for slot in part.slots if slot.is_live and not slot.was_bound]
    if not left:
        dissolve(gang, part)
        return
    if part.state == "closed":
        if len(left) < len(part.slots):
            dissolve(gang, part)
        return
    is_later = part.code in {"name-in-use", TOO_MANY}
    refused = part.phase in {"cancelled", "rejected"} and not is_later and part.sentence != PENDING_AGAIN
    if refused and len(left) == len(part.slots):
        part.state = "closed"
        if part.phase == "cancelled":
            why = f": {part.sentence}" if part.sentence else ""
            part.hold = f"its request was cancelled{why}; delete the pods so that new ones are requested"
        return
    if part.phase == "failed" or part.code == TOO_MANY:
        gang.failures += 1
        backoff = Backoff(first_s=settings.retry_s, max_s=_RETRY_MAX_S)
        gang.retry_at_ms = now_ms + round(backoff.pause_s(gang.failures) * 1000)
        gang.retry_reason = part.sentence
    dissolve(gang, part)


def dissolve(gang: Gang, part: Part) -> None:
    """Drop a request; its pods are free. Its uid is kept with them, so that their next request has another."""
    keep_ages(gang, part)
    for slot in part.slots:
        if slot.uid in gang.members:
            gang.previous_uids[slot.uid] = part.uid
    del gang.parts[part.name]
