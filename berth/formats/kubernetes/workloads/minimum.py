"""Minimum of a gang: the number of its pods that must start together.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of other systems" and "Resolution of the gang".
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.formats.gang_keys import GROUP_MIN_MEMBER, REPLICAS_MAX
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.pod_labels import number
from berth.formats.kubernetes.workloads.port import GangKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.products.model import MIN_AVAILABLE

_EXPLICIT: Final = frozenset({f"annotation {MIN_AVAILABLE}", f"annotation {GROUP_MIN_MEMBER}"})
"""Names of minima that count only pods that Berth places."""


class Minimum(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Number of pods that must start together."""

    count: int = 1
    size: int | None = None
    """Pods of the whole gang; None when unknown."""
    declared: int = 0
    """The number with the pods that are made only when others are ready; 0 when it is the same."""
    name: str = "minMember"
    """Source of the number."""
    by_task: tuple[tuple[str, int], ...] = ()
    """Minimum of single tasks, by name of the task."""
    is_elastic: bool = False
    """Minima of tasks are stated and are more than that of the gang, which alone counts then."""
    rollout: str = ""
    """What is under way, if the number is at most the present size of an owner that is being rolled out."""
    wrong: str = ""
    """Why there is no number: a sentence."""


def minimum(
    key: GangKey,
    *,
    group: PodGroup | None,
    facts: OwnerFacts | None,
    pod: Pod,
    size: int | None,
    has_chips: bool,
    turns: OwnerFacts | None = None,
) -> Minimum:
    """Number of pods of a gang that must start together.

    A rollout makes the pods of an owner step by step: while one is under way, no more pods than the owner has replicas
    must start together, or the rollout would wait for itself. Nor do pods that are made after others are ready.

    Args:
        key: The gang.
        group: Its Volcano PodGroup, if it has one.
        facts: Numbers of its owner, if it was read.
        pod: One of its pods; its annotations count if neither PodGroup nor owner has them.
        size: Pods of the gang, if a pod has the number.
        has_chips: Its pods request chips.
        turns: Numbers of the object that made the pods of a PodGroup that has another owner, or none: only which of
            them come later counts.
    """
    least = _minimum(key, group=group, facts=facts, pod=pod, size=size, has_chips=has_chips)
    if facts is None and turns is not None and not least.wrong:
        return _without_later(least, turns.seen_by(pod.spec.scheduler_name))
    if facts is None or least.wrong:
        return least
    own = facts.seen_by(pod.spec.scheduler_name)
    if group is None and least.name not in _EXPLICIT:
        least = _without_others(least, facts, own)
    if group is None or not facts.group_has_later:
        least = _without_later(least, own)
    if not facts.rollout:
        return least
    count = max(min(least.count, facts.replicas or 0), 1)
    by_task = least.by_task if count == least.count else ()
    return msgspec.structs.replace(least, count=count, by_task=by_task, rollout=facts.rollout)


def _without_others(least: Minimum, facts: OwnerFacts, own: OwnerFacts) -> Minimum:
    """A minimum without the pods of the owner that another scheduler places; those are ``facts`` without ``own``."""
    others = [task for task in facts.tasks if all(task.name != one.name for one in own.tasks)]
    has_least = facts.min_count is not None
    first = ((has_least and task.least) or task.pods for task in others if not task.is_later)
    count = least.count - sum(first)
    size = None if least.size is None else max(least.size - sum(task.pods for task in others), 0)
    named = {task.name.lower() for task in others}
    by_task = tuple((task, number) for task, number in least.by_task if task.lower() not in named)
    return msgspec.structs.replace(least, count=max(count, 1), size=size, by_task=by_task)


def _without_later(least: Minimum, facts: OwnerFacts) -> Minimum:
    """A minimum without the pods that the owner makes only when others are ready: these would never be."""
    first = facts.first_pods
    if first is None:
        return least
    later = {task.name.lower() for task in facts.tasks if task.is_later}
    by_task = tuple((task, count) for task, count in least.by_task if task.lower() not in later)
    return msgspec.structs.replace(least, count=max(min(least.count, first), 1), declared=least.count, by_task=by_task)


