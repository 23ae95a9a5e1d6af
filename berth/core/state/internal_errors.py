"""Internal errors while one gang is decided: the gang and its request class are set aside, and the others are decided.

The record of such an error is the same on every machine and contains no names, so that a replay sets the same gang
aside.
"""

from typing import Final, NamedTuple

from berth.core.errors import brief
from berth.core.gangs import Gang
from berth.core.requests.gangs import accepted_of, is_fragile, priority_of
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.placement import Run
from berth.schemas.refusal import INTERNAL, Refusal

RETRY_MS: Final = 60_000
"""How long a gang that is set aside waits for the next try, in milliseconds, unless an event helps it before."""


class SetAside(NamedTuple):
    """An error, and the subject of the decision.

    Attributes:
        subject: The gang, as ``namespace/name``, or what is known of it.
        error: The error, for the log.
    """

    subject: str
    error: Exception


def set_aside(error: Exception, *, pods: int = 0, form: str = "", because: str = "") -> Refusal:
    """Refusal of a gang whose decision failed with an error.

    Args:
        error: The error.
        pods: Number of pods of the gang.
        form: Its product form.
        because: Reason for the form.
    """
    return Refusal(code=INTERNAL, value=brief(error), pods_need=pods, form=form, form_because=because)


def unreadable(job: JobSeen, request: JobRequest, error: Exception, *, attempt: int) -> Gang:
    """Gang of a request that cannot be converted to shapes, so that it gets a verdict nevertheless."""
    return Gang(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        attempt=attempt,
        priority=priority_of(job, request),
        accepted_seq=accepted_of(job, request),
        is_fragile=is_fragile(request),
        request_class=(),
        tasks=[task.name for task in request.tasks],
        runs=[Run(task.replicas, 0) for task in request.tasks],
        pods=sum(task.replicas for task in request.tasks),
        resource=request.resource,
        form="",
        form_because="",
        invalid=set_aside(error),
    )
