"""Plan of a gang: which requests its free pods need, or why they wait.

The first request of a gang holds its minimum. Pods beyond the minimum, and pods that are created while others run, are
requests of their own. They wait until the first request has its chips, so that they never take chips from it. If that
was rejected or cancelled, they are held with its reason. A task whose pods are created only when others are ready
starts together, in a request of its own.

Longer than 400 lines because every reason for which pods wait is judged in one order.

Source: docs/reference/kubernetes.md, "Volcano PodGroups" and "Resolution of the gang".
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from berth.core.text import pluralize
from berth.formats.ascend.pod_annotations import NO_AFFINITY, TOR_AFFINITY
from berth.formats.kubernetes.pods import GATED
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.minimum import Minimum, minimum
from berth.formats.kubernetes.workloads.registry import kinds
from berth.services.inventory.gangs.barriers import made_in_turn
from berth.services.inventory.gangs.chip_pods import chip_pods, chosen, masters, mixed_resources, pods_for_all_chips
from berth.services.inventory.gangs.gang_context import GangContext
from berth.services.inventory.gangs.model import Gang, Member
from berth.services.inventory.gangs.ranks import wrong_ranks
from berth.services.inventory.gangs.request_lifecycle import SUSPENDED
from berth.services.inventory.gangs.requests import gang_labels, wrong_annotation

_OF_BLOCKS: Final = frozenset({"sp-block", "huawei.com/affinity-config"})
"""Annotations of jobs whose pods are all placed by one plan."""


@dataclass(slots=True)
class Plan:
    """Decision on the free pods.

    Attributes:
        first: Pods of the gang's first request, in order.
        later: Pods of each later request for several of them.
        single: Pods that are requests of their own.
        held: Pods that wait together, and the reason.
        held_single: Pods that wait, each with its own reason.
        is_short: Held because pods are missing or because of the owner's facts: the owner is to be read again.
        needs_owner: The owner is to be read again before more is decided.
        gang_pods: Pods with chips of the whole gang.
        minimum: Pods of the gang that must start together.
    """

    first: list[Member] = field(default_factory=list)
    later: list[list[Member]] = field(default_factory=list)
    single: list[Member] = field(default_factory=list)
    held: tuple[list[Member], str] | None = None
    held_single: list[tuple[Member, str]] = field(default_factory=list)
    is_short: bool = False
    needs_owner: bool = False
    gang_pods: int = 0
    minimum: int = 0

    def hold(self, members: list[Member], why: str) -> None:
        """Hold pods for which no request is made after all."""
        if self.held is None:
            self.held = (members, why)
        else:
            self.held_single += [(member, why) for member in members]


def plan(gang: Gang, free: Sequence[Member], context: GangContext, *, now_ms: int) -> Plan:
    """Decide on the free pods of a gang.

    Args:
        gang: The gang; its parts are up to date.
        free: Live pods without a node and without a rank, in order.
        context: Known state besides the pods.
        now_ms: The time.
    """
    found = Plan()
    if not free or context.is_reading:
        return found
    waiting = [member for member in gang.members.values() if member.waits] or free
    is_aged = context.is_old and not is_fresh(gang)  # the owner may have changed while its pods run, unseen
    doubts = not context.barrier and (is_aged or context.is_suspended or _is_contradicted(gang, waiting, context))
    if doubts and _may_have_changed(gang, free, context):
        found.needs_owner = True
        return found
    least = _minimum(gang, waiting, context)
    wrong = context.barrier or (SUSPENDED if context.is_suspended else "")
    wrong = wrong or _refused_by_group(gang, free, context)
    if not wrong:
        found.gang_pods = chip_pods(gang, context.facts, least)
        wrong = least.wrong or wrong_annotation(_layers(free, context)) or _too_many(gang, least)
        wrong = wrong or _partial_minimum(gang, free, context, least)
    if wrong:
        found.held = (list(free), wrong)
        found.is_short = True
        return found
    least = _in_blocks(gang, waiting, context, least)
    found.minimum = least.count
    refusals = wrong_ranks(gang, free, None if any(context.elsewhere.values()) else context.facts)
    if is_fresh(gang) and not _come_later(free, context):
        _plan_first(gang, list(free), context, least, refusals, found, now_ms)
        return found
    if least.count <= 1 or not _is_blocked(gang):
        rest = _plan_later(gang, free, context, least, refusals, found, now_ms)
        _plan_single(gang, rest, refusals, found, now_ms)
    elif refused := _refused(gang):
        found.held = (list(free), refused)
    return found


def _come_later(free: Sequence[Member], context: GangContext) -> bool:
    """Whether all pods are of tasks that begin when others are ready or have ended: the gang has had its start."""
    facts = context.facts or context.turns
    own = facts.seen_by(free[0].pod.spec.scheduler_name).tasks if facts is not None else ()
    later = {task.name.lower() for task in own if task.is_later}
    return all(member.place.task in later for member in free)


def _refused_by_group(gang: Gang, free: Sequence[Member], context: GangContext) -> str:
    """What of a PodGroup of Kubernetes is not held: constraints, or pods of several schedulers; empty for nothing."""
    if kinds().as_kube_scheduler(gang.key.kind) and (others := _others(context)):
        own = free[0].pod.spec.scheduler_name
        return f"the pods of PodGroup {gang.key.name} name several schedulers, {own} and {others}: expected one"
    return context.facts.refused if context.facts is not None else ""


def _others(context: GangContext) -> str:
    """Schedulers of the pods of a gang that Berth does not place; empty for none."""
    return ", ".join(sorted(name for name, count in context.elsewhere.items() if count))


def _named_elsewhere(context: GangContext) -> str:
    """Pods of a gang that wait elsewhere, as the end of a sentence about those that are missing."""
    count = sum(context.elsewhere.values())
    return f"; {count} more {'names' if count == 1 else 'name'} scheduler {_others(context)}" if count else ""


def stated_priority(context: GangContext) -> int | None:
    """Priority that the PodGroup of Kubernetes gives to all of its pods; None if it gives none."""
    return context.facts.priority if context.facts is not None else None


def _may_have_changed(gang: Gang, free: Sequence[Member], context: GangContext) -> bool:
    """Whether pods have come, or the PodGroup has changed, after the owner was read: it may have changed before."""
    if context.read is None:
        return False
    return context.read <= max(gang.group_reads, *(gang.arrivals.get(member.uid, -1) for member in free))


def _is_contradicted(gang: Gang, waiting: Sequence[Member], context: GangContext) -> bool:
    """Whether there are more pods, or more must start together, than the owner had when it was read."""
    least = _minimum(gang, waiting, context)
    live = Counter(member.place.task for member in gang.members.values() if member.is_live)
    sizes = {task.name.lower(): task.pods for task in context.facts.tasks} if context.facts is not None else {}
    if any(count > sizes.get(task, count) for task, count in live.items()):
        return True
    return least.size is not None and max(live.total(), least.count) > least.size


def minimum_now(gang: Gang, context: GangContext) -> Minimum:
    """Pods of a gang that must start together, by what its owner says now; their number is 0 when it is not known.

    Args:
        gang: The gang.
        context: Known state besides the pods.
    """
    waiting = [member for member in gang.members.values() if member.waits]
    if not waiting or context.is_reading or context.barrier:
        return Minimum(count=0)
    least = _minimum(gang, waiting, context)
    return Minimum(count=0) if least.wrong else _in_blocks(gang, waiting, context, least)


def is_fresh(gang: Gang) -> bool:
    """Whether no pod of the gang has a node and no request exists: its minimum must start together."""
    return not gang.parts and not gang.runners


def _is_blocked(gang: Gang) -> bool:
    """Whether pods wait for another request: the first has no chips yet, or all pods of requests are about to end."""
    parts = gang.parts.values()
    if any(part.is_first and (part.state == "closed" or not part.is_placed) for part in parts):
        return True
    return not gang.runners and not any(slot.is_live for part in parts for slot in part.slots)


def _refused(gang: Gang) -> str:
    """Why pods beyond the minimum will not be requested: the first request ended without chips; empty if it did not."""
    for name in sorted(gang.parts):
        part = gang.parts[name]
        if part.is_first and part.state == "closed" and (part.hold or part.sentence):
            return part.hold or f"its job was rejected: {part.sentence}"
    return ""


def _layers(free: Sequence[Member], context: GangContext) -> list[dict[str, str] | None]:
    return [
        context.group.metadata.annotations if context.group is not None else None,
        context.facts.annotations if context.facts is not None else None,
        *(member.pod.metadata.annotations for member in free),
    ]


def _minimum(gang: Gang, waiting: Sequence[Member], context: GangContext) -> Minimum:
    """Minimum by the first pod by name: which came first, or has a request, must not change it, nor a restart."""
    pod = min(waiting, key=lambda member: (member.name, member.uid))
    has_chips = any(member.ask.chips for member in gang.members.values())
    return minimum(
        gang.key,
        group=context.group,
        facts=context.facts,
        pod=pod.pod,
        size=pod.place.size,
        has_chips=has_chips,
        turns=context.turns,
    )


def _in_blocks(gang: Gang, waiting: Sequence[Member], context: GangContext, least: Minimum) -> Minimum:
    """Minimum of a job in logical SuperPoDs (blocks): all of its pods with chips, because one plan places them all.

    Where some pods are created only after others run, the minimum stays: they would never all wait at the same time.

    Source: docs/reference/superpods.md, "Terms of SuperPoDs" and "Before the selection".
    """
    comes_in_turn = context.facts is not None and context.facts.first_pods is not None
    has_chips = any(member.ask.chips for member in gang.members.values())
    if least.size is None or least.size <= least.count or comes_in_turn or not has_chips:
        return least
    if not any(layer and not _OF_BLOCKS.isdisjoint(layer) for layer in _layers(waiting, context)):
        return least
    count = max(least.count, pods_for_all_chips(gang, context.facts, least))
    return msgspec.structs.replace(least, count=min(count, least.size))


def _too_many(gang: Gang, least: Minimum) -> str:
    """That the minimum is larger than the job; an error only if the job was never as large; empty if it is not."""
    if not least.size or least.count <= least.size:
        return ""
    words = f"{least.name} {least.count} is more than the {pluralize(least.size, 'pod')} of the job"
    if any(part.minimum >= least.count for part in gang.parts.values()):
        return f"{words}, which had as many before: lower the minimum, or scale the job up"
    return f"{words}: a configuration error"


def _partial_minimum(gang: Gang, free: Sequence[Member], context: GangContext, least: Minimum) -> str:
    """Why a job with switch affinity cannot be requested: its pods would not all start together.

    Source: docs/reference/switches.md, "Jobs and policies". See decision switch-min-available.
    """
    if gang_labels(free, context.group, context.facts).get(TOR_AFFINITY, NO_AFFINITY) == NO_AFFINITY:
        return ""
    live = [member for member in gang.members.values() if member.is_live]
    size = least.size or len(live)
    need = pods_for_all_chips(gang, context.facts, least)
    if least.count >= min(size, need) or not any(member.ask.chips for member in live):
        return ""
    whom = "all pods of the job" if need == size else "all pods with chips of the job"
    return f"{least.name} is {least.count} of {size} pods: expected {need}: with label {TOR_AFFINITY} {whom} start together"


def _plan_first(
    gang: Gang,
    free: list[Member],
    context: GangContext,
    least: Minimum,
    refusals: dict[str, str],
    found: Plan,
    now_ms: int,
) -> None:
    """Plan the gang's minimum; pods that succeeded count."""
    succeeded = sum(1 for member in gang.members.values() if member.pod.status.phase == "Succeeded")
    need = 1
    if not (context.is_surge and gang.starts_least):
        facts = context.facts or OwnerFacts(kind="")
        need = max(facts.still_to_start(least.count, succeeded), 1)
    ready = [member for member in free if member.waits and not _reason(member, refusals)]
    if need > 1 and any(_is_backing_off(gang, member, now_ms) for member in ready):
        found.held = (free, _backoff_text(gang))
        return
    if need == 1:
        ready = [member for member in ready if not _is_backing_off(gang, member, now_ms)]
        if not ready:
            _plan_single(gang, free, refusals, found, now_ms)
            return
    by_task = {task.lower(): count for task, count in least.by_task} if not succeeded else {}
    if least.is_elastic and not succeeded and not gang.starts_least:
        by_task = masters(ready, need - 1)
    first = chosen(ready, need, by_task)
    hold = _shortage(ready, need, least) if first is None else mixed_resources(first)
    if first is not None and kinds().as_kube_scheduler(gang.key.kind) and need > 1 and not gang.starts_least:
        first = first if mixed_resources(ready) else ready  # as kube-scheduler decides on all pods that are there
    if first is None or hold:
        why = _with_reasons(hold, free, refusals)
        found.held = (
            free,
            why
            if why != hold
            else hold + made_in_turn(gang, context.turns or context.facts) + _named_elsewhere(context),
        )
        found.is_short = True
        return
    if context.is_old:
        found.needs_owner = True
        return
    found.first = first
    if need == 1:
        taken = {member.uid for member in first}
        _plan_single(gang, [member for member in free if member.uid not in taken], refusals, found, now_ms)


