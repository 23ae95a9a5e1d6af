"""Changes of jobs that programs ask for: what they wish, or why that cannot be."""

from berth.core.requests.steering import steering_error
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobSteer
from berth.schemas.programs.replies import JobState
from berth.schemas.programs.requests import UpdateRequest
from berth.schemas.units import UnixMs
from berth.services.api.job_list import OVER
from berth.services.api.request_errors import RequestError


def wish_of(asked: UpdateRequest, job: JobState, known: JobSeen | None, identity: str, now_ms: UnixMs) -> JobSteer:
    """What a program wishes, as it is stored for the dispatcher, which judges it again.

    Args:
        asked: The request.
        job: The job.
        known: Verdict on it, if there is one.
        identity: The program; empty where nobody has an identity.
        now_ms: The time.

    Raises:
        RequestError: The job cannot be changed so.
    """
    name = f"{asked.namespace}/{asked.name}"
    if job.phase in OVER:
        raise RequestError("name", name, f"a job that is not over; it is {job.phase}", code="over")
    if known is None or known.uid != job.uid:
        raise RequestError("name", name, "a job that was accepted; repeat it soon", code="conflict")
    wish = JobSteer(
        asked.namespace,
        asked.name,
        job.uid,
        held=asked.change.held,
        priority=asked.change.priority,
        by=f"program {identity}" if identity else "a program",
        reason=asked.change.reason,
        created_at_ms=now_ms,
        program=identity,
    )
    error = steering_error(wish, known, waits=job.phase == "waiting")
    if error:
        raise RequestError("change", "not possible", f"another: {name} {error}", code="conflict")
    return wish
