"""Admission of a request: it is accepted or rejected, or it updates the job that has the name.

A verdict is a fact. A job that waits or still has pods keeps its name: a request that arrives in the meantime is
recorded as a rejection in the fact of that job.
"""

from typing import Final

import msgspec

from berth.core.requests.bounds import TOO_LARGE, above_bounds
from berth.core.requests.job_validation import validate
from berth.core.requests.key_spelling import request_warnings
from berth.core.requests.steering import steered, steering_error
from berth.core.state.ledger import GangRecord
from berth.schemas.facts import JobSeen, Rejection
from berth.schemas.intake import FROM_PODS, PREEMPTION_KEYS, JobCancel, JobRequest, JobSteer
from berth.schemas.ledger import WITHDRAWN, Settings
from berth.schemas.refusal import Refusal

RECORD_BYTES_MAX: Final = 4_000_000
"""Most bytes of one gang's placement in a record."""
_BYTES_A_POD: Final = 64
_REASON_MAX: Final = 1_000
"""Characters that are kept of why a job is cancelled."""


class Holder(msgspec.Struct, frozen=True, gc=False):
    """Job that has a name now."""

    job: JobSeen | None = None
    is_over: bool = True
    """The job has ended; its name is free."""
    is_placed: bool = False
    namesake: tuple[str, str] | None = None
    """Another job (namespace, name) with the uid of the request."""


