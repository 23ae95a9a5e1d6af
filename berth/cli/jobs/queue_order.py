"""Order of jobs in lists, and their positions in the queue."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, get_args

from berth.cli.output import WRONG_USE, CommandError, near_names
from berth.schemas.status import JobStatus, Phase

JobKey = tuple[str, str]
"""(namespace, name)"""
PHASES: Final[tuple[str, ...]] = get_args(Phase)
"""All phases, in the order in which a job has them."""


def _queue_key(status: JobStatus) -> tuple[object, ...]:
    """Jobs that wait, in the order of the queue; then those with a place, and those that are over, likewise.

    The order of those that wait is that of gangs (``Gang.order``), with jobs without chips in a queue of their own.
    """
    stage = 0 if status.phase == "waiting" else 1 if status.phase in {"placed", "bound", "running", "ending"} else 2
    return (stage, status.is_plain, -status.priority, status.accepted_seq, status.uid, status.namespace, status.name)


_KEYS: Final[dict[str, Callable[[JobStatus], Any]]] = {
    "queue": _queue_key,
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
    for status in sorted((one for one in statuses if one.phase == "waiting"), key=_queue_key):
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
    found = sorted(statuses, key=_queue_key)
    for name, is_reversed in reversed(_sort_keys(sort)):
        found.sort(key=_KEYS[name], reverse=is_reversed)
    return found


def _sort_keys(sort: str) -> Sequence[tuple[str, bool]]:
    """Keys with whether each is reversed.

    Raises:
        CommandError: There is no such key.
    """
    found = []
    for part in sort.split(","):
        name = part.strip()
        is_reversed = name.startswith("-")
        name = name.removeprefix("-")
        if name not in _KEYS:
            near = near_names(name, _KEYS)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(
                f"--sort is {sort!r}, expected one or several of {', '.join(_KEYS)}, separated by commas, each with or"
                f" without - before it{hint}",
                code=WRONG_USE,
            )
        found.append((name, is_reversed))
    return found
