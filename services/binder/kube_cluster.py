"""A Kubernetes cluster as the binder sees it.

A gang is bound as far as possible: ranks that wait for a pod, or for their turn on a node, continue when the awaited
fact arrives. So nothing here blocks a gang that can continue, nor the eviction of one that waits.

Longer than 400 lines because the ways in which a pod is tried again share the progress of its gang.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from berth.core.text import pluralize
from berth.core.topologies.annotations import annotations_of
from berth.formats.ascend.mark_proofs import UNCHECKED, MarkProofs
from berth.formats.kubernetes.events import Involved
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api
from berth.schemas.facts import MembersSeen, PodsSeen
from berth.schemas.units import UnixMs
from berth.services.binder.attempt_progress import Progress
from berth.services.binder.cluster import BindResult, Gang, NotYetError, Wake
from berth.services.binder.config import BinderConfig
from berth.services.binder.eviction_port import EvictionPort, ignore_event
from berth.services.binder.kube_eviction import KubeEviction, all_of
from berth.services.binder.kube_recovery import KubeRecovery
from berth.services.binder.members import JobMembers, Member
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeCards
from berth.services.binder.node_turns import NodeTurns, RankPod, bind_request
from berth.services.binder.pod_binding import PodBinding, PodBindRequest, Verdict, involved_pod
from berth.services.binder.pod_deletion import PodDeletion
from berth.services.binder.predicate_times import PredicateTimes
from berth.services.binder.recoveries.graceful_exit import GracefulExit
from berth.services.binder.remade_pods import RemadePods
from berth.services.binder.volumes.claim_binding import ClaimBinding
from berth.services.binder.volumes.gang_claims import GangClaims
from berth.services.binder.work import AttemptKey

_EVENTS_MAX: Final = 16
"""Maximum number of pods of a gang that get an Event each if they cannot be bound, or wait for their claims."""
_REFUSED_AGAIN_S: Final = 0.5
_NO_POD_AGAIN_S: Final = 60.0
"""Pause before ranks without a pod are looked at again, if no fact about their pods comes before."""


class KubeCluster(EvictionPort):
    """Binds and evicts pods of a Kubernetes cluster.

    Attributes:
        nodes: The nodes, to be kept up to date by a reflection; must be complete before anything is bound.
        times: Times of decisions.

    Args:
        api: The API server.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
        marks: Proves the marks of pods.
        report_event: Called to write an Event: object, reason, message, uid of the job.
        report_scheduled: Called to write an Event about a pod that is bound: object, message, uid of its job.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        config: BinderConfig,
        instruments: Instruments[BinderMetrics],
        *,
        marks: MarkProofs = UNCHECKED,
        report_event: Callable[[Involved, str, str, str], None] = ignore_event,
        report_scheduled: Callable[[Involved, str, str], None] = ignore_event,
    ) -> None:
        at_once, faults = config.binds_at_once, instruments.faults
        self.nodes, self.times = NodeCards(), PredicateTimes()
        self._binding = PodBinding(api, at_once=at_once, faults=faults, marks=marks)
        deletion = PodDeletion(api, self.nodes, clock, instruments, at_once=at_once, report_event=report_event)
        claims = ClaimBinding(api, at_once=at_once, faults=faults)
        super().__init__(
            GangClaims(claims, clock, timeout_s=config.volumes_timeout_s),
            clock,
            eviction=KubeEviction(api, self._binding, deletion),
            graceful_exit=GracefulExit(api, clock, config.fault_objects, instruments.log),
            turns=NodeTurns(config),
            report_event=report_event,
        )
        self._metrics, self._config, self._report_scheduled = instruments.metrics, config, report_scheduled
        self._remade = RemadePods(api, self._binding)
        self._recovery = KubeRecovery(self._binding, self._members, self._chip_slots, self.times)

    @property
    def fact_kinds(self) -> tuple[str, ...]:
        """Facts of members name the pods, facts of pods show which have their chips, the others are about claims."""
        return ("member", "pod", "claim", "unbound")

    def take_members(self, fact: MembersSeen) -> None:
        """Take a fact of members.

        Raises:
            ValueError: It is damaged; the previous fact stays in force.
        """
        self._members.take(fact)

    def take_pods(self, fact: PodsSeen) -> None:
        """Take a fact of pods."""
        self._free(self._chip_slots.take(fact))
        self._previous_pods.record_gone(fact)
        if (fact.uid, fact.attempt) in self._unreported:
            self.wake([(fact.uid, fact.attempt)])

    def forget(self, key: AttemptKey) -> None:
        """An attempt has ended."""
        self._progress.pop(key, None)
        self._claims.forget(key)
        self._recovery.take_bound(key)
        self._unreported.discard(key)
        self._previous_pods.remove(key)
        self._free(self._chip_slots.forget(*key))

    async def bind(self, gang: Gang) -> BindResult:
        """See :meth:`Cluster.bind`.

        Raises:
            NotYetError: Some pods do not exist yet, or wait for their claims or for their turn on a node.
            TransientError: The API server did not answer.
            PoisonError: The placement is damaged.
        """
        try:
            progress = self._progress_of(gang)
        except ValueError as error:
            raise PoisonError(str(error)) from error
        job_members = self._members.of(gang.namespace, gang.name, gang.uid)
        members = job_members.rows if job_members is not None else {}
        todo = [rank for rank in gang.ranks() if rank not in progress.done]
        if gang.recovers:
            return await self._bind_again(gang, progress, job_members, todo)
        await self._find_gone_pods(gang, progress, todo, members)
        self._await_members(gang, progress, progress.missing(todo, members), members)
        if (
            job_members is not None
            and not self._gives_up(progress)
            and await self._claims_bound(gang, progress, members)
        ):
            ready, wait_s = await self._ready(gang, progress, members, todo)
            await self._bind_all(gang, progress, job_members, ready)
            self._await_members(gang, progress, progress.missing(todo, members), members)
            if wait_s is not None and not self._gives_up(progress):
                raise NotYetError("pods wait for their turn on a node", retry_after_s=wait_s)
        if self._gives_up(progress):
            await self._remade.keep(gang, progress, members, self._clock.monotonic_s(), self._report_event)
        self._progress.pop(gang.key, None)  # the attempt may have ended meanwhile
        return progress.result(todo)

    async def _find_gone_pods(
        self, gang: Gang, progress: Progress, todo: Iterable[int], members: Mapping[int, Member]
    ) -> None:
        """Find out which pods are gone or about to go, once, if an attempt before this one was undone.

        Facts may not show yet what the binder itself has deleted, and no pod is bound before all of them are there.

        Raises:
            TransientError: The API server did not answer.
        """
        if gang.attempt == 1 or progress.is_checked:
            return

        async def see(rank: int, member: Member) -> None:
            if await self._binding.is_gone(gang.namespace, member.pod, member.uid):
                progress.lost[rank] = member.uid

        await all_of(see(rank, members[rank]) for rank in todo if rank in members)
        progress.is_checked = True

    async def _bind_again(
        self, gang: Gang, progress: Progress, job_members: JobMembers | None, todo: list[int]
    ) -> BindResult:
        """Bind ranks that recover, each as soon as it has a pod, however late that is.

        Raises:
            NotYetError: Some wait, and none has failed since they were last tried.
            TransientError: The API server did not answer.
        """
        members = job_members.with_backups(gang.backups) if job_members is not None else {}
        here = [rank for rank in todo if rank not in progress.missing(todo, members)]
        waits: TransientError = NotYetError("ranks that recover have no pod yet", retry_after_s=_NO_POD_AGAIN_S)
        if job_members is not None and here and await self._claims_bound(gang, progress, members):
            ready, wait_s = await self._ready(gang, progress, members, here)
            if wait_s is not None:
                waits = NotYetError("pods wait for their turn on a node", retry_after_s=wait_s)
            try:
                await self._bind_all(gang, progress, job_members, ready)
            except TransientError as error:
                waits = error
        result = progress.result_of(gang.ranks())
        if result.waiting and not result.failures:
            raise waits
        if not result.waiting:
            self._progress.pop(gang.key, None)
        return result

    async def _claims_bound(self, gang: Gang, progress: Progress, members: Mapping[int, Member]) -> bool:
        """Whether all claims of a gang are bound; its ranks whose claims cannot be have failed otherwise.

        Raises:
            NotYetError: Claims of the gang are not bound yet.
            TransientError: The API server did not answer.
        """
        if not gang.placement.claims or progress.has_claims:
            return True
        try:
            failures = await self._claims.bind(gang)
        except NotYetError:
            late = (item for item in sorted(self._claims.newly_late(gang).items()) if item[0] in members)
            for rank, reason in islice(late, _EVENTS_MAX):
                involved = involved_pod(gang.namespace, members[rank].pod, members[rank].uid)
                self._report_event(involved, "WaitingForVolume", reason, gang.uid)
            raise
        for rank, reason in sorted(failures.items()):
            self._fail(gang, progress, rank, reason, members.get(rank))
        progress.has_claims = not failures
        progress.began_s = self._clock.monotonic_s()  # from now on a pod may be missing for so long again
        return not failures

    def _progress_of(self, gang: Gang) -> Progress:
        found = self._progress.get(gang.key)
        if found is None or found.is_outdated(gang):
            placement = gang.placement
            places = (placement.names(), placement.chips_by_rank(), annotations_of(placement))
            if found is None:
                found = self._progress[gang.key] = Progress(self._clock.monotonic_s(), gang, *places)
                found.unclear |= self._recovery.take_bound(gang.key)
            else:
                found.go_on(gang, *places)
        return found

    def _gives_up(self, progress: Progress) -> bool:
        """Whether a pod failed to bind and the setting ``partial`` is ``undo``, so that the gang is undone."""
        is_undone = self._config.partial == "undo" and not progress.gang.recovers
        return is_undone and bool(progress.failures.keys() - progress.misfits.keys())

    def _fail(self, gang: Gang, progress: Progress, rank: int, reason: str, member: Member | None) -> None:
        """A rank cannot be bound: note the reason and write an Event of its pod, if there is one."""
        progress.failures[rank] = reason
        if member is not None and len(progress.failures) <= _EVENTS_MAX:
            involved = involved_pod(gang.namespace, member.pod, member.uid)
            self._report_event(involved, "FailedBinding", reason, gang.uid)

    def _await_members(self, gang: Gang, progress: Progress, missing: list[int], members: Mapping[int, Member]) -> None:
        """Fail ranks for which there is no pod for too long.

        Raises:
            NotYetError: The pods may still come.
        """
        if not missing or self._gives_up(progress):
            return
        left_s = progress.began_s + self._config.members_wait_s - self._clock.monotonic_s()
        if left_s > 0:
            raise NotYetError(
                f"{pluralize(len(missing), 'rank')} {'has' if len(missing) == 1 else 'have'} no pod yet",
                retry_after_s=left_s,
            )
        failed = [rank for rank in missing if rank not in progress.failures]
        for rank in failed:
            progress.failures[rank] = f"this rank has had no pod for {self._config.members_wait_s:g} s"
        other = next(iter(members.values()), None)
        if failed and other is not None:
            why = f"rank {failed[0]} of the gang has had no pod for {self._config.members_wait_s:g} s"
            involved = involved_pod(gang.namespace, other.pod, other.uid)
            self._report_event(involved, "FailedBinding", why, gang.uid)

    async def _ready(
        self, gang: Gang, progress: Progress, members: Mapping[int, Member], todo: Sequence[int]
    ) -> tuple[list[RankPod], float | None]:
        """Pods that may be bound now, and how long the others may wait for their turn; None when no pod waits."""
        ready: list[RankPod] = []
        wait_s = await self._leave_misfits(gang, progress, members, [rank for rank in todo if rank in members])
        for rank in () if progress.given_back and not progress.has_begun else todo:
            if rank in progress.failures or rank in progress.misfits:
                continue
            card = self.nodes.get(progress.nodes[rank])
            if card is None:
                why = f"node {progress.nodes[rank]} is not there any more"
                self._fail(gang, progress, rank, why, members[rank])
                continue
            pod = RankPod(rank, members[rank], card, card.devices())
            slot = self._turns.take(gang, progress.chips[rank], pod)
            if slot is None:
                progress.waiting_since_s.pop(rank, None)
                ready.append(pod)
                continue
            left_s = self._turns.wait_s(slot, gang, progress, rank, self._clock.monotonic_s())
            if left_s > 0:
                wait_s = left_s if wait_s is None else min(wait_s, left_s)
            else:
                self._fail(gang, progress, rank, self._turns.obstacle(slot, gang, rank), members[rank])
        return ready, wait_s

    async def _leave_misfits(
        self, gang: Gang, progress: Progress, members: Mapping[int, Member], todo: Sequence[int]
    ) -> float | None:
        """See which nodes do not take their pods any more: before any pod is bound all places are given back.

        Returns:
            How long ranks wait for such nodes; None if none waits.

        Raises:
            NotYetError: No pod is bound yet, and the dispatcher may not know of the nodes.
            TransientError: The API server did not answer.
        """
        now_s, nodes = self._clock.monotonic_s(), progress.nodes
        found = {rank: self.nodes.misfit(nodes[rank], gang.shape_of(rank), self._clock.now_ms()) for rank in todo}
        left_s = progress.note_misfits(found, now_s)
        if left_s and not (progress.has_begun or gang.recovers):
            raise NotYetError(next(iter(progress.misfits.values())), retry_after_s=left_s)
        if left_s or not progress.misfits:
            return left_s or None

        async def see(rank: int) -> None:
            if await self._binding.is_bound(gang.namespace, members[rank].pod, *gang.key):
                progress.unclear.add(rank)

        await all_of(see(rank) for rank in (progress.misfits if progress.has_begun else todo))
        progress.note_misfits(found, now_s)
        progress.given_back |= bool(progress.misfits) and not gang.recovers
        for rank, why in progress.misfits.items():
            if rank not in progress.failures:
                self._fail(gang, progress, rank, why, members[rank])
        return None

    async def _bind_all(self, gang: Gang, progress: Progress, job_members: JobMembers, ready: list[RankPod]) -> None:
        """Bind pods that may be bound, all at once.

        Raises:
            TransientError: The API server did not answer for at least one of them.
        """
        errors: list[TransientError] = []
        async with asyncio.TaskGroup() as group:
            for pod in ready:
                group.create_task(self._bind_one(gang, progress, job_members, pod, errors), name="bind pod")
        if errors and not self._gives_up(progress):
            raise errors[0]

    async def _bind_one(
        self, gang: Gang, progress: Progress, job_members: JobMembers, pod: RankPod, errors: list[TransientError]
    ) -> None:
        rank = pod.rank
        try:
            verdict = await self._verdict(gang, progress, job_members, pod)
        except TransientError as error:
            errors.append(error)  # it may be bound: the slot stays taken
            progress.unclear.add(rank)
            return
        except PoisonError as error:
            verdict = Verdict("failed", f"pod {pod.member.pod}: {error.reason}")
        if verdict.state == "refused" and self._is_refused_for_now(gang, progress, rank, pod.member, verdict.reason):
            errors.append(TransientError(verdict.reason, retry_after_s=_REFUSED_AGAIN_S))
            return
        progress.unclear.discard(rank)
        progress.refused.pop(rank, None)
        key = (*gang.key, rank)
        if self._is_tried_again(gang, progress, pod, verdict, errors):
            self._free(self._chip_slots.release(key))
            return
        self._metrics.pods.labels("bound" if verdict.state == "bound" else "failed").inc()
        if verdict.state != "bound":
            self._fail(gang, progress, rank, verdict.reason, pod.member)
            self._free(self._chip_slots.release(key))
            return
        progress.done.add(rank)
        about = involved_pod(gang.namespace, pod.member.pod, pod.member.uid)
        node = pod.card.name
        self._report_scheduled(about, f"Successfully assigned {gang.namespace}/{about.name} to {node}", gang.uid)
        if verdict.pod is not None:
            self.times.note(verdict.pod.spec.node_name, verdict.pod.predicate_ns)
            if not verdict.pod.awaits_chips:
                self._free(self._chip_slots.release(key))

    def _is_refused_for_now(self, gang: Gang, progress: Progress, rank: int, member: Member, reason: str) -> bool:
        """Whether a pod whose binding is refused is tried again; an Event of the pod says so."""
        now_s = self._clock.monotonic_s()
        is_news, since_s = progress.note_refusal(rank, reason, now_s)
        is_tried = now_s < since_s + self._config.bind_give_up_s
        if is_news and is_tried and not progress.kept and len(progress.refused) <= _EVENTS_MAX:
            involved = involved_pod(gang.namespace, member.pod, member.uid)
            self._report_event(involved, "FailedBinding", f"{reason}; it is tried again", gang.uid)
        return is_tried

    async def _verdict(self, gang: Gang, progress: Progress, job_members: JobMembers, pod: RankPod) -> Verdict:
        """Bind a pod, or another one that has its name by now, unless the attempt has ended meanwhile."""
        verdict = await self._binding.bind(self._bind_request(gang, progress, job_members, pod, pod.member))
        is_over = self._progress.get(gang.key) is not progress
        if verdict.state == "replaced" and not is_over and (now := self._member_now(gang, pod.rank)) is not None:
            job_members, member = now
            if member.uid != pod.member.uid:
                verdict = await self._binding.bind(self._bind_request(gang, progress, job_members, pod, member))
        if pod.rank in gang.backups:
            await self._eviction.end_former(verdict)
        return verdict

    def _is_tried_again(
        self, gang: Gang, progress: Progress, pod: RankPod, verdict: Verdict, errors: list[TransientError]
    ) -> bool:
        """Whether a rank that was not bound is tried again: with another pod, or for a while with the same one."""
        if (gang.attempt > 1 or gang.recovers) and (verdict.is_gone or verdict.state == "replaced"):
            # The previous attempt was undone, or the rank recovers: its pods end, and others replace them.
            progress.lost[pod.rank] = pod.member.uid
            return True
        if not gang.recovers or verdict.state in {"bound", "refused"}:
            return False
        now_s = self._clock.monotonic_s()
        if now_s >= progress.failing_since_s.setdefault(pod.rank, now_s) + self._config.members_wait_s:
            return False
        errors.append(TransientError(verdict.reason))
        return True

    def _member_now(self, gang: Gang, rank: int) -> tuple[JobMembers, Member] | None:
        job_members = self._members.of(gang.namespace, gang.name, gang.uid)
        member = job_members.with_backups(gang.backups).get(rank) if job_members is not None else None
        return (job_members, member) if job_members is not None and member is not None else None

    def _bind_request(
        self, gang: Gang, progress: Progress, job_members: JobMembers, pod: RankPod, member: Member
    ) -> PodBindRequest:
        ns = self.times.next(pod.card.name, self._clock.now_ms())
        left = self._previous_pods.marks(gang, pod.rank, name=member.pod, node=pod.card.name)
        return bind_request(gang, progress, job_members.fact, pod, member, predicate_ns=ns, left=left)

    async def begin(self, gangs: Sequence[Gang], *, after_ms: UnixMs, wake: Wake) -> None:
        """See :meth:`Cluster.begin`."""
        self._claims.failures.settle()
        self._previous_pods.keep(gang.key for gang in gangs)
        self.times.begin_after(after_ms)
        self.wake = wake
        await self.recover(gangs)

    async def recover(self, gangs: Iterable[Gang]) -> None:
        """Read pods that an earlier run may have bound, unless facts show that they have their chips.

        Raises:
            TransientError: The API server did not answer.
        """
        await self._recovery.read(gangs)
