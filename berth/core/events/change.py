"""A change of a job, and the event that tells of it."""

from typing import NamedTuple

from berth.schemas.facts import JobSeen
from berth.schemas.programs.events import FINAL, JobEvent, event_id
from berth.schemas.programs.trace_ids import trace_id


class Change(NamedTuple):
    """Job, attempt and step of a change; attempt 0 is the verdict on the request."""

    namespace: str
    name: str
    uid: str
    attempt: int = 0
    step: int = 0

    def event(
        self,
        phase: str,
        *,
        job: JobSeen | None,
        at_ms: int,
        source: tuple[str, int],
        code: str = "",
        words: str = "",
        is_further: bool = False,
    ) -> JobEvent:
        """Event of the change.

        Args:
            phase: What the job is now.
            job: Newest verdict on the name, if there is one.
            at_ms: Time of the change.
            source: Where it comes from, and the sequence there.
            code: Code of the reason; empty without.
            words: Sentence about the reason.
            is_further: The phase is not new in this step, but its reason is: the id has the sequence of the source.
        """
        return JobEvent(
            id=event_id(self.uid, self.attempt, self.step, phase, source[1] if is_further else 0),
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            attempt=self.attempt,
            step=self.step,
            phase=phase,
            at_ms=at_ms,
            final=phase in FINAL,
            sentence=words,
            code=code,
            request_seq=_request_seq(job, self.uid),
            source=source[0],
            sequence=source[1],
            trace_id=trace_id(self.uid),
        )


def _request_seq(job: JobSeen | None, uid: str) -> int:
    """Sequence of the request with a uid, which has the name or was refused for it; 0 if it is unknown."""
    if job is None:
        return 0
    if job.uid == uid:
        return job.accepted_seq or job.intake_seq
    return job.rejection.intake_seq if job.rejection is not None and job.rejection.uid == uid else 0
