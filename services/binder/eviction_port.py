"""The part of the port of the cluster that ends pods: whole gangs, and ranks that recover from a fault."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from berth.formats.ascend.pod_annotations import JOB_UID, RANK
from berth.formats.ascend.reset_config import recovery_mark
from berth.formats.kubernetes.events import Involved
from berth.formats.whole_numbers import whole_number
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError
from berth.schemas.units import UnixMs
from berth.services.binder.attempt_progress import Progress
from berth.services.binder.chip_slots import Slot
from berth.services.binder.cluster import Gang, Leave, Manner, NotYetError
from berth.services.binder.kube_eviction import HeldPods, KubeEviction
from berth.services.binder.members import Member, Members
from berth.services.binder.node_turns import NodeTurns
from berth.services.binder.pod_binding import PodLean, involved_pod
from berth.services.binder.recoveries.graceful_exit import GracefulExit
from berth.services.binder.recoveries.previous_pods import PreviousPods
from berth.services.binder.volumes.claim_port import ClaimPort
from berth.services.binder.volumes.gang_claims import GangClaims
from berth.services.binder.work import AttemptKey, Clearing

_UNREPORTED_RETRY_S: Final = 2.0
"""Pause before deleted pods that no fact reports yet are checked again."""


def ignore_event(_involved: Involved, *_: str) -> None:
    """Write no Event."""


class EvictionPort(ClaimPort):
    """Base of a cluster that deletes pods.

    Args:
        claims: Claims of the gangs that are being bound.
        clock: Source of time.
        eviction: Finds and deletes pods.
        graceful_exit: Requests a checkpoint from agents.
        turns: Slots of pods that wait for chips.
        report_event: Called to write an Event: object, reason, message, uid of the job.
    """

    def __init__(
        self,
        claims: GangClaims,
        clock: Clock,
        *,
        eviction: KubeEviction,
        graceful_exit: GracefulExit,
        turns: NodeTurns,
        report_event: Callable[[Involved, str, str, str], None],
    ) -> None:
        super().__init__(claims, clock)
        self._eviction = eviction
        self._graceful_exit = graceful_exit
        self._turns = turns
        self._chip_slots = turns.slots
        self._report_event = report_event
        self._members = Members()
        self._previous_pods = PreviousPods()
        self._progress: dict[AttemptKey, Progress] = {}
        self._unreported: set[AttemptKey] = set()
        """Attempts with deleted pods that no fact reports yet."""

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        """See :meth:`Cluster.evict`.

        After the eviction the chips are free as soon as facts show no pod. So it is complete only when facts report
        every remaining pod: a pod that no fact reports yet must not be mistaken for one that never existed.

        Raises:
            HeldBackError: Disruption budgets hold some of the pods back.
            NotYetError: No fact reports some of the remaining pods.
            TransientError: The API server did not answer.
            PoisonError: It rejects the eviction, or the placement is damaged.
        """
        self._progress.pop(gang.key, None)
        try:
            pods = await self._eviction.evict(gang, self._rows(gang), manner, reason, beside=self._backups(gang))
        except ValueError as error:
            raise PoisonError(str(error)) from error
        if manner in {"plain", "force"}:
            self._report_evicted(pods, reason)
        if not pods:
            self._free(self._chip_slots.forget(*gang.key))
        self._await_facts(gang, pods)

    async def remove(self, gang: Gang, leaves: Mapping[int, Leave]) -> None:
        """See :meth:`Cluster.remove`. As for an eviction, facts must report every remaining pod.

        Raises:
            HeldBackError: Disruption budgets hold some of the pods back.
            NotYetError: No fact reports some of the remaining pods.
            TransientError: The API server did not answer.
            PoisonError: It rejects a deletion, or the placement is damaged.
        """
        held = HeldPods()
        try:
            pods = await self._eviction.remove(gang, self._rows(gang), leaves, held)
        except ValueError as error:
            raise PoisonError(str(error)) from error
        for rank, pod in pods:
            self._previous_pods.record_deleted(gang.key, rank, name=pod.metadata.name, node=pod.spec.node_name)
            if leaves[rank].manner == "force":
                self._report_evicted([pod], leaves[rank].reason)
        still = [pod for _, pod in pods if not pod.has_ended]
        for rank in leaves.keys() - {rank for rank, pod in pods if not pod.has_ended}:
            self._free(self._chip_slots.release((*gang.key, rank)))
        self._await_facts(gang, still)
        held.end()

    async def clear(self, clearing: Clearing) -> None:
        """See :meth:`Cluster.clear`.

        Raises:
            TransientError: The API server did not answer.
            PoisonError: It rejects a deletion.
        """
        await self._eviction.clear(clearing)

    async def mark(self, gang: Gang, ranks: Sequence[int], kind: str) -> None:
        """See :meth:`Cluster.mark`.

        Raises:
            TransientError: The API server did not answer.
            PoisonError: It rejects it, or the placement is damaged.
        """
        try:
            await self._eviction.mark(gang, self._rows(gang), ranks, kind)
        except ValueError as error:
            raise PoisonError(str(error)) from error

    async def request_checkpoint(self, gang: Gang, since_ms: UnixMs) -> None:
        """See :meth:`Cluster.request_checkpoint`.

        Raises:
            TransientError: The API server did not answer.
        """
        job_members = self._members.of(gang.namespace, gang.name, gang.uid)
        if job_members is not None and job_members.fact.owner.name:
            mark = recovery_mark(gang.uid, since_ms)
            await self._graceful_exit.ask(gang.namespace, job_members.fact.owner.name, mark)

    def _rows(self, gang: Gang) -> Mapping[int, Member]:
        """Current pods of a gang, by rank."""
        job_members = self._members.of(gang.namespace, gang.name, gang.uid)
        return job_members.rows if job_members is not None else {}

    def _backups(self, gang: Gang) -> list[tuple[int, Member]]:
        """Backup pods of a gang that are there, with their ranks."""
        job_members = self._members.of(gang.namespace, gang.name, gang.uid)
        found = [
            (rank, job_members.backup(rank, uid) if job_members is not None else None)
            for rank, uid in sorted(gang.backups.items())
        ]
        return [(rank, member) for rank, member in found if member is not None]

    def _report_evicted(self, pods: Iterable[PodLean], reason: str) -> None:
        for meta in (pod.metadata for pod in pods if pod.metadata.deletion_timestamp is None):
            involved = involved_pod(meta.namespace, meta.name, meta.uid)
            self._report_event(involved, "Evicted", reason, meta.annotation(JOB_UID))

    def _await_facts(self, gang: Gang, pods: Sequence[PodLean]) -> None:
        """Check that facts report pods.

        Raises:
            NotYetError: They do not report some of them.
        """
        unreported = [pod for pod in pods if gang.attempt and not self._is_reported(gang, pod)]
        if unreported:
            self._unreported.add(gang.key)
            raise NotYetError(f"no fact reports {len(unreported)} of the pods yet", retry_after_s=_UNREPORTED_RETRY_S)
        self._unreported.discard(gang.key)

    def _is_reported(self, gang: Gang, pod: PodLean) -> bool:
        rank = whole_number(pod.metadata.annotation(RANK))
        return rank is not None and self._chip_slots.is_reported(gang.namespace, gang.name, (*gang.key, rank))

    def _free(self, slots: Iterable[Slot]) -> None:
        """Wake the attempts that wait for slots."""
        if keys := self._turns.waiting_for(slots):
            self.wake(keys)
