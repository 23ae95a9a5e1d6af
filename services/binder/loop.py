"""Take an attempt, do its next step, publish the outcome.

Longer than 400 lines because every verb ends in an outcome, which contains what the verbs before it have done.
"""

import asyncio
from typing import Final

import msgspec

from berth.core.text import pluralize
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.waits import IdleWorkers
from berth.schemas.envelope import encode
from berth.schemas.facts import OutcomeSeen, RankFailure
from berth.services.binder.accepted_requests import AcceptedRequests
from berth.services.binder.cluster import HELD_RETRY_S, BindResult, Cluster, Gang, HeldBackError, NotYetError, gang_of
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.recoveries.recovery_work import leaves_of, manner_of_end, marks_of
from berth.services.binder.work import Attempt, AttemptKey, Clearing, Step, Work

FAILURES_REPORTED_MAX: Final = 256
"""Failures that an outcome lists; a message must stay small."""
_EVICT_REASONS: Final = {"bind-failed": "the gang cannot be bound whole", "cancelled": "its job was cancelled"}
_MS: Final = 1000
_TRIES_QUIET: Final = 2
"""Failed tries without a warning."""


class Loop:
    """The binder: several attempts at a time, at most one worker per attempt.

    Args:
        bus: Receives the outcomes.
        cluster: Where pods are bound.
        clock: Source of time.
        config: Settings.
        work: The pending work.
        instruments: Of the process; its fault points are ``outcome`` and ``unbound``, each ``.before`` and ``.after``.
    """

    def __init__(
        self,
        bus: Bus,
        cluster: Cluster,
        clock: Clock,
        config: BinderConfig,
        work: Work,
        instruments: Instruments[BinderMetrics],
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._clock = clock
        self._config = config
        self._backoff = Backoff(max_s=config.retry_wait_max_s)
        self.work = work
        self._faults = instruments.faults
        self._metrics = instruments.metrics
        self._ready: dict[AttemptKey, None] = {}
        self._busy: set[AttemptKey] = set()
        self._again: set[AttemptKey] = set()
        self._waiting: dict[AttemptKey, asyncio.TimerHandle] = {}
        self._tries: dict[AttemptKey, int] = {}
        self._requests = AcceptedRequests(bus)
        self._stopping = False
        self._idle = IdleWorkers()
        self._log = instruments.log

    def wake(self, keys: list[AttemptKey]) -> None:
        """Look at attempts, soon."""
        for key in keys:
            if key in self._busy:
                self._again.add(key)
            elif self.work.next_step(key, self._clock.now_ms()) is not None:
                self._ready[key] = None
                self._idle.wake_one()
            else:
                self._tries.pop(key, None)
                self._requests.forget(key)
                self._retry_when_due(key)
        self._metrics.ledger.set(self.work.head)
        self._count()

    def _count(self) -> None:
        self._metrics.pending.set(len(self._ready) + len(self._busy) + len(self._waiting))

    @property
    def idle(self) -> bool:
        """Whether no work is due; attempts that wait for a retry do not count."""
        return not self._ready and not self._busy

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish the current work."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._config.gangs_at_once):
                group.create_task(self._worker(), name=f"worker {number}")
            await stop.wait()
            self._stopping = True
            self._idle.wake_all()
        for timer in self._waiting.values():
            timer.cancel()

    async def _worker(self) -> None:
        while True:
            while not self._ready and not self._stopping:
                await self._idle.wait()
            if self._stopping:
                return
            key = next(iter(self._ready))
            del self._ready[key]
            self._busy.add(key)
            try:
                await self._advance(key)
            finally:
                self._busy.discard(key)
                self._count()
            if key in self._again:
                self._again.discard(key)
                self.wake([key])

    async def _advance(self, key: AttemptKey) -> None:
        """Execute the steps of an attempt until none is due; a failed step is retried later."""
        try:
            while (step := self.work.next_step(key, self._clock.now_ms())) is not None and not self._stopping:
                await self._perform(step)
                self._tries.pop(key, None)
            self._requests.forget(key)
            self._retry_when_due(key)
        except TransientError as error:
            self._later(key, error)

    def _later(self, key: AttemptKey, error: TransientError) -> None:
        if isinstance(error, NotYetError):
            self._again_in(key, error.retry_after_s)
            return
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        self._metrics.retries.inc()
        least_s = min(error.retry_after_s, self._backoff.max_s) if tries == 1 else 0
        wait_s = max(self._backoff.pause_s(tries), least_s)
        if tries > _TRIES_QUIET:
            self._log.warning(
                "gang not handled yet", uid=key[0], attempt=key[1], tries=tries, reason=error.reason, wait_s=wait_s
            )
        self._again_in(key, wait_s)

    def _again_in(self, key: AttemptKey, wait_s: float) -> None:
        previous = self._waiting.pop(key, None)
        if previous is not None:
            previous.cancel()
        due_s = self.work.due_in_s(key, self._clock.now_ms())
        wait_s = wait_s if due_s is None else min(wait_s, due_s)
        self._waiting[key] = asyncio.get_running_loop().call_later(wait_s, self._try_again, key)

    def _try_again(self, key: AttemptKey) -> None:
        self._waiting.pop(key, None)
        self.wake([key])

    def _retry_when_due(self, key: AttemptKey) -> None:
        """Come back to an attempt with nothing to do when pods that leave it have to be gone."""
        due_s = self.work.due_in_s(key, self._clock.now_ms())
        if due_s is not None:
            self._again_in(key, due_s)

    async def _perform(self, step: Step | Clearing) -> None:
        if isinstance(step, Clearing):
            await self._clear(step)
            return
        attempt = step.attempt
        began_s = self._clock.monotonic_s()
        if step.verb != "bind":
            await self._announce(attempt)
        if step.verb == "recover":
            outcome = await self._recover(attempt)
        else:
            outcome = await (self._bind(attempt) if step.verb == "bind" else self._evict(attempt))
        if outcome is None:
            return
        is_new = attempt.outcome != outcome.state
        recovered_s = self._recovered_s(attempt, outcome)
        key = (attempt.uid, attempt.attempt)
        if key in self.work.attempts:  # otherwise it was released meanwhile, and another attempt may own the subject
            await self._publish(attempt, outcome)
        took_s = self._clock.monotonic_s() - began_s
        if recovered_s is not None:
            self._metrics.recovered.observe(recovered_s)
        if is_new:
            self._metrics.outcomes.labels(outcome.state).inc()
        self._metrics.took.observe(took_s)
        self._log.info(
            "gang handled",
            verb=step.verb,
            namespace=attempt.namespace,
            gang=attempt.name,
            attempt=attempt.attempt,
            outcome=outcome.state,
            step=outcome.step,
            bound=outcome.bound,
            failed=len(outcome.failures),
            took_ms=round(took_s * 1000, 1),
        )

    def _recovered_s(self, attempt: Attempt, outcome: OutcomeSeen) -> float | None:
        """How long a recovery took that is over with this outcome, in seconds; None if none is."""
        found = attempt.recovery
        if found is None or found.how == "mark" or outcome.done <= attempt.done or outcome.open:
            return None
        return max(self._clock.now_ms() - found.since_ms, 0) / _MS

    async def _publish(self, attempt: Attempt, outcome: OutcomeSeen) -> None:
        """Publish an outcome.

        Raises:
            TransientError: The bus did not answer.
        """
        self._faults.hit("outcome.before")
        await self._bus.publish(self._bus.subjects.fact_outcome(attempt.namespace, attempt.name), encode(outcome))
        self._faults.hit("outcome.after")
        self.work.apply_outcome(outcome)

    async def _announce(self, attempt: Attempt) -> None:
        """Publish which ranks recover before pods are deleted: new ones are theirs, whoever is away by then.

        Raises:
            TransientError: The bus did not answer.
        """
        before = self.work.outcome_of(attempt)
        open_ranks = self.work.open_ranks(attempt)
        if before is not None and before.state == "bound" and before.open != open_ranks:
            await self._publish(attempt, msgspec.structs.replace(before, open=open_ranks, at_ms=self._clock.now_ms()))

    async def _clear(self, clearing: Clearing) -> None:
        """Delete ended pods of earlier attempts of a job that starts anew.

        Raises:
            TransientError: The cluster did not answer, or refuses it.
        """
        try:
            await self._cluster.clear(clearing)
        except PoisonError as error:
            raise TransientError(error.reason) from error
        self.work.clearings.pop((clearing.uid, clearing.attempt), None)

    async def _bind(self, attempt: Attempt) -> OutcomeSeen | None:
        (run_ms, shapes), ranks = await self._requests.asked_of(attempt), self.work.to_bind(attempt)
        gang = gang_of(attempt, run_ms, to_bind=ranks, shapes=shapes)
        try:
            bound = await self._cluster.bind(gang) if ranks or not gang.recovers else BindResult(0)
        except PoisonError as error:
            bound = BindResult(0, [RankFailure(rank, error.reason) for rank in ranks])
        failures = bound.failures
        silent = len(ranks) - bound.bound - len(failures) - len(bound.waiting)
        if silent > 0:
            named = {failure.rank for failure in failures}
            rank = next(rank for rank in ranks if rank not in named)
            failures = [
                *failures,
                RankFailure(rank, f"the cluster reports no result for {pluralize(silent, 'pod')}, this one or others"),
            ]
        if gang.recovers:
            outcome = self._outcome_of_step(attempt, gang, bound, failures)
        else:
            outcome = self._outcome(attempt, bound, failures)
        await self._publish_unbound()
        if outcome is not None and outcome.state == "failed":
            await self._cluster.take_back(gang)
        return outcome

    async def _publish_unbound(self) -> None:
        """Publish what claims are not tried with again; before the outcome, with which the next decision is due.

        Raises:
            TransientError: The bus did not answer.
        """
        for fact in self._cluster.unbound_due():
            self._faults.hit("unbound.before")
            await self._bus.publish(self._bus.subjects.fact_unbound(fact.namespace, fact.name), encode(fact))
            self._faults.hit("unbound.after")
            self._cluster.note_unbound(fact)

    def _outcome(self, attempt: Attempt, bound: BindResult, failures: list[RankFailure]) -> OutcomeSeen:
        return OutcomeSeen(
            namespace=attempt.namespace,
            name=attempt.name,
            uid=attempt.uid,
            attempt=attempt.attempt,
            state="failed" if failures and not self._leaves(bound, failures) else "bound",
            bound=bound.bound,
            failures=failures[:FAILURES_REPORTED_MAX],
            ledger_seq=attempt.ledger_seq,
            at_ms=self._clock.now_ms(),
            step=attempt.taken_up,
            open=self.work.open_ranks(attempt),
            given_back=bound.given_back,
        )

    def _outcome_of_step(
        self, attempt: Attempt, gang: Gang, bound: BindResult, failures: list[RankFailure]
    ) -> OutcomeSeen | None:
        """Outcome after ranks that recover were bound, or failed; None for an attempt that has ended since."""
        before = self.work.outcome_of(attempt)
        if before is None:
            return None
        late = {*bound.waiting, *(failure.rank for failure in failures)}
        attempt.left_backups |= {one.rank: gang.steps[one.rank] for one in failures if one.rank in gang.backups}
        failures = [one for one in failures if one.rank not in gang.backups]  # the pods of these ranks run
        attempt.bound |= {rank: gang.steps[rank] for rank in gang.ranks() if rank not in late}
        known = [*self.work.failures_of(attempt), *failures]
        settled = {failure.rank for failure in known}
        # Ranks may have been released while these were bound: they are still to be bound.
        is_done = not bound.waiting and not attempt.is_moving and not attempt.unbound_backups()
        is_done = is_done and all(rank in settled or not attempt.is_unbound(rank) for rank in attempt.ranks())
        return msgspec.structs.replace(
            before,
            bound=len(attempt.ranks()) - len(known) - sum(rank not in gang.backups for rank in bound.waiting),
            failures=sorted(known, key=lambda failure: failure.rank)[:FAILURES_REPORTED_MAX],
            at_ms=self._clock.now_ms(),
            step=attempt.taken_up,
            done=gang.step if is_done else attempt.done,
            open=self.work.open_ranks(attempt),
        )

    async def _recover(self, attempt: Attempt) -> OutcomeSeen | None:
        """Delete and mark the pods that the steps of a recovery name.

        Returns:
            The outcome that says so; None before the attempt is bound: its first outcome says it too.

        Raises:
            TransientError: The cluster did not answer, or refuses it: no other component can end these pods.
        """
        now_ms = self._clock.now_ms()
        leaves, marks = leaves_of(attempt, now_ms), marks_of(attempt)
        gang = gang_of(attempt)
        held: list[RankFailure] = []
        try:
            if leaves:
                await self._request_checkpoint(attempt, gang)
                await self._cluster.remove(gang, leaves)
            if marks is not None:
                await self._cluster.mark(gang, marks.ranks, marks.kind)
        except HeldBackError as error:
            held = error.held
        except PoisonError as error:
            raise TransientError(error.reason) from error
        attempt.forced |= {rank: leave.step for rank, leave in leaves.items() if leave.at_once}
        kept = {one.rank for one in held}
        attempt.evicted |= {rank: leave.step for rank, leave in leaves.items() if leave.evicts and rank not in kept}
        attempt.held_until_ms = now_ms + round(HELD_RETRY_S * _MS) if held else 0
        before = self.work.outcome_of(attempt)
        if before is None:
            attempt.taken_up = gang.step  # otherwise once that is published
        if before is None or (held and before.held == held and before.step == gang.step):
            return None
        return msgspec.structs.replace(
            before,
            failures=self.work.failures_of(attempt),
            at_ms=self._clock.now_ms(),
            step=gang.step,
            held=held,
            open=self.work.open_ranks(attempt),
        )

    async def _request_checkpoint(self, attempt: Attempt, gang: Gang) -> None:
        """Before the first pod is deleted, ask agents to save, if the recovery asks for it.

        Raises:
            TransientError: The cluster did not answer.
        """
        if attempt.saves and attempt.recovery is not None:
            await self._cluster.request_checkpoint(gang, attempt.recovery.since_ms)

    def _leaves(self, bound: BindResult, failures: list[RankFailure]) -> bool:
        """Whether a partly bound gang is left as it is; then the outcome must list all other ranks."""
        is_left = self._config.partial == "leave" or bound.given_back
        return is_left and bound.bound > 0 and len(failures) <= FAILURES_REPORTED_MAX

    async def _evict(self, attempt: Attempt) -> OutcomeSeen:
        gang = gang_of(attempt)
        manner = manner_of_end(attempt, self._clock.now_ms())
        await self._request_checkpoint(attempt, gang)
        try:
            await self._cluster.evict(gang, reason=self._why_evict(attempt), manner=manner)
        except HeldBackError as error:
            attempt.is_forced = attempt.is_forced or manner == "evict-late"
            await self._publish_held(attempt, error.held)
            raise
        except PoisonError as error:
            # No other component can end these pods: retry, and log it.
            raise TransientError(error.reason) from error
        attempt.is_forced = attempt.is_forced or manner in {"force", "evict-late"}
        await self._cluster.take_back(gang)
        before = self.work.outcome_of(attempt)
        return OutcomeSeen(
            namespace=attempt.namespace,
            name=attempt.name,
            uid=attempt.uid,
            attempt=attempt.attempt,
            state="evicted",
            bound=before.bound if before is not None else 0,
            failures=before.failures if before is not None else [],
            ledger_seq=attempt.evict_seq,
            at_ms=self._clock.now_ms(),
            step=before.step if before is not None else 0,
        )

    async def _publish_held(self, attempt: Attempt, held: list[RankFailure]) -> None:
        """Publish which pods of an attempt that ends are held back, if that is news.

        Raises:
            TransientError: The bus did not answer.
        """
        before = self.work.outcome_of(attempt)
        if before is not None and before.held != held:
            outcome = msgspec.structs.replace(before, held=held, at_ms=self._clock.now_ms())
            await self._bus.publish(self._bus.subjects.fact_outcome(attempt.namespace, attempt.name), encode(outcome))
            self.work.apply_outcome(outcome)

    def _why_evict(self, attempt: Attempt) -> str:
        """Reason of the eviction, as a text."""
        reason = attempt.evict_reason
        if reason == "fault" and attempt.recovery is not None:
            return attempt.recovery.cause
        outcome = self.work.outcome_of(attempt)
        if reason == "bind-failed" and outcome is not None and outcome.failures:
            return f"{_EVICT_REASONS[reason]}: {outcome.failures[0].reason}"
        return _EVICT_REASONS.get(reason, reason)
