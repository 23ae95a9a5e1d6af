"""Rules of an epoch, as its record states them: names, each with its parameters, in the order in which they are asked.

Every reader of the ledger knows the rules by name. One that lacks a rule stops, as at a record of another version:
it would decide otherwise than the epoch says. What a rule does is in ``berth.core.scheduling.rules``.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from berth.schemas.envelope import VersionError
from berth.schemas.message import Part


class StatedRule(Part, frozen=True):
    """A rule of an epoch."""

    name: str
    parameters: dict[str, int] = {}


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of a rule; this class itself for a rule without any. They are numbers, found by name."""


class Easy(Parameters, frozen=True):
    """Parameters of ``easy``."""

    reserve_chips: int
    """Fewest chips of a large gang, which gets a reservation."""


class Conservative(Parameters, frozen=True):
    """Parameters of ``conservative``."""

    reserve_chips: int
    """As in ``easy``."""
    reserve_depth: int
    """Most reservations at a time."""


class Queues(Parameters, frozen=True):
    """Parameters of ``queues``."""

    level: int
    """1: queues limit their jobs; 2: they order them too."""
    queues_max: int
    """Most queues that are valid, beside ``root`` and ``default``."""


class Preemption(Parameters, frozen=True):
    """Parameters of ``preemption``."""

    level: int
    """1: gangs that declare themselves preemptable may end for others; 2: all that do not declare otherwise."""
    evictions_per_hour: int
    queue_evictions_per_hour: int
    preempt_min_run_s: int
    reclaim_min_run_s: int


_KNOWN: Final[dict[str, type[Parameters]]] = {
    "fifo": Parameters,
    "easy": Easy,
    "conservative": Conservative,
    "plain-pods": Parameters,
    "drains": Parameters,
    "held-places": Parameters,
    "queues": Queues,
    "entitled": Parameters,
    "preemption": Preemption,
}


class UnknownRuleError(VersionError):
    """A rule that this release lacks, or whose parameters it does not know."""

    def __init__(self, rule: StatedRule, why: str, *, sequence: int = 0) -> None:
        where = f"record {sequence}: " if sequence else ""
        super().__init__(f"{where}rule {rule.name[:100]!r} {why}: a newer release of Berth is needed")


def register(name: str, parameters: type[Parameters]) -> None:
    """Make a rule known to readers, when the module that defines it is imported.

    Args:
        name: Its name, which no other rule has.
        parameters: The type of its parameters.

    Raises:
        ValueError: Another rule has the name.
    """
    if _KNOWN.setdefault(name, parameters) is not parameters:
        raise ValueError(f"rule {name!r} is registered")


def stated(name: str, parameters: Parameters) -> StatedRule:
    """A rule as a record states it."""
    return StatedRule(name, msgspec.to_builtins(parameters))


def parameters_of(rule: StatedRule, *, sequence: int = 0) -> Any:  # noqa: ANN401  # as the rule was registered
    """Parameters of a rule, as the type with which it was registered.

    Args:
        rule: The rule.
        sequence: Sequence of its record; 0 where that is not known.

    Raises:
        UnknownRuleError: This release does not know it.
    """
    kind = _KNOWN.get(rule.name)
    if kind is None:
        raise UnknownRuleError(rule, "is unknown here", sequence=sequence)
    try:
        return msgspec.convert(rule.parameters, kind)
    except msgspec.ValidationError as error:
        raise UnknownRuleError(rule, f"has other parameters than here ({error})", sequence=sequence) from error


def check_rules(rules: Iterable[StatedRule], *, sequence: int = 0) -> None:
    """Check that this release knows all rules of an epoch.

    Raises:
        UnknownRuleError: This release lacks a rule of the epoch.
    """
    for rule in rules:
        parameters_of(rule, sequence=sequence)