def _minimum(
    key: GangKey,
    *,
    group: PodGroup | None,
    facts: OwnerFacts | None,
    pod: Pod,
    size: int | None,
    has_chips: bool,
) -> Minimum:
    """The number, by what PodGroup, owner and pod say."""
    kind = kinds().of_word(key.kind)
    if group is None and size is not None:
        return Minimum(count=max(size, 1), size=size, name=f"annotation {kinds().size_key(pod)}")
    if group is None and kind is not None and kind.pods.names_gangs:
        return _owner_minimum(f"{kind.api_kind[1]} {key.name}", facts)
    if group is None:
        return _minimum_of_owner(facts, pod, None, has_chips=has_chips)
    spec = group.spec
    owned = facts is not None and kinds().named[facts.kind].starts_together is not None
    if owned and (spec.min_member or 0) <= 1:
        return _minimum_of_owner(facts, pod, group, has_chips=has_chips)
    known = size_of(facts) if facts is not None else None
    if spec.min_member is None:  # as Volcano's controllers write 0: they have it from a job without a minimum
        return Minimum(size=known)
    by_task = tuple(sorted((spec.min_task_member or {}).items()))
    is_elastic = sum(count for _, count in by_task) > spec.min_member
    if is_elastic:
        by_task = ()  # Volcano checks tasks only if the minimum of the gang covers all of them.
    return Minimum(count=max(spec.min_member, 1), size=known, by_task=by_task, is_elastic=is_elastic)


def size_of(facts: OwnerFacts) -> int | None:
    """Pods that an owner keeps at a time; None when unknown."""
    if facts.tasks:
        return sum(task.pods for task in facts.tasks)
    if facts.parallelism is not None:
        return facts.parallelism if facts.completions is None else min(facts.parallelism, facts.completions)
    return facts.replicas


def _minimum_of_owner(facts: OwnerFacts | None, pod: Pod, group: PodGroup | None, *, has_chips: bool) -> Minimum:
    """Minimum by the rules of the kind of the owner."""
    if facts is None:
        return _annotated([group, pod], None) or Minimum()
    known = size_of(facts)
    annotated = _annotated([group, facts, pod], known)
    if annotated is not None:
        return annotated
    starts_together = kinds().named[facts.kind].starts_together
    if starts_together is None:
        count = facts.min_count if facts.min_count is not None else known or 0
        by_task = tuple((task.name, task.least) for task in facts.tasks if task.least)
        return Minimum(count=max(count, 1), size=known, name=facts.min_name, by_task=by_task)
    return Minimum(count=max(known or 0, 1) if starts_together(facts, has_chips) else 1, size=known)


def _annotated(sources: Iterable[PodGroup | OwnerFacts | Pod | None], size: int | None) -> Minimum | None:
    """Minimum in an annotation; None without one."""
    layers = [
        source.annotations if isinstance(source, OwnerFacts) else source.metadata.annotations or {}
        for source in sources
        if source is not None
    ]
    for name in (MIN_AVAILABLE, GROUP_MIN_MEMBER):
        text = next((layer[name] for layer in layers if name in layer), None)
        if text is None:
            continue
        count = number(text)
        if count is None or count > REPLICAS_MAX:
            return Minimum(wrong=f"annotation {name} is {text!r}: expected a whole number from 0 to {REPLICAS_MAX}")
        return Minimum(count=max(count, 1), size=size, name=f"annotation {name}")
    return None


def _owner_minimum(name: str, facts: OwnerFacts | None) -> Minimum:
    """Minimum of gangs whose own object, of this kind and name, has the number."""
    if facts is None:
        return Minimum(wrong=f"{name} does not exist or cannot be read")
    return Minimum(count=max(facts.min_count or 0, 1), size=size_of(facts), name=facts.min_name)
