"""Errors of Berth while one gang is decided: the gang is set aside with its class, and the others go on.

What a record says of such an error is the same on every machine and without names: so a replay sets the same gang aside.
"""

from typing import Final, NamedTuple

from berth.core.errors import brief
from berth.core.requests.gangs import Gang
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.placement import Run
from berth.schemas.refusal import Code, Refusal

INTERNAL: Final[Code] = "internal"
RETRY_MS: Final = 60_000
"""How long a gang that was set aside waits for the next try, unless something helps it before."""


class SetAside(NamedTuple):
    """An error, and what was decided when it came.

    Attributes:
        subject: The gang, as ``namespace/name``, or what is known of it.
        error: The error, for a log.
    """

    subject: str
    error: Exception


def set_aside(error: Exception, *, pods: int = 0, form: str = "", because: str = "") -> Refusal:
    """Refusal of a gang whose decision ended with an error.

    Args:
        error: The error.
        pods: Pods of the gang.
        form: Its product form.
        because: What that follows from.
    """
    return Refusal(code=INTERNAL, value=brief(error), pods_need=pods, form=form, form_because=because)


def unreadable(job: JobSeen, request: JobRequest, error: Exception, *, attempt: int) -> Gang:
    """A gang whose request cannot be made into shapes, so that it gets a verdict all the same."""
    return Gang(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        attempt=attempt,
        priority=request.priority,
        accepted_seq=job.accepted_seq,
        request_class=(),
        tasks=[task.name for task in request.tasks],
        runs=[Run(task.replicas, 0) for task in request.tasks],
        pods=sum(task.replicas for task in request.tasks),
        resource=request.resource,
        form="",
        form_because="",
        invalid=set_aside(error),
    )
