"""Which facts speak of what is over: nothing is left that a later reader would need them for."""

from typing import Final

from berth.core.changes import JobKey
from berth.core.state.cell import State
from berth.core.state.holdings.pod_phases import ENDED
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen, PodsSeen
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.usage_facts import NamespaceSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen

_OF_OBJECTS: Final = (GroupSeen, NamespaceSeen, ClaimSeen, VolumeSeen, StorageSeen)
_KINDS: Final = {kind.KIND: kind for kind in (MembersSeen, PodsSeen, OutcomeSeen, ReplacementsSeen, *_OF_OBJECTS)}


def is_over(state: State, data: bytes) -> bool:
    """Whether the latest fact of a subject says only that something is gone, or is about a job that is.

    A uid is never accepted again for what is over, and a name that is used again has newer facts: so a fact that is
    over stays over. Facts of kinds that name no job and no object, and those that do not decode, are never over.
    Verdicts on requests are a matter of :func:`ended_name`.

    Args:
        state: The cell.
        data: The fact.
    """
    try:
        envelope = open_envelope(data)
        kind = _KINDS.get(envelope.kind)
        fact = body_of(envelope, kind) if kind is not None else None
    except DecodeError:
        return False
    match fact:
        case GroupSeen() | NamespaceSeen() | ClaimSeen() | VolumeSeen() | StorageSeen():
            return fact.gone
        case MembersSeen():
            return not has_members(fact)
        case ReplacementsSeen():
            return not (fact.ranks or fact.backups)
        case PodsSeen() | OutcomeSeen():
            return _is_of_none(state, fact)
        case _:
            return False


def ended_name(state: State, data: bytes) -> JobKey | None:
    """Name that a job gave up, if a fact says so and is not the one about the newest request; None otherwise.

    The fact about the newest request tells how far requests were judged.
    """
    try:
        envelope = open_envelope(data)
        if envelope.kind != JobSeen.KIND:
            return None
        job = body_of(envelope, JobSeen)
    except DecodeError:
        return None
    key = (job.namespace, job.name)
    is_ended = job.state == "tombstone" and job.intake_seq < state.intake_seq and key not in state.jobs
    return key if is_ended else None


def has_members(fact: MembersSeen) -> bool:
    """Whether pods of a job exist, or wait: then what became of the job must be known."""
    return bool(fact.pods or fact.hold)


def _is_of_none(state: State, fact: PodsSeen | OutcomeSeen) -> bool:
    """Whether no job and no chips are left of what pods or the binder reported."""
    if (fact.uid, fact.attempt) in state.fold.holdings or fact.uid in state.fold.held:
        return False
    if isinstance(fact, PodsSeen):
        is_nameless = not fact.phase or (fact.namespace, fact.gang) not in state.jobs
        return is_nameless and all(phase in ENDED for phase in fact.phase)
    job = state.jobs.get((fact.namespace, fact.name))
    return (job is None or job.uid != fact.uid) and fact.uid not in state.fold.gangs
