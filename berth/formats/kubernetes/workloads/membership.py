"""Gang of a pod, and the place of the pod in it.

Annotations, labels and the controller of a pod name its gang. The size of the gang is often only in another object;
then that object is named, and the caller reads it.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of other systems" and "Resolution of the gang";
docs/reference/nodes-and-chips.md, "Pod annotations of chips".
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.formats.ascend.pod_annotations import GROUP_NAME, RANK_INDEX
from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.kubernetes.lean import OwnerReference
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.workloads.pod_labels import CO_GROUP, number
from berth.formats.kubernetes.workloads.port import Claim, GangKey, OwnerKey
from berth.formats.kubernetes.workloads.registry import PODGROUP, kinds
from berth.formats.shortened import shortened
from berth.schemas.facts import Owner

WORKER: Final = "worker"
"""Task of pods without a task name."""

_BASE_LENGTH_MAX: Final = 253 - 1 - 16
"""The name of a request has at most 253 characters; the suffix of a part needs 17."""
_LAST_NUMBER: Final = re.compile(r"^(.*?)([0-9]{1,9})$")
_HEADS: Final = ("launcher", "leader", "headgroup", *(kind.lower() for kind in REPLICA_TYPES if kind != "Worker"))
_ROLES: Final = {role: place for place, role in enumerate(_HEADS)}
"""Tasks to which the others report, in order of rank: users give these names to tasks of their own, too."""


class Membership(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Gang of a pod, and the place of the pod in it."""

    key: GangKey
    owner: Owner = Owner()
    look: OwnerKey | None = None
    """Object with the size of the gang; None if pods or PodGroup have it."""
    beneath: OwnerKey | None = None
    """Object that made the pod and may make those of a gang in turn; None if that is not known."""
    size: int | None = None
    """Pods of the gang, if the pod has the number."""
    task: str = WORKER
    rank: int | None = None
    """Rank in the whole gang, if the pod has it."""
    index: int | None = None
    """Likewise, from its name and labels alone, without the annotation for the rank."""
    child: int = 0
    """Index of the child of the task's owner to which the pod belongs."""
    local: int | None = None
    """Index in the child or task, if the pod has it."""
    wrong: str = ""
    """Why the pod belongs to no gang, as the end of a sentence that begins with the pod; empty when it does."""

    @property
    def source(self) -> str:
        """Identity of the place of the pod: a pod with the same replaces it; empty if any pod of the task does."""
        return str(self.rank) if self.rank is not None else self.own_source

    @property
    def own_source(self) -> str:
        """:attr:`source` without the annotation for the rank, which the scheduler may have written."""
        if self.index is not None:
            return str(self.index)
        return f"{self.child}.{self.local}" if self.local is not None else ""


def membership(pod: Pod) -> Membership:
    """Gang of a pod, and the place of the pod in it.

    The first that applies: PodGroup annotation, a group that its spec names, one that its labels name, its controller,
    the pod alone.
    """
    meta, known = pod.metadata, kinds()
    claim = _claim(pod) or _by_controller(pod)
    stated = number(meta.annotation(RANK_INDEX))
    place = known.place_of(pod)
    made_by = meta.controller
    controller = Owner(made_by.kind, made_by.name, made_by.uid) if made_by is not None else Owner()
    return Membership(
        key=claim.key,
        owner=claim.owner or controller,
        look=claim.look,
        beneath=claim.maker,
        size=claim.size,
        task=known.task_of(pod).lower() or WORKER,
        rank=stated if stated is not None else place.rank,
        index=place.rank,
        child=place.child,
        local=place.local,
        wrong=_claimed_twice(pod) or _wrong_rank(pod),
    )


def group_of(pod: Pod) -> GangKey | None:
    """Gang that a field, annotation or label of a pod names; None for a pod that only its controller has."""
    claim = _claim(pod)
    return claim.key if claim is not None else None


def _claim(pod: Pod) -> Claim | None:
    """Gang that a pod names without its controller."""
    if name := pod.metadata.annotation(GROUP_NAME):
        return Claim(GangKey(PODGROUP, pod.metadata.namespace, name), None, maker=_maker(pod))
    return kinds().gang_of_spec(pod) or kinds().gang_of_labels(pod)


