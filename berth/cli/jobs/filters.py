"""``--filter`` of ``berth jobs``: conditions on fields of jobs."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from berth.cli.jobs.queue_order import PHASES
from berth.cli.output import WRONG_USE, CommandError, near_names
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
_FORM: Final = "FIELD=VALUE or FIELD!=VALUE, several values separated by commas"


class Condition(NamedTuple):
    """A condition on a field.

    Attributes:
        field: Name of the field.
        values: Patterns with ``*`` and ``?``; one of them must match.
        is_wanted: False: none of them may match.
    """

    field: str
    values: tuple[str, ...]
    is_wanted: bool

    def holds(self, status: JobStatus) -> bool:
        """Whether a job meets the condition."""
        found = _FIELDS[self.field](status)
        return any(fnmatchcase(one, value) for one in found for value in self.values) == self.is_wanted


def conditions_of(texts: Iterable[str]) -> list[Condition]:
    """The conditions that a user gives.

    Args:
        texts: Such as ``phase=waiting``, ``name=train-*``, ``queue!=research,eval``.

    Raises:
        CommandError: One has another form, no such field, or a value that the field cannot have.
    """
    return [_condition(text) for text in texts]


def matching(statuses: Iterable[JobStatus], conditions: Sequence[Condition]) -> list[JobStatus]:
    """Jobs that meet all conditions."""
    return [status for status in statuses if all(one.holds(status) for one in conditions)]


def names_phase(conditions: Iterable[Condition], phases: Iterable[str]) -> bool:
    """Whether a condition asks for one of these phases by its name."""
    wanted = set(phases)
    return any(one.field == "phase" and one.is_wanted and wanted.intersection(one.values) for one in conditions)


def _condition(text: str) -> Condition:
    head, sign, tail = text.partition("=")
    field = head.removesuffix("!").strip()
    values = tuple(value.strip() for value in tail.split(","))
    if not sign or not field:
        raise CommandError(f"--filter is {text!r}, expected {_FORM}", code=WRONG_USE)
    if field not in _FIELDS:
        raise _wrong("--filter", field, _FIELDS)
    if field == "phase":
        wrong = [value for value in values if not any(fnmatchcase(phase, value) for phase in PHASES)]
        if wrong:
            raise _wrong("--filter phase", wrong[0], PHASES)
    if field == "priority":
        wrong = [value for value in values if not value.removeprefix("-").isdecimal()]
        if wrong:
            raise CommandError(f"--filter priority is {wrong[0]!r}, expected a whole number", code=WRONG_USE)
    return Condition(field, values, is_wanted=not head.endswith("!"))


def _wrong(what: str, value: str, known: Iterable[str]) -> CommandError:
    names = list(known)
    near = near_names(value, names)
    hint = f"; did you mean {near[0]}?" if near else ""
    return CommandError(f"{what} is {value!r}, expected one of {', '.join(names)}{hint}", code=WRONG_USE)
