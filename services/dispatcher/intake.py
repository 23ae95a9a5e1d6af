"""Intake: turns job requests into facts.

Requests are judged in the order in which they were stored. Each verdict names the previous one, so that a reader
detects a missing one. After an unclear write the intake restarts after the last verdict in the facts.
"""

import asyncio
import functools
import math

import msgspec

from berth.core.errors import brief
from berth.core.requests.bounds import above_bytes
from berth.core.requests.dead_reasons import INTERNAL, UNSTORABLE
from berth.core.requests.intake_messages import NoRequestError, read_request
from berth.core.requests.waiting_jobs import WaitingJobs
from berth.core.state.admission import Holder, Receipt, admit, cancel, holder_of, steer, uid_from
from berth.core.state.cell import JobKey, State
from berth.core.state.ledger import GangRecord
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.writing import dead_letter
from berth.runtime.errors import DEFAULT_RETRY_AFTER_S, PoisonError, ShellError, TransientError
from berth.runtime.feeds import Feed
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobCancel, JobSteer
from berth.schemas.ledger import Settings
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.metrics import DispatcherMetrics


class Intake:
    """Requests of a cell, from the first one without a verdict."""

    def __init__(
        self, bus: Bus, clock: Clock, state: State, arrived: asyncio.Event, instruments: Instruments[DispatcherMetrics]
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._state = state
        self._arrived = arrived
        self._faults = instruments.faults
        self._log = instruments.log
        self._feed = Feed(arrived)
        self._sent: dict[JobKey, JobSeen] = {}
        """Verdicts that have not come back as facts yet."""
        self._sent_names: dict[str, JobKey] = {}
        """Jobs by the uids that those verdicts assign or confirm."""
        self._uncovered: dict[JobKey, JobSeen] = {}
        """Verdicts of others that are covered again: what counts is on its way."""
        self._waiting = WaitingJobs()
        """Jobs that wait, with the verdicts that have not come back."""
        self._cancel_seq = 0
        """INTAKE sequence of the last accepted cancellation."""
        self._last_seq = 0
        self._unstorable: dict[int, str] = {}
        """Requests whose verdict can never be stored, by INTAKE sequence, with the reason; they are dead letters."""
        self._broken = ""
        self._restarted_s = -math.inf
        self.judged = 0
        self.dead = 0

    async def start(self) -> None:
        """Continue after the last verdict in the facts."""
        if self._broken:
            self._restarted_s = self._clock.monotonic_s()
        stored = await self._bus.state(StreamName.INTAKE)
        self._last_seq = self._state.intake_seq
        self._unstorable = {seq: reason for seq, reason in self._unstorable.items() if seq > self._last_seq}
        self._sent.clear()
        self._sent_names.clear()
        self._uncovered.clear()
        self._waiting.replace((key, job, self._phase_of(job)) for key, job in self._state.jobs.items())
        self._cancel_seq = 0
        self._broken = ""
        self._feed = Feed(self._arrived)
        start_seq = self._last_seq + 1
        # Requests are kept by age. One that expired before its verdict is lost to every reader: the intake continues.
        self._feed.start(
            self._bus, StreamName.INTAKE, start_seq=max(start_seq, stored.first_seq), created=stored.created
        )

    async def stop(self) -> None:
        """Stop reading requests."""
        await self._feed.stop()

    @property
    def needs_restart(self) -> str:
        """Why the intake must restart; empty without a reason, and for a moment after a restart that did not help."""
        return "" if self.is_paused else self._broken

    @property
    def is_paused(self) -> bool:
        """Whether it must restart, and did so a moment ago."""
        return bool(self._broken) and self._clock.monotonic_s() - self._restarted_s < DEFAULT_RETRY_AFTER_S

    @property
    def has_work(self) -> bool:
        """Whether requests wait for a verdict, or the intake for its restart."""
        return bool(self.needs_restart) if self._broken else not self._feed.is_empty

    async def step(self, settings: Settings, *, batch_max: int) -> int:
        """Judge up to ``batch_max`` of the received requests; returns their number."""
        if self._broken:
            return 0
        count = 0
        for stored in self._feed.take():
            await self._judge(stored, settings)
            count += 1
            if count == batch_max or self._broken:
                break
        self.judged += count
        return count

    async def uncover(self) -> None:
        """Store verdicts again that count, and behind which a dispatcher that leads no more has stored its own.

        That one is void for a reader of all facts, but it is the newest on its subject: a process that starts from the
        newest facts would take a job for another one that had its name before.
        """
        covered = self._state.covered
        if len(self._uncovered) > len(covered):
            self._uncovered = {key: stale for key, stale in self._uncovered.items() if covered.get(key) is stale}
        for key, stale in list(covered.items()):
            if key in self._sent or self._uncovered.get(key) is stale:
                continue
            job = self._state.jobs.get(key)
            if job is None:  # the name is free; without a uid this ends no job that gets the name meanwhile
                job = JobSeen(*key, "", "tombstone", self._state.intake_seq, at_ms=stale.at_ms)
            self._faults.hit("fact.before")
            try:
                future = await self._bus.submit_wait(self._bus.subjects.fact_job(*key), encode(job))
            except (TransientError, PoisonError):
                return  # the next turn tries again
            self._uncovered[key] = stale
            self._log.warning("verdict of another dispatcher is behind the one that counts", job="/".join(key))
            future.add_done_callback(functools.partial(self._on_uncovered, key))

    def _on_uncovered(self, key: JobKey, future: "asyncio.Future[int]") -> None:
        if not future.cancelled() and future.exception() is not None:
            self._uncovered.pop(key, None)

    def has_sent(self, key: JobKey) -> bool:
        """Whether a verdict on a name is being stored."""
        return key in self._sent

    @property
    def awaits_cancel(self) -> bool:
        """Whether an accepted cancellation has not come back as a fact: until then a cancelled job could be placed."""
        return self._cancel_seq > self._state.intake_seq and not self._broken

    def echoed(self, key: JobKey) -> None:
        """Take a fact about a job, which may be a verdict that came back."""
        sent = self._sent.get(key)
        if sent is not None and sent.intake_seq <= self._state.intake_seq:
            self._forget_sent(key)
            seen = self._state.jobs.get(key)
            # Note was taken of what came back when it was sent, and of each record since.
            if seen is not None and (seen.intake_seq, seen.state, seen.uid) == (sent.intake_seq, sent.state, sent.uid):
                return
        self.touch(key)

    def touch(self, key: JobKey) -> None:
        """Take note of a job that may wait, or not wait any more."""
        job = self._sent.get(key) or self._state.jobs.get(key)
        self._waiting.note(key, job, self._phase_of(job))

    def _gang_of(self, job: JobSeen | None) -> GangRecord | None:
        return self._state.fold.gangs.get(job.uid) if job is not None else None

    def _phase_of(self, job: JobSeen | None) -> str:
        gang = self._gang_of(job)
        return gang.phase if gang is not None else ""

    def _note_sent(self, key: JobKey, verdict: JobSeen) -> None:
        """Note the verdict on a name that is being stored; it replaces the previous one."""
        self._forget_sent(key)
        self._sent[key] = verdict
        if verdict.state != "rejected":
            self._sent_names[verdict.uid] = key
        self._waiting.note(key, verdict, self._phase_of(verdict))

    def _forget_sent(self, key: JobKey) -> None:
        """Forget the verdict on a name that was being stored, if any."""
        before = self._sent.pop(key, None)
        if before is not None and self._sent_names.get(before.uid) == key:
            del self._sent_names[before.uid]

    async def _judge(self, stored: Stored, settings: Settings) -> None:
        if stored.sequence in self._unstorable:
            await self._dead_letter(stored, self._unstorable[stored.sequence], UNSTORABLE)
            return
        try:
            verdict = self._verdict(stored, settings)
        except NoRequestError as error:
            await self._dead_letter(stored, str(error), error.code)
            return
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the other requests must be judged
            self._log.error("request could not be judged", subject=stored.subject, exc_info=error)
            await self._dead_letter(stored, f"an error of Berth: {brief(error)}", INTERNAL)
            return
        if verdict is None:
            return
        key = (verdict.namespace, verdict.name)
        self._note_sent(key, verdict)
        if verdict.state == "cancelled":
            self._cancel_seq = stored.sequence
        self._last_seq = stored.sequence
        self._faults.hit("fact.before")
        try:
            future = await self._bus.submit_wait(self._bus.subjects.fact_job(*key), encode(verdict))
        except (TransientError, PoisonError) as error:
            self._not_stored(stored.sequence, error)
            return
        future.add_done_callback(functools.partial(self._on_stored, stored.sequence))

    async def _dead_letter(self, stored: Stored, reason: str, code: str) -> None:
        self._faults.hit("dead.before")
        try:
            await dead_letter(self._bus, self._clock, StreamName.INTAKE, stored, reason, code=code, log=self._log)
        except TransientError as error:
            self._break(error.reason)
            return
        self._faults.hit("dead.after")
        self.dead += 1

    def _verdict(self, stored: Stored, settings: Settings) -> JobSeen | None:
        """Verdict on a stored request; None where no answer is needed.

        Raises:
            NoRequestError: It is not a request, or is on the subject of another job.
        """
        message = read_request(self._bus.subjects, stored.subject, stored.data)
        receipt = Receipt(stored.sequence, self._last_seq, self._clock.now_ms())
        key = (message.namespace, message.name)
        holder = self._holder(key)
        if isinstance(message, JobCancel):
            return cancel(message, receipt, holder)
        if isinstance(message, JobSteer):
            return steer(message, receipt, holder)
        owner = self._owner_of(message.uid or uid_from(stored.sequence))
        if owner is not None and owner != key:
            holder = msgspec.structs.replace(holder, namesake=owner)
        other = above_bytes(len(stored.data)) or self._waiting.refusal_of(message, settings)
        return admit(message, receipt, holder, settings, other)

    def _holder(self, key: JobKey) -> Holder:
        sent = self._sent.get(key)
        job = sent if sent is not None else self._state.jobs.get(key)
        return holder_of(job, self._gang_of(job))

    def _owner_of(self, uid: str) -> JobKey | None:
        """Job that has a uid, or gets it with a pending verdict."""
        owner = self._sent_names.get(uid)
        return owner if owner is not None else self._state.name_of.get(uid)

    def _on_stored(self, sequence: int, future: "asyncio.Future[int]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._faults.hit("fact.after")
        elif isinstance(error, ShellError):
            self._not_stored(sequence, error)
        else:
            raise error

    def _not_stored(self, sequence: int, error: ShellError) -> None:
        if isinstance(error, PoisonError):
            self._unstorable[sequence] = str(error)
            self._restarted_s = -math.inf  # a restart helps: it becomes a dead letter, and others wait behind it
        self._break(str(error))

    def _break(self, reason: str) -> None:
        if not self._broken:
            self._log.warning("verdict not stored, reading the intake again", reason=reason)
        self._broken = reason or "unknown"
        self._arrived.set()