def _plan_later(
    gang: Gang,
    free: Sequence[Member],
    context: GangContext,
    least: Minimum,
    refusals: dict[str, str],
    found: Plan,
    now_ms: int,
) -> list[Member]:
    """Plan tasks whose pods come when others are ready: each starts together; returns the other pods.

    Of a task that runs, or has a request, a pod that comes in place of another one starts alone. So does each pod
    beyond the minimum of an owner that states one.
    """
    rest = list(free)
    facts = context.facts or context.turns
    if facts is None or not (kinds().named[facts.kind].starts_by_parts or least.declared >= (least.size or 0) > 0):
        return rest
    requested = {slot.task for part in gang.parts.values() for slot in part.slots}
    for task in facts.tasks:
        name = task.name.lower()
        if not task.is_later or name in requested or all(member.place.task != name for member in rest):
            continue
        there = [member for member in gang.members.values() if member.place.task == name]
        succeeded = sum(1 for one in there if one.pod.status.phase == "Succeeded")
        need = _size_of_later(gang, task, facts) - succeeded
        if need <= 1 or any(member.is_bound and member.is_live for member in there):
            continue
        mine = [member for member in rest if member.place.task == name]
        rest = [member for member in rest if member.place.task != name]
        ready = [member for member in mine if member.waits and not _reason(member, refusals)]
        hold = "" if len(ready) >= need else f"task {task.name}: {_shortage(ready, need, least)}"
        if not hold and any(_is_backing_off(gang, member, now_ms) for member in ready):
            hold = _backoff_text(gang)
        hold = hold or mixed_resources(ready[:need])
        if hold:
            why = _with_reasons(hold, mine, refusals)
            found.hold(mine, why)
            found.is_short = True
        elif context.is_old:
            found.needs_owner = True
        else:
            found.later.append(ready[:need])
            started = {member.uid for member in ready[:need]}
            rest += [member for member in mine if member.uid not in started]
    return rest


