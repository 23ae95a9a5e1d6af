"""Life of the requests of one gang: pods that take over, requests that are over, vanished or to be taken back."""

from collections.abc import Iterator

from berth.runtime.backoff import Backoff
from berth.services.inventory.gangs.barriers import TAKEN_BACK
from berth.services.inventory.gangs.model import Gang, Member, Part, Slot
from berth.services.inventory.gangs.settings import GangSettings


def see_pods(gang: Gang) -> None:
    """Note how the pods of all requests are now."""
    for part in gang.parts.values():
        for slot in part.slots:
            if slot.uid:
                slot.see(gang.members.get(slot.uid))


def unassigned(gang: Gang) -> list[Member]:
    """Live pods without a node, gated or not, that stand for no rank."""
    taken = {slot.uid for part in gang.parts.values() for slot in part.slots}
    return [
        member for member in gang.members.values() if member.is_live and not member.is_bound and member.uid not in taken
    ]


def fill(gang: Gang, free: list[Member]) -> list[Member]:
    """Let free pods take over ranks whose pods are gone; returns those that stay free.

    A pod that could take over a rank whose pod had got a node waits until it is known whether the attempt is undone, and
    is not among those returned.

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
        if part.state == "closed" or part.is_over or part.is_settled:
            continue
        for slot in part.slots:
            if not slot.is_there:
                yield part, slot


def _may_fill(part: Part, slot: Slot) -> bool:
    """Whether a rank may have another pod now: nobody has bound the one before, or that was undone."""
    if part.phase in {"", "waiting"}:
        return True
    return part.phase != "ending" and not slot.was_bound


def settle_parts(gang: Gang, settings: GangSettings, *, is_pending: str, now_ms: int) -> list[tuple[Part, str]]:
    """End the requests that are over; returns those that cannot go on and must be taken back, and why.

    Args:
        gang: The gang.
        settings: How long things may take.
        is_pending: Why the gang's PodGroup is not let in any more; empty when it is.
        now_ms: The time.
    """
    back: list[tuple[Part, str]] = []
    for name in sorted(gang.parts):
        part = gang.parts[name]
        if part.is_over:
            _end(gang, part, settings, now_ms)
            continue
        _give_up_ranks(part)
        reason = _why_withdraw(gang, part, settings, is_pending=is_pending, now_ms=now_ms)
        if reason:
            back.append((part, reason))
            dissolve(gang, part)
    return back


def _give_up_ranks(part: Part) -> None:
    """Let go of pods that the binder could not bind while the rest of the gang runs."""
    for rank in part.failed_ranks():
        slot = part.slots[rank]
        if not slot.was_bound:
            slot.uid = slot.pod = ""
            slot.is_there = False


def _why_withdraw(gang: Gang, part: Part, settings: GangSettings, *, is_pending: str, now_ms: int) -> str:
    """Why a request must be taken back; empty when it goes on."""
    waits = part.phase in {"", "waiting"}
    if is_pending and waits:
        return is_pending
    there = sum(1 for slot in part.slots if slot.is_there)
    lacking = there < len(part.slots) and waits
    gone = there == 0 and part.phase != "ending" and (not part.is_settled or _has_no_pods_or_facts(gang, part))
    part.lacking_since_ms = (now_ms if part.lacking_since_ms is None else part.lacking_since_ms) if lacking else None
    part.gone_since_ms = (now_ms if part.gone_since_ms is None else part.gone_since_ms) if gone else None
    since_ms = part.gone_since_ms if part.gone_since_ms is not None else part.lacking_since_ms
    if since_ms is None:
        return ""
    due_ms = since_ms + round(settings.vanished_s * 1000)
    if now_ms < due_ms:
        gang.due(due_ms)
        return ""
    return "its pods are gone" if gone else f"{len(part.slots) - there} of its {len(part.slots)} pods are gone"


def _has_no_pods_or_facts(gang: Gang, part: Part) -> bool:
    """Whether pods that were bound are all deleted; facts about pods end such a request, unless nobody ever saw them."""
    return all(slot.uid not in gang.members for slot in part.slots)


def _end(gang: Gang, part: Part, settings: GangSettings, now_ms: int) -> None:
    """A request is over: forget it, or keep it closed while its pods are not to be asked for again."""
    left = [slot for slot in part.slots if slot.is_there and not slot.was_bound]
    if not left:
        dissolve(gang, part)
        return
    if part.state == "closed":
        if len(left) < len(part.slots):
            dissolve(gang, part)
        return
    refused = part.phase in {"cancelled", "rejected"} and part.code != "name-in-use" and part.sentence != TAKEN_BACK
    if refused and len(left) == len(part.slots):
        part.state = "closed"
        if part.phase == "cancelled":
            why = f": {part.sentence}" if part.sentence else ""
            part.hold = f"its request was cancelled{why}; delete the pods to have new ones tried"
        return
    if part.phase == "failed":
        gang.failures += 1
        backoff = Backoff(first_s=settings.retry_s, max_s=settings.retry_max_s)
        gang.retry_at_ms = now_ms + round(backoff.pause_s(gang.failures) * 1000)
        gang.retry_because = part.sentence
    dissolve(gang, part)


def dissolve(gang: Gang, part: Part) -> None:
    """Forget a request; its pods are free, and remember its uid so that their next one has another."""
    for slot in part.slots:
        if slot.uid in gang.members:
            gang.former[slot.uid] = part.uid
    del gang.parts[part.name]
