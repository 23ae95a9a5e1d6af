"""Which requests the free pods of a gang need, or why they must wait.

The first request of a gang holds its minimum. Pods beyond the minimum, and pods that come while others run, are requests
of their own; they wait until the first request has its chips, so that they never take them from it.

Source: docs/reference/kubernetes.md, "Volcano PodGroups" and "Resolution of the gang".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from berth.formats.ascend.pod_annotations import NO_AFFINITY, TOR_AFFINITY
from berth.formats.kubernetes.gang_minimum import Minimum, minimum
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.formats.kubernetes.pods import GATED
from berth.services.inventory.gangs.model import Gang, Member
from berth.services.inventory.gangs.requests import gang_labels, wrong_annotation

_OF_BLOCKS: Final = frozenset({"sp-block", "huawei.com/affinity-config"})
"""Annotations of jobs whose pods are placed by one plan for all of them."""


@dataclass(frozen=True, slots=True)
class GangContext:
    """What is known of a gang besides its pods.

    Attributes:
        group: Its Volcano PodGroup.
        facts: What its owner says; None when it was not looked up, or is not there.
        barrier: Why nothing may be requested yet: a sentence; empty when it may.
        is_reading: Its owner is being read for the first time, or its PodGroup has not been judged yet.
        is_old: What its owner said is too old for a first request, and is being read again.
        again_ms: When the owner is read again while the gang is short of pods; None when nothing is to be read.
    """

    group: PodGroup | None = None
    facts: OwnerFacts | None = None
    barrier: str = ""
    is_reading: bool = False
    is_old: bool = False
    again_ms: int | None = None

    @property
    def tasks(self) -> dict[str, int]:
        """Places of the owner's tasks, by name."""
        facts = self.facts
        return {task.name.lower(): place for place, task in enumerate(facts.tasks)} if facts is not None else {}


@dataclass(slots=True)
class Plan:
    """What becomes of the free pods.

    Attributes:
        first: Pods of the gang's first request, in order.
        single: Pods that are requests of their own.
        held: Pods that wait together, and why.
        held_alone: Pods that wait, each for its own reason.
        is_short: Held for want of pods, or by what its owner says: the owner is to be read again.
        gang_pods: Pods with chips of the whole gang.
    """

    first: list[Member] = field(default_factory=list)
    single: list[Member] = field(default_factory=list)
    held: tuple[list[Member], str] | None = None
    held_alone: list[tuple[Member, str]] = field(default_factory=list)
    is_short: bool = False
    gang_pods: int = 0


def plan(gang: Gang, free: Sequence[Member], around: GangContext, *, now_ms: int) -> Plan:
    """What becomes of the free pods of a gang.

    Args:
        gang: The gang; its parts are up to date.
        free: Live pods without a node and without a rank, in order.
        around: What else is known.
        now_ms: The time.
    """
    found = Plan()
    if not free or around.is_reading:
        return found
    barrier = around.barrier or _suspension(around.facts)
    if barrier:
        found.held = (list(free), barrier)
        found.is_short = True
        return found
    least = _minimum(gang, free[0], around)
    found.gang_pods = _gang_pods(gang, least)
    wrong = least.wrong or wrong_annotation(_layers(free, around)) or _too_many(least)
    wrong = wrong or _not_whole(gang, free, around, least)
    if wrong:
        found.held = (list(free), wrong)
        found.is_short = True
        return found
    least = _in_blocks(gang, free, around, least)
    if is_fresh(gang):
        _plan_first(gang, list(free), around, least, found, now_ms)
    elif least.count <= 1 or not _is_blocked(gang):
        _plan_single(gang, free, found, now_ms)
    return found


def is_fresh(gang: Gang) -> bool:
    """Whether no pod of the gang has a node, and nothing is asked for: its minimum must start together."""
    return not gang.parts and not _runs(gang)


def _runs(gang: Gang) -> bool:
    return any(member.is_bound and member.is_live for member in gang.members.values())


def _is_blocked(gang: Gang) -> bool:
    """Whether pods wait for a request of their gang: the first has no chips yet, or all that there are are about to end."""
    parts = gang.parts.values()
    if any(part.is_first and (part.state == "closed" or not part.is_placed) for part in parts):
        return True
    return not _runs(gang) and not any(slot.is_there for part in parts for slot in part.slots)


def _suspension(facts: OwnerFacts | None) -> str:
    return "its job is suspended" if facts is not None and facts.suspended else ""


def _layers(free: Sequence[Member], around: GangContext) -> list[dict[str, str] | None]:
    return [
        around.group.metadata.annotations if around.group is not None else None,
        around.facts.annotations if around.facts is not None else None,
        *(member.pod.metadata.annotations for member in free),
    ]


def _minimum(gang: Gang, pod: Member, around: GangContext) -> Minimum:
    has_chips = any(member.ask.chips for member in gang.members.values())
    return minimum(
        gang.key,
        group=around.group,
        facts=around.facts,
        pod=pod.pod,
        size=pod.place.size,
        has_chips=has_chips,
    )


def _in_blocks(gang: Gang, free: Sequence[Member], around: GangContext, least: Minimum) -> Minimum:
    """The minimum of a job in blocks: all of its pods, whatever it says, for one plan seats them all.

    Where some pods are only made once others run, the minimum stays: nobody would ever see all of them waiting.

    Source: docs/reference/superpods.md, "Terms of SuperPoDs" and "Before the selection".
    """
    comes_in_turn = gang.key.kind == "jobset" or (around.facts is not None and around.facts.ordered)
    has_chips = any(member.ask.chips for member in gang.members.values())
    if least.size <= least.count or comes_in_turn or not has_chips:
        return least
    if not any(layer and not _OF_BLOCKS.isdisjoint(layer) for layer in _layers(free, around)):
        return least
    return msgspec.structs.replace(least, count=least.size)