def _size_of_later(gang: Gang, task: TaskFacts, facts: OwnerFacts) -> int:
    """Pods of a task; where a pod states the size of its gang, that counts instead of what the owner says now."""
    size = next((member.place.size for member in gang.members.values()), None)
    if size is None:
        return task.pods
    return size - sum(other.pods for other in facts.tasks if other.name != task.name)


def _is_backing_off(gang: Gang, member: Member, now_ms: int) -> bool:
    """Whether a pod whose request failed must wait before the next try."""
    is_backing_off = member.uid in gang.previous_uids and now_ms < gang.retry_at_ms
    if is_backing_off:
        gang.due(gang.retry_at_ms)
    return is_backing_off


def _backoff_text(gang: Gang) -> str:
    because = f": {gang.retry_reason}" if gang.retry_reason else ""
    return f"its request failed{because}; it is retried later"


def _plan_single(gang: Gang, free: Sequence[Member], refusals: dict[str, str], found: Plan, now_ms: int) -> None:
    """Plan each pod on its own."""
    for member in free:
        reason = _reason(member, refusals) or (_backoff_text(gang) if _is_backing_off(gang, member, now_ms) else "")
        if reason:
            found.held_single.append((member, reason))
        else:
            found.single.append(member)


def _shortage(ready: Sequence[Member], need: int, least: Minimum) -> str:
    """Why there are not enough pods."""
    if len(ready) >= need:
        for task, count in least.by_task:
            there = sum(1 for member in ready if member.place.task == task.lower())
            if there < count:
                return f"task {task} has {there} of at least {pluralize(count, 'pod')}"
    found = f"{len(ready)} of at least {pluralize(need, 'pod')} {'exists' if len(ready) == 1 else 'exist'}"
    return f"{found}; {least.rollout}" if least.rollout else found


def _reason(member: Member, refusals: dict[str, str]) -> str:
    """Why one pod cannot be requested."""
    if member.gate:
        return f"pod {member.name} {GATED} {member.gate}"
    return f"pod {member.name} {member.wrong}" if member.wrong else refusals.get(member.uid, "")


def _with_reasons(hold: str, free: Sequence[Member], refusals: dict[str, str]) -> str:
    """A reason, followed by the error of the first pod that has one."""
    reasons = [reason for member in free if (reason := _reason(member, refusals))]
    if not reasons:
        return hold
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{hold}; {reasons[0]}{more}"
