"""Turns of pods with equally many chips on a node: each waits until the one before has its chips. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from berth.core.text import pluralize
from berth.formats.ascend.bind_annotations import BaseDevice, BoundPod, NodeCard, annotations, takes_whole_node
from berth.schemas.facts import MembersSeen
from berth.services.binder.attempt_progress import Progress
from berth.services.binder.chip_slots import ChipSlots, Slot
from berth.services.binder.cluster import Gang
from berth.services.binder.config import BinderConfig
from berth.services.binder.members import Member
from berth.services.binder.pod_binding import PodBindRequest
from berth.services.binder.work import AttemptKey

_CONSUME_WAIT_S: Final = 60.0
"""How long a pod waits for its turn, before its binding fails."""


@dataclass(frozen=True, slots=True)
class RankPod:
    """The pod of a rank, and the node where it is to be bound."""

    rank: int
    member: Member
    card: NodeCard
    devices: Mapping[str, BaseDevice]


class NodeTurns:
    """Turns on all nodes.

    Attributes:
        slots: Occupants of all slots.

    Args:
        config: Settings.
    """

    def __init__(self, config: BinderConfig) -> None:
        self._config = config
        self.slots = ChipSlots()
        self._waiting: dict[Slot, dict[AttemptKey, None]] = {}

    def take(self, gang: Gang, chips: tuple[int, ...], pod: RankPod) -> Slot | None:
        """Take the slot of a pod; returns the slot if another pod has it, None if the pod may be bound."""
        slot = self._slot(gang, chips, pod)
        return None if slot is None or self.slots.claim(slot, (*gang.key, pod.rank)) else slot

    def _slot(self, gang: Gang, chips: tuple[int, ...], pod: RankPod) -> Slot | None:
        """Slot that a pod needs; None when it may be bound while other pods wait for chips."""
        if not chips or not self._config.one_at_a_time or takes_whole_node(chips, pod.devices):
            return None
        step = gang.steps.get(pod.rank, 0)
        if self.slots.is_served(gang.namespace, gang.name, (*gang.key, pod.rank), step=step):
            return None  # an earlier run bound it
        return Slot(pod.card.name, gang.placement.resource, len(chips))

    def wait_s(self, slot: Slot, gang: Gang, progress: Progress, rank: int, now_s: float) -> float:
        """Note that a rank waits for a slot; returns how many seconds more it may, 0 or less when no more."""
        left_s = progress.waiting_since_s.setdefault(rank, now_s) + _CONSUME_WAIT_S - now_s
        if left_s > 0:
            self._waiting.setdefault(slot, {})[gang.key] = None
        return left_s

    def obstacle(self, slot: Slot, gang: Gang, rank: int) -> str:
        """Why a rank has waited for too long, as a sentence."""
        uid, attempt, other = self.slots.occupant(slot, besides=(*gang.key, rank)) or ("", 0, 0)
        return (
            f"on node {slot.node} another pod with {pluralize(slot.chips, 'chip')} (rank {other} of {uid}, attempt"
            f" {attempt}) has not got them from the device plug-in for {_CONSUME_WAIT_S:g} s"
        )

    def waiting_for(self, slots: Iterable[Slot]) -> list[AttemptKey]:
        """Attempts that waited for slots, which are free now."""
        keys: dict[AttemptKey, None] = {}
        for slot in slots:
            keys.update(self._waiting.pop(slot, {}))
        return list(keys)


def bind_request(
    gang: Gang,
    progress: Progress,
    fact: MembersSeen,
    pod: RankPod,
    member: Member,
    *,
    predicate_ns: int,
    left: Mapping[str, str],
) -> PodBindRequest:
    """Binding of a pod.

    Args:
        gang: Its gang.
        progress: Places of the gang.
        fact: Pods of the gang.
        pod: The rank that is bound.
        member: The pod that has it now.
        predicate_ns: Predicate time, in ns since 1970.
        left: Annotations about the pod that had the rank before.
    """
    described = BoundPod(
        name=member.pod,
        uid=member.uid,
        resource=gang.placement.resource,
        chips=progress.chips[pod.rank],
        predicate_ns=predicate_ns,
        distributed=fact.distributed,
        rank_index=member.rank_index,
        writes_real=fact.writes_real,
        share=gang.placement.share,
        job=gang.name,
        job_uid=gang.uid,
        attempt=gang.attempt,
        rank=pod.rank,
        more={**progress.notes[pod.rank], **left},
    )
    written = annotations(described, pod.card, pod.devices)
    least = gang.steps.get(pod.rank, 0)
    return PodBindRequest(
        gang.namespace, member.pod, member.uid, pod.card.name, written, member.is_stale, least_step=least
    )
