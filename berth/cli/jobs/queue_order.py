"""Order of jobs in lists, and their positions in the queue."""

from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

from berth.cli.selection import sorted_by
from berth.core.overview.queue_order import queue_key
from berth.schemas.status import JobStatus, Phase

JobKey = tuple[str, str]
"""(namespace, name)"""
PHASES: Final[tuple[str, ...]] = get_args(Phase)
"""All phases, in the order in which a job has them."""


_KEYS: Final[dict[str, Callable[[JobStatus], Any]]] = {
    "queue": queue_key,
    "age": lambda status: -status.submitted_ms,
    "chips": lambda status: status.chips,
    "name": lambda status: (status.namespace, status.name),
    "phase": lambda status: PHASES.index(status.phase),
    "pods": lambda status: status.pods,
    "priority": lambda status: status.priority,
    "since": lambda status: -status.since_ms,
}
"""What ``--sort`` takes, and the key of each, which is smallest for the first one."""


def positions(statuses: Iterable[JobStatus]) -> dict[JobKey, int]:
    """Positions of the jobs that wait, from 1 on, in the order in which the dispatcher tries to place them.

    Jobs without chips have positions of their own where they have a queue of their own.

    Args:
        statuses: Those of all jobs of the cell.
    """
    found: dict[JobKey, int] = {}
    counts = {False: 0, True: 0}
    for status in sorted((one for one in statuses if one.phase == "waiting"), key=queue_key):
        counts[status.is_plain] += 1
        found[status.namespace, status.name] = counts[status.is_plain]
    return found


def in_order(statuses: Iterable[JobStatus], sort: str = "queue") -> list[JobStatus]:
    """Statuses in the order that the user asks for; equal ones in the order of the queue.

    Args:
        statuses: The statuses.
        sort: Names of keys, separated by commas, the first one decides; ``-`` before a name reverses its order.

    Raises:
        CommandError: There is no such key.
    """
    return sorted_by(sorted(statuses, key=queue_key), sort, _KEYS)
