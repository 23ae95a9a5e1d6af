"""Why a queue does not let a gang in, as people read it."""

from berth.core.queues.amounts import number_of
from berth.schemas.refusal import QueueRefusal


def text_of(refusal: QueueRefusal) -> str:
    """The sentence for people."""
    name, reason = f"queue {refusal.queue}", refusal.reason
    match refusal.code:
        case "no-such-queue":
            found = "does not exist"
        case "queue-not-valid":
            found = f"is not valid: {reason}" if reason else "is not valid"
        case "queue-has-children":
            found = f"has child queues{f' ({reason})' if reason else ''}; jobs must name one of them"
        case "queue-closed":
            found = f"is {reason or 'not open'}"
        case "queue-not-for-namespace":
            found = f"is not for jobs of namespace {refusal.namespace}"
        case "too-many-pods":
            waiting = f"has {refusal.held:,} pods of jobs that wait, and this job has {refusal.asked:,}"
            found = f"{waiting}: at most {refusal.limit:,}"
        case "behind-in-queue":
            found = "serves its jobs in order (dequeueStrategy fifo), and one before this one waits"
        case _:
            return _amounts_text(refusal, name)
    return f"{name} {found}"


def _amounts_text(refusal: QueueRefusal, name: str) -> str:
    held, leaving, limit, asked = (
        number_of(refusal.dimension, amount) for amount in (refusal.held, refusal.leaving, refusal.limit, refusal.asked)
    )
    who = f"namespace {refusal.namespace} in {name}" if refusal.namespace else name
    also = f"; {', '.join(refusal.others)} is short too" if refusal.others else ""
    if refusal.code == "larger-than-capability":
        return f"the job asks for {asked} {refusal.dimension}, {who} may never hold more than {limit}{also}"
    if refusal.is_admission:
        return f"gangs of {who} need at least {held} of {limit} {refusal.dimension}; the job asks for {asked}{also}"
    aside = f" ({leaving} of them leaving)" if refusal.leaving else ""
    return f"{who} holds {held} of {limit} {refusal.dimension}{aside}; the job asks for {asked}{also}"
