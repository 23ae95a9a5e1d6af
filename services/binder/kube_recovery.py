"""Recovery after a restart: the last actions of an earlier run, read from the pods."""

import asyncio
from collections.abc import Iterable

from berth.formats.ascend.pod_annotations import RANK
from berth.runtime.errors import PoisonError, TransientError
from berth.services.binder.chip_slots import ChipSlots, Slot
from berth.services.binder.cluster import Gang
from berth.services.binder.members import Member, Members
from berth.services.binder.pod_binding import PodBinding
from berth.services.binder.predicate_times import PredicateTimes
from berth.services.binder.work import AttemptKey


class KubeRecovery:
    """Reads pods that an earlier run may have bound.

    Args:
        pods: Reads pods, within the limit of concurrent requests.
        members: Pods of each job, by rank.
        chip_slots: Receives the slots that pods occupy.
        times: Receives the predicate times of pods.
    """

    def __init__(self, pods: PodBinding, members: Members, chip_slots: ChipSlots, times: PredicateTimes) -> None:
        self._pods = pods
        self._members = members
        self._chip_slots = chip_slots
        self._times = times
        self._bound: dict[AttemptKey, set[int]] = {}

    def take_bound(self, key: AttemptKey) -> set[int]:
        """Ranks of an attempt that an earlier run bound, or whose pods have their chips; they are removed here."""
        return self._bound.pop(key, set())

    async def read(self, gangs: Iterable[Gang]) -> None:
        """Read the pods of all gangs; those whose chips are allocated according to facts are known to be bound.

        Raises:
            TransientError: The API server did not answer.
        """
        errors: list[TransientError | PoisonError] = []
        async with asyncio.TaskGroup() as group:
            for gang in gangs:
                job_members = self._members.of(gang.namespace, gang.name, gang.uid)
                chips, names = gang.placement.chips_by_rank(), gang.placement.names()
                for rank, member in job_members.rows.items() if job_members is not None else ():
                    step = gang.steps.get(rank, 0)
                    key = (*gang.key, rank)
                    if rank >= len(chips):
                        continue
                    if self._chip_slots.is_served(gang.namespace, gang.name, key, step=step):
                        self._bound.setdefault(gang.key, set()).add(rank)
                        continue
                    slot = Slot(names[rank], gang.placement.resource, len(chips[rank]))
                    group.create_task(self._read_one(gang, rank, member, slot, errors), name="read pod")
        if errors:
            raise TransientError(errors[0].reason) from errors[0]

    async def _read_one(
        self, gang: Gang, rank: int, member: Member, slot: Slot, errors: list[TransientError | PoisonError]
    ) -> None:
        try:
            pod = await self._pods.read(gang.namespace, member.pod)
        except (TransientError, PoisonError) as error:
            errors.append(error)
            return
        if pod is not None and pod.belongs_to(gang.uid, gang.attempt) and pod.step >= gang.steps.get(rank, 0):
            if (pod.spec.node_name, pod.metadata.annotation(RANK)) == (slot.node, str(rank)):
                self._bound.setdefault(gang.key, set()).add(rank)
            self._times.note(pod.spec.node_name, pod.predicate_ns)
            if slot.chips and pod.awaits_chips:
                self._chip_slots.hold(slot._replace(node=pod.spec.node_name), (*gang.key, rank))
