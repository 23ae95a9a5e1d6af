"""Gangs of a record: which to examine because of facts that came before it, and which to forget."""

from collections.abc import Container, Iterable, Mapping

from berth.core.changes import JobKey
from berth.core.state.ledger import GangRecord, LedgerFold
from berth.schemas.facts import JobSeen


def to_examine(
    gangs: Iterable[GangRecord], jobs: Mapping[JobKey, JobSeen], with_facts: Iterable[Container[JobKey]]
) -> dict[str, None]:
    """Gangs (uid) of a record that need to be examined because of facts that came before it.

    Args:
        gangs: Gangs of the record.
        jobs: Jobs by name.
        with_facts: Names of jobs with a fact about their pods, or about their outcome.
    """
    found: dict[str, None] = {}
    known = list(with_facts)
    for gang in gangs:
        key = (gang.namespace, gang.name)
        job = jobs.get(key)
        is_over = job is None or job.state != "accepted" or job.uid != gang.uid
        if is_over or any(key in names for names in known):
            found[gang.uid] = None
    return found


def forget_idle(fold: LedgerFold, gangs: Iterable[GangRecord]) -> None:
    """Forget gangs that hold nothing: a shard sees no facts of jobs, so nothing else would ever end them."""
    for gang in gangs:
        if gang.phase not in {"placed", "ending"}:
            fold.gangs.pop(gang.uid, None)
