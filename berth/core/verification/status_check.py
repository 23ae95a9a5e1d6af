"""Statuses of jobs, compared with what facts and ledger say."""

from typing import Final

from berth.core.explain.job_status import status_of
from berth.core.state.cell import JobKey, State
from berth.core.verification.findings import REPAIR, Finding
from berth.schemas.status import JobStatus

STATUS: Final = "STATUS"
OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
_REVIEWED: Final = ("uid", "phase", "attempt", "ledger_seq")
"""Fields by which a dispatcher that begins to lead sees that a status is to be written again."""


def expected_status(state: State, key: JobKey, stored: JobStatus | None) -> JobStatus | None:
    """What the status of a job must be; None if none must be there.

    Args:
        state: The cell.
        key: The job.
        stored: Its stored status: why it does not restart is not in the ledger.
    """
    job = state.jobs.get(key)
    if job is None or job.state == "tombstone":
        return None
    held = stored.restart_held if stored is not None else ""
    return status_of(state, key, at_ms=stored.at_ms if stored is not None else 0, restart_held=held)


def difference(stored: JobStatus | None, wanted: JobStatus | None) -> str:
    """In which field a stored status is wrong; empty if it is right.

    The status of a job that is over stays when the job is forgotten.
    """
    if wanted is None:
        return "" if stored is None or stored.phase in OVER else "phase"
    if stored is None:
        return "uid"
    fields = (*_REVIEWED, "placement")
    return next((name for name in fields if getattr(stored, name) != getattr(wanted, name)), "")


def status_finding(
    key: JobKey, sequence: int, stored: JobStatus | None, wanted: JobStatus | None, *, is_led: bool
) -> Finding:
    """Finding about a status that is wrong.

    Args:
        key: The job.
        sequence: Of the stored message; 0 without one.
        stored: The status.
        wanted: What it must be.
        is_led: Whether a dispatcher leads, which should have written it.
    """
    name = "/".join(key)
    field = difference(stored, wanted)
    if stored is None:
        return _finding("missing-status", 0, name, "the job has no status", is_late=not is_led)
    if wanted is None:
        text = f"it says that the job is {stored.phase}, but the ledger knows no such job"
        return _finding("unknown-job", sequence, name, text)
    said, right = getattr(stored, field), getattr(wanted, field)
    words = "its places are not those of the ledger"
    if field != "placement":
        words = f"its {field} is {said!r}, the ledger says {right!r}"
    return _finding("wrong-status", sequence, name, words, is_late=not is_led and field in _REVIEWED)


def _finding(code: str, sequence: int, name: str, text: str, *, is_late: bool = False) -> Finding:
    if is_late:
        return Finding(code, STATUS, sequence, sequence, name, f"{text}; a dispatcher writes it when it starts")
    return Finding(code, STATUS, sequence, sequence, name, f"{text}; users and the inventory read it", REPAIR)
