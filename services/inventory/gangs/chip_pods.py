"""Which pods of a gang have chips, as far as its pods and its owner say.

Masters, launchers, parameter servers and the scheduler task of MindSpore have none. They count neither in the size of
the gang nor among its ranks.

See decision plain-pods.
"""

from collections.abc import Sequence

from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.minimum import Minimum
from berth.services.inventory.gangs.model import Gang, Member, Part


def tasks_without_chips(gang: Gang, facts: OwnerFacts | None) -> frozenset[str]:
    """Tasks none of whose pods has chips: by their pods, or by the template of the owner while there are none."""
    by_pods: dict[str, bool] = {}
    for member in gang.members.values():
        task = member.place.task
        by_pods[task] = by_pods.get(task, False) or bool(member.ask.chips)
    by_template = {task.name.lower(): task.has_chips for task in facts.tasks} if facts is not None else {}
    return frozenset(task for task, has_chips in (by_template | by_pods).items() if has_chips is False)


def chip_pods(gang: Gang, facts: OwnerFacts | None, least: Minimum) -> int:
    """Pods with chips of the whole gang: those that exist, or the expected number if it is higher; no backup pods."""
    beside = {uid for part in gang.parts.values() for rank, uid in part.backups.items() if part.slots[rank].uid != uid}
    live = [member for member in gang.members.values() if member.is_live and member.uid not in beside]
    with_chips = sum(1 for member in live if member.ask.chips)
    if not with_chips:
        return 0
    if facts is not None and facts.tasks:
        plain = tasks_without_chips(gang, facts)
        return max(with_chips, sum(task.pods for task in facts.tasks if task.name.lower() not in plain))
    return max(with_chips, (least.size or 0) - (len(live) - with_chips))


def pods_for_all_chips(gang: Gang, facts: OwnerFacts | None, least: Minimum) -> int:
    """Pods that must start together so that all pods with chips do: these, and the minimum of each other task."""
    plain = tasks_without_chips(gang, facts)
    forced = sum(count for task, count in least.by_task if task.lower() in plain)
    return chip_pods(gang, facts, least) + forced


def request_with_chips(gang: Gang, part: Part) -> str:
    """Name of the request near whose pods a request without chips is placed: the first one, else any; empty without."""
    if any(slot.ask is None or slot.ask.chips for slot in part.slots):
        return ""
    others = (gang.parts[name] for name in sorted(gang.parts) if name != part.name)
    found = [other for other in others if any(slot.ask is not None and slot.ask.chips for slot in other.slots)]
    return min(found, key=lambda other: (not other.is_first, other.name)).name if found else ""


def masters(ready: list[Member], most: int) -> dict[str, int]:
    """One pod of each task without chips, as minima of these tasks: elastic workers need their master to start.

    Args:
        ready: Pods that may start, in order.
        most: Most pods.
    """
    with_chips = {member.place.task for member in ready if member.ask.chips}
    plain = dict.fromkeys(member.place.task for member in ready if member.place.task not in with_chips)
    return dict.fromkeys(list(plain)[:most], 1) if with_chips else {}


def chosen(ready: list[Member], need: int, by_task: dict[str, int]) -> list[Member] | None:
    """``need`` pods with the minimum of each task, in their order; None when there are not enough.

    Beyond the minima pods with chips come first: pods without chips never keep one of them out.

    Args:
        ready: Pods that may start, in order.
        need: How many.
        by_task: Minimum of each task, by its name in lower case; ``need`` or fewer in all.
    """
    lacking = dict(by_task)
    found: dict[str, None] = {}
    for member in ready:
        task = member.place.task
        if lacking.get(task, 0) > 0:
            lacking[task] -= 1
            found[member.uid] = None
    rest = sorted((member for member in ready if member.uid not in found), key=lambda member: not member.ask.chips)
    found.update((member.uid, None) for member in rest[: need - sum(by_task.values())])
    return [member for member in ready if member.uid in found] if len(found) == need else None


def mixed_resources(members: Sequence[Member]) -> str:
    """Why pods cannot be one request: they ask for chips of two kinds."""
    asking = [member for member in members if member.ask.chips]
    for member in asking:
        if member.ask.resource != asking[0].ask.resource:
            pods = f"pods {asking[0].name} and {member.name}"
            return f"{pods} ask for chips of different kinds: {asking[0].ask.resource} and {member.ask.resource}"
    return ""
