"""Steering of jobs that wait: somebody holds one, releases it, or gives it another priority."""

from typing import Final

import msgspec

from berth.core.requests.gangs import priority_of
from berth.schemas.facts import JobSeen
from berth.schemas.intake import Hold, JobSteer
from berth.schemas.units import Sequence, UnixMs

_TEXT_MAX: Final = 1_000
"""Characters that are kept of who asks, and of why."""


def steering_error(wish: JobSteer, job: JobSeen, *, waits: bool) -> str:
    """Why a wish does not count for a job that is not over, as the rest of a sentence about it; empty if it counts.

    A program steers jobs of its namespaces alone, which whoever reads the request has checked: it may give a lower
    priority than the job has, and release what programs hold.

    Args:
        wish: The wish.
        job: The job.
        waits: It has no place.
    """
    if not waits and (wish.held or wish.priority is not None):
        return "has its place already: only a job that waits can be held or get another priority"
    if not wish.program:
        return ""
    if wish.held is False and job.hold is not None and not job.hold.program:
        return f"is held by {job.hold.by}: only an operator may release it"
    now = priority_of(job, job.request) if job.request is not None else 0
    if wish.priority is not None and wish.priority > now:
        return f"has priority {now}: a program may only lower it, an operator may set {wish.priority}"
    return ""


def steered(wish: JobSteer, job: JobSeen, *, intake_seq: Sequence, after_seq: Sequence, at_ms: UnixMs) -> JobSeen:
    """Verdict on a wish that counts.

    Args:
        wish: The wish.
        job: Verdict on the job before.
        intake_seq: Where the wish is stored.
        after_seq: INTAKE sequence of the previous verdict.
        at_ms: The time.
    """
    hold = job.hold
    if wish.held is not None:
        hold = Hold(wish.by[:_TEXT_MAX], wish.reason[:_TEXT_MAX], at_ms, wish.program) if wish.held else None
    priority = job.priority if wish.priority is None else wish.priority
    return msgspec.structs.replace(job, intake_seq=intake_seq, after_seq=after_seq, hold=hold, priority=priority)