def _too_many(least: Minimum) -> str:
    if not least.size or least.count <= least.size:
        return ""
    return f"{least.name} {least.count} is more than the {least.size} pods of the job: a configuration error"


def _not_whole(gang: Gang, free: Sequence[Member], around: GangContext, least: Minimum) -> str:
    """Why a job with switch affinity cannot be requested: not all of its pods would start together.

    Source: docs/reference/switches.md, "Jobs and policies". See decision switch-min-available.
    """
    if gang_labels(free, around.group, around.facts).get(TOR_AFFINITY, NO_AFFINITY) == NO_AFFINITY:
        return ""
    live = [member for member in gang.members.values() if member.is_live]
    size = least.size or len(live)
    if least.count >= size or not any(member.ask.chips for member in live):
        return ""
    return (
        f"{least.name} is {least.count} of {size} pods: expected {size}, for with label {TOR_AFFINITY} all pods of the job"
        " start together"
    )


def _gang_pods(gang: Gang, least: Minimum) -> int:
    """Pods with chips of the whole gang: those that there are, or as many as there will be."""
    live = [member for member in gang.members.values() if member.is_live]
    with_chips = sum(1 for member in live if member.ask.chips)
    return max(with_chips, least.size) if with_chips == len(live) and with_chips else with_chips


def _plan_first(gang: Gang, free: list[Member], around: GangContext, least: Minimum, found: Plan, now_ms: int) -> None:
    """The gang's minimum, pods that have succeeded counted in."""
    succeeded = sum(1 for member in gang.members.values() if member.pod.status.phase == "Succeeded")
    need = max(least.count - succeeded, 1)
    ready = [member for member in free if member.waits and not member.ask.wrong]
    if need > 1 and any(_rests(gang, member, now_ms) for member in ready):
        found.held = (free, _ended_pods(gang))
        return
    if need == 1:
        ready = [member for member in ready if not _rests(gang, member, now_ms)]
        if not ready:
            _plan_single(gang, free, found, now_ms)
            return
    chosen = _choose(ready, need, least.by_task if not succeeded else ())
    hold = _shortage(ready, need, least) if chosen is None else _mixed(chosen)
    if chosen is None or hold:
        found.held = (free, _with_reasons(hold, free))
        found.is_short = True
        return
    if around.is_old:
        return
    found.first = chosen
    if need == 1:
        taken = {member.uid for member in chosen}
        _plan_single(gang, [member for member in free if member.uid not in taken], found, now_ms)


def _rests(gang: Gang, member: Member, now_ms: int) -> bool:
    """Whether a pod whose request failed is not to be tried again yet."""
    rests = member.uid in gang.former and now_ms < gang.retry_at_ms
    if rests:
        gang.due(gang.retry_at_ms)
    return rests


def _ended_pods(gang: Gang) -> str:
    because = f": {gang.retry_because}" if gang.retry_because else ""
    return f"its request failed{because}; it is tried again later"


def _plan_single(gang: Gang, free: Sequence[Member], found: Plan, now_ms: int) -> None:
    """Each pod on its own."""
    for member in free:
        reason = _reason(member) or (_ended_pods(gang) if _rests(gang, member, now_ms) else "")
        if reason:
            found.held_alone.append((member, reason))
        else:
            found.single.append(member)


def _choose(ready: Sequence[Member], need: int, by_task: Sequence[tuple[str, int]]) -> list[Member] | None:
    """The first ``need`` pods in order, with the least number of each task; None when there are not enough."""
    lacking = {task.lower(): count for task, count in by_task}
    spare = need - sum(lacking.values())
    chosen: list[Member] = []
    for member in ready:
        task = member.place.task
        if lacking.get(task, 0) > 0:
            lacking[task] -= 1
        elif spare > 0:
            spare -= 1
        else:
            continue
        chosen.append(member)
    return chosen if len(chosen) == need else None


def _shortage(ready: Sequence[Member], need: int, least: Minimum) -> str:
    """Why the pods are not enough."""
    if len(ready) >= need:
        for task, count in least.by_task:
            there = sum(1 for member in ready if member.place.task == task.lower())
            if there < count:
                return f"task {task} has {there} of at least {count} pods"
    return f"{len(ready)} of at least {need} pods are there"


def _mixed(chosen: Sequence[Member]) -> str:
    """Why pods cannot be one request: chips of two kinds."""
    asking = [member for member in chosen if member.ask.chips]
    for member in asking:
        if member.ask.resource != asking[0].ask.resource:
            pods = f"pods {asking[0].name} and {member.name}"
            return f"{pods} ask for chips of different kinds: {asking[0].ask.resource} and {member.ask.resource}"
    return ""


def _reason(member: Member) -> str:
    """Why one pod cannot be requested."""
    if member.gate:
        return f"pod {member.name} {GATED} {member.gate}"
    return f"pod {member.name} {member.ask.wrong}" if member.ask.wrong else ""


def _with_reasons(hold: str, free: Sequence[Member]) -> str:
    """A reason, and what is wrong with the first pod that has something wrong."""
    reasons = [reason for member in free if (reason := _reason(member))]
    if not reasons:
        return hold
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{hold}; {reasons[0]}{more}"
