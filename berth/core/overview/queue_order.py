"""Order of jobs in lists: those that wait in the order in which the dispatcher tries to place them."""

from typing import Final

from berth.schemas.intake import rank_of
from berth.schemas.status import JobStatus

QueueKey = tuple[int, bool, int, int, str, str, str]
_HELD: Final = 1 << 40
"""Rank of jobs that are held: behind those of every priority."""
_PLACED: Final = frozenset({"placed", "bound", "running", "ending"})


def queue_key(status: JobStatus) -> QueueKey:
    """Sort key: jobs that wait, in the order of the queue; then those with a place, and those that are over, likewise.

    The order of those that wait is that of gangs (``Gang.order``), with jobs without chips in a queue of their own.
    Those that are held come last in it.
    """
    stage = 0 if status.phase == "waiting" else 1 if status.phase in _PLACED else 2
    rank = _HELD if status.is_held else rank_of(status.priority, is_fragile=status.is_fragile)
    return (stage, status.is_plain, rank, status.accepted_seq, status.uid, status.namespace, status.name)
