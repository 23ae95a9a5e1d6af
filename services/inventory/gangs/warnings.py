"""What is said of a gang that is placed otherwise than its objects may want: sentences for Events. Pure."""

from collections.abc import Sequence
from typing import Final

from berth.formats.gang_keys import GROUP_MIN_MEMBER
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.registry import PODGROUP, kinds
from berth.products.model import MIN_AVAILABLE
from berth.services.inventory.gangs.model import Member

GANG_UNKNOWN: Final = "GangUnknown"
"""Reason of the Event about a controller whose kind says nothing of how many of its pods start together."""
CONSTRAINT_IGNORED: Final = "ConstraintIgnored"
"""Reason of the Event about a PodGroup that constrains where its pods are, in a way that is not held."""
_NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
"""Annotation of pods that Volcano sets from the topology policy of a task."""
_TOLD: Final = frozenset({PODGROUP, "pod", "daemonset", "node"})
"""Words of gangs whose size is known: of PodGroups, and of pods that have nothing to do with one another."""


def unknown_kind(members: Sequence[Member], facts: OwnerFacts | None) -> str:
    """That the pods of a controller start one by one because its kind is not known; empty if that is not so.

    Args:
        members: Pods of a request.
        facts: Facts of the owner, if the owner was looked up.
    """
    if not members or facts is not None or not any(member.ask.chips for member in members):
        return ""
    place, annotations = members[0].place, members[0].pod.metadata.annotations or {}
    kind = kinds().of_word(place.key.kind)
    is_told = place.look is not None or place.key.kind in _TOLD or (kind is not None and kind.pods.names_gangs)
    if is_told or MIN_AVAILABLE in annotations or GROUP_MIN_MEMBER in annotations:
        return ""
    return (
        f"the pods of {place.owner.kind} {place.owner.name} start one by one: the kind is not known; annotation "
        f"{MIN_AVAILABLE} of the pods says how many of them start together"
    )


def ignored_constraints(group: PodGroup | None, members: Sequence[Member]) -> str:
    """What a Volcano PodGroup or its pods ask of their nodes and is not held; empty for nothing.

    Args:
        group: The PodGroup, if there is one.
        members: Its pods.
    """
    for member in members:
        policy = member.pod.metadata.annotation(_NUMA_POLICY, "none")
        if policy != "none":
            return f"annotation {_NUMA_POLICY} is {policy}: it is not held, the topology manager of a node decides"
    if group is None:
        return ""
    topology, parts = group.spec.network_topology, group.spec.sub_group_policy
    if topology is not None and topology.mode != "soft":
        return (
            f"spec.networkTopology.mode is {topology.mode or 'hard'}: it is not held, the pods may be below any switch; "
            "label tor-affinity or annotation sp-block keeps them together"
        )
    if parts:
        return f"spec.subGroupPolicy has {parts[0].name or 'a group'}: it is not held, the PodGroup is one gang"
    return ""