def holder_of(job: JobSeen | None, gang: GangRecord | None) -> Holder:
    """Job that has a name.

    Args:
        job: Fact of the name, if there is one.
        gang: State of that job in the ledger.
    """
    if job is None:
        return Holder()
    if gang is None or gang.phase == "waiting":
        return Holder(job, is_over=job.state != "accepted")
    return Holder(job, is_over=gang.is_over, is_placed=not gang.is_over)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Place and time at which the request was stored."""

    intake_seq: int
    after_seq: int
    """INTAKE sequence of the previous verdict."""
    at_ms: int


def uid_from(intake_seq: int) -> str:
    """Uid for a request without one."""
    return f"intake-{intake_seq}"


def admit(
    request: JobRequest, receipt: Receipt, holder: Holder, settings: Settings, other: Refusal | None = None
) -> JobSeen:
    """Verdict on a job request.

    Args:
        request: The request.
        receipt: Where and when it was stored.
        holder: Job that has its name now.
        settings: Settings of the epoch.
        other: Its refusal for another reason than what it says: how long it is, or how many wait; None for none. A
            request that is refused is not kept then, whatever it is refused for.
    """
    uid = request.uid or uid_from(receipt.intake_seq)
    known = holder.job
    if known is not None and known.uid == uid and known.state != "rejected":
        return _update(request, receipt, holder, known, settings, other)
    if known is not None and not holder.is_over:
        return _rejected_beside(known, uid, receipt, _name_in_use(request, known))
    if holder.namesake is not None:
        refusal: Refusal | None = _uid_in_use(request, uid, holder.namesake)
        uid = uid_from(receipt.intake_seq)  # the uid is not its own
    else:
        refusal = _refusal_of(request, settings) or other
    is_kept = refusal is None or (other is None and refusal.code != TOO_LARGE)  # the rest is bounded only by these
    return JobSeen(
        namespace=request.namespace,
        name=request.name,
        uid=uid,
        state="accepted" if refusal is None else "rejected",
        intake_seq=receipt.intake_seq,
        accepted_seq=receipt.intake_seq if refusal is None else 0,
        at_ms=receipt.at_ms,
        request=request if is_kept else None,
        refusal=refusal,
        after_seq=receipt.after_seq,
        warnings=request_warnings(request) if is_kept else [],
    )


def cancel(wish: JobCancel, receipt: Receipt, holder: Holder) -> JobSeen | None:
    """Verdict on the cancellation of a job; None if there is nothing to cancel."""
    known = holder.job
    if known is None or known.state != "accepted" or holder.is_over or wish.uid not in {"", known.uid}:
        return None
    return msgspec.structs.replace(
        known,
        state="cancelled",
        intake_seq=receipt.intake_seq,
        after_seq=receipt.after_seq,
        at_ms=receipt.at_ms,
        reason=wish.reason[:_REASON_MAX],
        rejection=None,
        inferred=wish.inferred,
    )


def steer(wish: JobSteer, receipt: Receipt, holder: Holder) -> JobSeen | None:
    """Verdict on a hold, a release or a new priority; None if it does not count."""
    known = holder.job
    if known is None or known.state != "accepted" or holder.is_over or wish.uid != known.uid:
        return None
    if steering_error(wish, known, waits=not holder.is_placed):
        return None
    return steered(wish, known, intake_seq=receipt.intake_seq, after_seq=receipt.after_seq, at_ms=receipt.at_ms)


def end_of_cancelled(job: JobSeen, uid: str) -> str:
    """Why an attempt of a job ends that is cancelled, or whose name another job has.

    What is seen of its pods may have cancelled it, also if they are requested anew under its name.

    Args:
        job: The job that has the name.
        uid: Uid of the job of the attempt.
    """
    if job.uid == uid:
        return WITHDRAWN if job.inferred else "cancelled"
    return WITHDRAWN if job.request is not None and job.request.origin == FROM_PODS else "cancelled"


def _update(
    request: JobRequest, receipt: Receipt, holder: Holder, known: JobSeen, settings: Settings, other: Refusal | None
) -> JobSeen:
    """Verdict on another request of the job with the name: an equal one changes nothing, another one replaces it.

    Of a job that is placed only queue, priority, what it says of preemption and whether its pods have a controller may
    change. Queue and priority count from its next attempt on: what it holds is charged to the queue of the record that
    placed it.
    """
    same = msgspec.structs.replace(known, intake_seq=receipt.intake_seq, after_seq=receipt.after_seq)
    if request == known.request or known.state != "accepted" or holder.is_over:
        return same
    is_moved = known.request is not None and _lasting(request) == _lasting(known.request)
    if holder.is_placed and not is_moved:
        refusal = Refusal(
            code="invalid-request",
            field="uid",
            value=known.uid,
            expected="the request as it was placed, but for queue, priority and preemption, or another uid once it has ended",
        )
        return _rejected_beside(known, known.uid, receipt, refusal)
    refusal_of_new = _refusal_of(request, settings) or other
    if refusal_of_new is not None:
        return _rejected_beside(known, known.uid, receipt, refusal_of_new)
    return msgspec.structs.replace(same, request=request, rejection=None, warnings=request_warnings(request))


def _lasting(request: JobRequest) -> JobRequest:
    """A request without what of it may change while its job is placed."""
    labels, annotations = (
        {key: value for key, value in given.items() if key not in PREEMPTION_KEYS}
        for given in (request.labels, request.annotations)
    )
    return msgspec.structs.replace(
        request, queue="", priority=0, preemption=None, is_unowned=False, labels=labels, annotations=annotations
    )


def _rejected_beside(known: JobSeen, uid: str, receipt: Receipt, refusal: Refusal) -> JobSeen:
    return msgspec.structs.replace(
        known,
        intake_seq=receipt.intake_seq,
        after_seq=receipt.after_seq,
        rejection=Rejection(uid, receipt.intake_seq, refusal, receipt.at_ms),
    )


def _name_in_use(request: JobRequest, known: JobSeen) -> Refusal:
    return Refusal(
        code="name-in-use",
        field="name",
        value=f"{request.namespace}/{request.name}",
        expected=f"another name, or the end of the job that has it (uid {known.uid})",
    )


def _uid_in_use(request: JobRequest, uid: str, namesake: tuple[str, str]) -> Refusal:
    is_near = namesake[0] == request.namespace  # who submits to a namespace may not read the names of another
    owner = f"the job {'/'.join(namesake)}" if is_near else "a job of another namespace"
    return Refusal(
        code="invalid-request",
        field="uid",
        value=uid,
        expected=f"another uid: {owner} has this one",
    )


def _refusal_of(request: JobRequest, settings: Settings) -> Refusal | None:
    above = above_bounds(request)
    if above is not None:
        return above
    valid = validate(request, settings)
    if isinstance(valid, Refusal):
        return valid
    size = sum(task.replicas * (_BYTES_A_POD + task.chips) for task in request.tasks)
    if size > RECORD_BYTES_MAX:
        pods = sum(task.replicas for task in request.tasks)
        return Refusal(
            code="larger-than-round",
            field="tasks",
            value=f"{pods} pods",
            expected=f"a gang whose placement takes at most {RECORD_BYTES_MAX} bytes; this one takes {size}",
        )
    return None