def _maker(pod: Pod) -> OwnerKey | None:
    """Object that made a pod of a PodGroup and may make its pods in turn: by labels, or its controller."""
    claim = kinds().gang_of_labels(pod)
    if claim is not None:
        return claim.maker
    controller = pod.metadata.controller
    kind = kinds().of_controller(controller.api_version, controller.kind) if controller is not None else None
    if controller is None or kind is None or not kind.waits:
        return None
    return OwnerKey(kind.name, pod.metadata.namespace, controller.name)


def _by_controller(pod: Pod) -> Claim:
    """Gang of a pod that names none."""
    meta = pod.metadata
    controller = meta.controller
    if controller is None:
        return Claim(GangKey("pod", meta.namespace, meta.name, meta.uid), None)
    kind = kinds().of_controller(controller.api_version, controller.kind)
    return Claim(
        GangKey(short_kind(controller), meta.namespace, controller.name, controller.uid),
        OwnerKey(kind.name, meta.namespace, controller.name) if kind is not None else None,
    )


def _claimed_twice(pod: Pod) -> str:
    """Which two PodGroups a pod names; empty when it names one at most. One name in two places is one PodGroup."""
    group = pod.spec.scheduling_group
    claims = {
        f"annotation {GROUP_NAME}": pod.metadata.annotation(GROUP_NAME),
        "spec.schedulingGroup.podGroupName": group.pod_group_name if group is not None else "",
        f"label {CO_GROUP}": pod.metadata.label(CO_GROUP),
    }
    named = [(name, place) for place, name in claims.items() if name]
    other = next(((name, place) for name, place in named[1:] if name != named[0][0]), None)
    if other is None:
        return ""
    return f"names two PodGroups, {named[0][0]} ({named[0][1]}) and {other[0]} ({other[1]}); name one"


def _wrong_rank(pod: Pod) -> str:
    """That the rank that a pod states is none: nobody would ever complete the rank table of its job; empty if it is."""
    stated = (pod.metadata.annotations or {}).get(RANK_INDEX)
    is_rank = stated is None or number(stated) is not None
    return "" if is_rank else f"has {RANK_INDEX} {shortened(stated)}: expected a whole number, the rank of the pod"


def short_kind(owner: OwnerReference) -> str:
    """Short name of the kind of a controller, for names of requests."""
    return kinds().word_of(owner.api_version, owner.kind)


def group_owner(group: PodGroup) -> OwnerKey | None:
    """Controller of a Volcano PodGroup, if it can be read and says more than its operator wrote into the PodGroup."""
    owner = group.metadata.controller
    kind = kinds().of_controller(owner.api_version, owner.kind) if owner is not None else None
    if owner is None or kind is None or kind.is_said_by_group:
        return None
    return OwnerKey(kind.name, group.metadata.namespace, owner.name)


def base_name(key: GangKey, group: PodGroup | None) -> str:
    """Name of the first request of a gang; the names of its other parts begin with it."""
    kind, name = key.kind, key.name
    owner = group.metadata.controller if group is not None else None
    if owner is not None:
        kind, name = short_kind(owner), owner.name
    base = f"{kind}.{name}"
    return base if len(base) <= _BASE_LENGTH_MAX else f"{base[: _BASE_LENGTH_MAX - 9]}-{digest([base], 8)}"


def digest(parts: Iterable[str], length: int) -> str:
    """Hexadecimal digits derived from texts; equal texts have equal digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]


def natural(name: str) -> tuple[str, int]:
    """Sort key for names that end in a number: by that number."""
    match = _LAST_NUMBER.match(name)
    return (match[1], int(match[2])) if match else (name, -1)


def task_order(task: str, tasks: Mapping[str, int]) -> tuple[int, int, str]:
    """Place of a task: in the order of its owner, or masters first, then by name.

    Args:
        task: Name of the task.
        tasks: Tasks of the owner and their places; empty when unknown.
    """
    return (tasks.get(task, len(tasks)), _ROLES.get(task, len(_ROLES)), task)
