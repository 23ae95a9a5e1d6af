"""Events of jobs, derived while facts and records are applied to a state.

An event follows from one message alone, a verdict on a request, a record of the ledger or a fact about pods, and from
what was decided before. So the same log gives the same events with the same ids, from its beginning or from any
snapshot, and however facts and records arrive between one another. Only their order differs between jobs.

A change may be derived twice, for instance if pods stop and run again within a step: the id is then the same, and the
publisher leaves the second one out.
"""

from typing import Final

from berth.core.changes import JobKey
from berth.core.events.change import Change
from berth.core.events.round_events import GangBefore, round_events
from berth.core.explain.refusal_text import sentence
from berth.core.state.cell import AppliedFact, State
from berth.core.state.ledger import Folded
from berth.schemas.chain import Link
from berth.schemas.columns import unpack
from berth.schemas.envelope import DecodeError, open_envelope
from berth.schemas.facts import JobSeen, OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.programs.events import JobEvent
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import name_parts

_KINDS: Final = frozenset({JobSeen.KIND, OutcomeSeen.KIND, PodsSeen.KIND})


class JobEvents:
    """Applies facts and records to a state, and derives the events of jobs.

    Args:
        state: The state; nothing else may apply messages to it.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def apply_fact(self, subject: str, sequence: int, data: bytes) -> tuple[AppliedFact, list[JobEvent]]:
        """Apply a fact; see :meth:`State.apply_fact`.

        Returns:
            What it changed, and its events, in order.
        """
        key = _job_of(subject, data)
        if key is None:
            return self._state.apply_fact(subject, sequence, data), []
        state = self._state
        before = (state.jobs.get(key), state.outcomes.get(key), state.pods.get(key))
        applied = state.apply_fact(subject, sequence, data)
        job, outcome, pods = state.jobs.get(key), state.outcomes.get(key), state.pods.get(key)
        found: list[JobEvent] = []
        if job is not None and job is not before[0]:
            found += self._job(before[0], job, sequence)
        if outcome is not None and outcome is not before[1]:
            found += self._outcome(before[1], outcome, sequence)
        if pods is not None and pods is not before[2]:
            found += self._pods(before[2], pods, sequence)
        return applied, found

    def apply_link(self, link: Link) -> tuple[Folded, list[JobEvent]]:
        """Apply a message of the ledger; see :meth:`State.apply_link`.

        Returns:
            What it changed, and its events, in order.

        Raises:
            LedgerBrokenError: It breaks a rule of the ledger.
        """
        state = self._state
        record = state.fold.round_of(link)
        if record is None:
            return state.apply_link(link), []
        uids = [one.uid for one in record.verdicts]
        uids += [one.uid for one in record.recoveries]
        uids += [one.uid for one in record.evictions]
        uids += [one.uid for one in record.releases]
        before = {uid: GangBefore.of(gang) for uid in uids if (gang := state.fold.gangs.get(uid)) is not None}
        folded = state.apply_link(link, record)
        return folded, round_events(state, record, link.sequence, before)

    def _job(self, before: JobSeen | None, job: JobSeen, sequence: int) -> list[JobEvent]:
        found: list[JobEvent] = []
        is_new = before is None or before.uid != job.uid
        about = Change(job.namespace, job.name, job.uid)
        source = ("facts", sequence)
        if job.state == "accepted" and is_new:
            found.append(about.event("accepted", job=job, at_ms=job.at_ms, source=source))
        elif job.state == "rejected" and is_new and job.refusal is not None:
            found.append(_rejected(about, job, job.refusal, job.at_ms, sequence))
        elif job.state == "cancelled" and before is not None and before.state == "accepted" and not is_new:
            gang = self._state.fold.gangs.get(job.uid)
            if gang is None or gang.phase == "waiting":  # the end of one with pods is in the ledger
                last = about._replace(attempt=gang.attempt if gang is not None else 1)
                found.append(last.event("cancelled", job=job, at_ms=job.at_ms, source=source, words=job.reason))
        refused = job.rejection
        known = before.rejection if before is not None and not is_new else None
        if refused is not None and refused != known and refused.uid != job.uid:
            other = about._replace(uid=refused.uid)
            found.append(_rejected(other, job, refused.refusal, refused.at_ms, sequence))
        return found

    def _outcome(self, before: OutcomeSeen | None, outcome: OutcomeSeen, sequence: int) -> list[JobEvent]:
        if outcome.state != "bound" or (before is not None and _bound(before) == _bound(outcome)):
            return []
        about = Change(outcome.namespace, outcome.name, outcome.uid, outcome.attempt, outcome.done)
        return [self._seen(about, "bound", outcome.at_ms, sequence)]

    def _pods(self, before: PodsSeen | None, pods: PodsSeen, sequence: int) -> list[JobEvent]:
        step = _running_step(pods)
        is_same = before is not None and (before.uid, before.attempt) == (pods.uid, pods.attempt)
        if pods.foreign or step < 0 or (before is not None and is_same and _running_step(before) == step):
            return []
        about = Change(pods.namespace, pods.gang, pods.uid, pods.attempt, step)
        return [self._seen(about, "running", pods.at_ms, sequence)]

    def _seen(self, about: Change, phase: str, at_ms: int, sequence: int) -> JobEvent:
        job = self._state.jobs.get((about.namespace, about.name))
        return about.event(phase, job=job, at_ms=at_ms, source=("facts", sequence))


def _rejected(about: Change, job: JobSeen, refusal: Refusal, at_ms: int, sequence: int) -> JobEvent:
    words, source = sentence(refusal), ("facts", sequence)
    return about.event("rejected", job=job, at_ms=at_ms, source=source, code=refusal.code, words=words)


def _job_of(subject: str, data: bytes) -> JobKey | None:
    """Job that a fact is about, if events come of its kind."""
    try:
        if open_envelope(data).kind not in _KINDS:
            return None
        namespace, name = name_parts(subject, 2)
    except (DecodeError, ValueError):
        return None
    return namespace, name


def _bound(outcome: OutcomeSeen) -> tuple[object, ...]:
    return outcome.uid, outcome.attempt, outcome.state, outcome.done


def _running_step(pods: PodsSeen) -> int:
    """Newest step of which a pod runs; -1 if none runs."""
    steps = unpack(pods.steps, 4) if pods.steps else [0] * len(pods.phase)
    newest = max(steps, default=0)
    running = [step for step, phase in zip(steps, pods.phase, strict=False) if phase == PodPhase.RUNNING]
    return newest if newest in running else -1
