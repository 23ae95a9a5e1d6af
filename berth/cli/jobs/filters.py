"""``--filter`` of ``berth jobs``: conditions on fields of jobs."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from berth.cli.jobs.queue_order import PHASES
from berth.cli.output import WRONG_USE, CommandError
from berth.cli.selection import Condition, conditions_on, not_known
from berth.schemas.status import JobStatus

_FIELDS: Final[dict[str, Callable[[JobStatus], Sequence[str]]]] = {
    "phase": lambda status: [status.phase],
    "name": lambda status: [status.name, f"{status.namespace}/{status.name}"],
    "queue": lambda status: [status.queue],
    "priority": lambda status: [str(status.priority)],
    "node": lambda status: status.placement.names() if status.placement is not None else [],
    "reason": lambda status: [status.refusal.code] if status.refusal is not None else [],
}
"""Fields that a condition may name, and what a job has there; a job matches with any of it."""


def conditions_of(texts: Iterable[str]) -> list[Condition[JobStatus]]:
    """The conditions that a user gives.

    Args:
        texts: See :func:`berth.cli.selection.conditions_on`.

    Raises:
        CommandError: One has another form, no such field, or a value that the field cannot have.
    """
    found = conditions_on(texts, _FIELDS)
    for one in found:
        _check_values(one)
    return found


def matching(statuses: Iterable[JobStatus], conditions: Sequence[Condition[JobStatus]]) -> list[JobStatus]:
    """Jobs that meet all conditions."""
    return [status for status in statuses if all(one.holds(status) for one in conditions)]


def names_phase(conditions: Iterable[Condition[JobStatus]], phases: Iterable[str]) -> bool:
    """Whether a condition asks for one of these phases by its name."""
    wanted = set(phases)
    return any(one.field == "phase" and one.is_wanted and wanted.intersection(one.values) for one in conditions)


def _check_values(condition: Condition[JobStatus]) -> None:
    field, values = condition.field, condition.values
    if field == "phase":
        wrong = [value for value in values if not any(fnmatchcase(phase, value) for phase in PHASES)]
        if wrong:
            raise not_known("--filter phase", wrong[0], PHASES)
    if field == "priority":
        wrong = [value for value in values if not value.removeprefix("-").isdecimal()]
        if wrong:
            raise CommandError(f"--filter priority is {wrong[0]!r}, expected a whole number", code=WRONG_USE)
