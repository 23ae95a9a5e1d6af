"""Minimum of a gang: the number of its pods that must start together.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of other systems" and "Resolution of the gang".
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.formats.gang_keys import GROUP_MIN_MEMBER, MIN_AVAILABLE, REPLICAS_MAX
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.formats.kubernetes.workloads import LWS_SIZE, GangKey, number

_OWN_RULES: Final = frozenset({"ReplicaSet", "StatefulSet", "Job"})
"""Controllers for which Volcano creates PodGroups of one member, whatever their size."""
_TOLD: Final = {
    "native": ("PodGroup", "minCount"),
    "workload": ("Workload", "minCount"),
    "lws": ("LeaderWorkerSet", "size"),
    "jobset": ("JobSet", "the sum of its jobs"),
    "cosched": ("PodGroup", "minMember"),
}
"""Kinds of gangs whose object has the number: its kind, and the name of the number there."""


class Minimum(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Number of pods that must start together."""

    count: int = 1
    size: int = 0
    """Pods of the whole gang; 0 when unknown."""
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
) -> Minimum:
    """Number of pods of a gang that must start together.

    A rollout makes the pods of an owner step by step: while one is under way, no more pods than the owner has replicas
    must start together, or the rollout would wait for itself.

    Args:
        key: The gang.
        group: Its Volcano PodGroup, if it has one.
        facts: Numbers of its owner, if it was read.
        pod: One of its pods; its annotations count if neither PodGroup nor owner has them.
        size: Pods of the gang, if a pod has the number.
        has_chips: Its pods request chips.
    """
    least = _minimum(key, group=group, facts=facts, pod=pod, size=size, has_chips=has_chips)
    if facts is None or not facts.rollout or least.wrong:
        return least
    count = max(min(least.count, facts.replicas or 0), 1)
    by_task = least.by_task if count == least.count else ()
    return msgspec.structs.replace(least, count=count, by_task=by_task, rollout=facts.rollout)


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
    if group is None and size is not None:
        return Minimum(count=max(size, 1), size=size, name=f"annotation {LWS_SIZE}")
    if group is None and key.kind in _TOLD:
        return _owner_minimum(key, facts)
    if group is None:
        return _minimum_of_owner(facts, pod, None, has_chips=has_chips)
    spec = group.spec
    owned = facts is not None and facts.kind in _OWN_RULES
    if owned and (spec.min_member or 0) <= 1:
        return _minimum_of_owner(facts, pod, group, has_chips=has_chips)
    known = _size(facts) if facts is not None else 0
    if spec.min_member is None:
        return Minimum(count=max(known, 1), size=known)
    by_task = tuple(sorted((spec.min_task_member or {}).items()))
    is_elastic = sum(count for _, count in by_task) > spec.min_member
    if is_elastic:
        by_task = ()  # Volcano checks tasks only if the minimum of the gang covers all of them.
    return Minimum(count=max(spec.min_member, 1), size=known, by_task=by_task, is_elastic=is_elastic)


def _size(facts: OwnerFacts) -> int:
    """Pods that an owner keeps at a time; 0 when unknown."""
    if facts.tasks:
        return sum(task.pods for task in facts.tasks)
    if facts.parallelism is not None:
        return facts.parallelism if facts.completions is None else min(facts.parallelism, facts.completions)
    return facts.replicas or 0


def _minimum_of_owner(facts: OwnerFacts | None, pod: Pod, group: PodGroup | None, *, has_chips: bool) -> Minimum:
    """Minimum by the rules of the kind of the owner."""
    if facts is None:
        return _annotated([group, pod], 0) or Minimum()
    known = _size(facts)
    if facts.ordered:
        return Minimum(size=known)
    annotated = _annotated([group, facts, pod], known)
    if annotated is not None:
        return annotated
    if facts.kind in {"VolcanoJob", "AscendJob"}:
        count = facts.min_count if facts.min_count is not None else known
        return Minimum(count=max(count, 1), size=known, name="minAvailable")
    is_gang = has_chips if facts.kind in {"ReplicaSet", "StatefulSet"} else facts.indexed
    return Minimum(count=max(known, 1) if is_gang else 1, size=known)


def _annotated(sources: Iterable[PodGroup | OwnerFacts | Pod | None], size: int) -> Minimum | None:
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


def _owner_minimum(key: GangKey, facts: OwnerFacts | None) -> Minimum:
    """Minimum of gangs whose own object has the number."""
    kind, name = _TOLD[key.kind]
    if facts is None:
        return Minimum(wrong=f"{kind} {key.name} does not exist or cannot be read")
    return Minimum(count=max(facts.min_count or 0, 1), size=_size(facts), name=name)
