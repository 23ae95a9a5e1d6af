"""Rules of an epoch: which ones settings stand for, and what makes them of the record."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from berth.core.requests.gangs import ORDERED, has_turns
from berth.core.scheduling.rules.backfill import Backfill, Terms
from berth.core.scheduling.rules.drains import Drains
from berth.core.scheduling.rules.entitled import ENTITLED, Entitled
from berth.core.scheduling.rules.held_places import HeldPlaces
from berth.core.scheduling.rules.plain_pods import PlainPods
from berth.core.scheduling.rules.port import EpochRules, Rule
from berth.core.scheduling.rules.preemption import Preemption
from berth.core.scheduling.rules.queues import QUEUES, Queues
from berth.core.scheduling.rules.strict_order import FIFO, StrictOrder
from berth.core.state.kept_places import PREEMPTION
from berth.schemas import rules as schemas
from berth.schemas.ledger import Settings
from berth.schemas.rules import Conservative, Easy, Parameters, StatedRule, parameters_of, stated

_MADE_BY: Final[dict[str, Callable[[Any], Rule]]] = {
    FIFO: lambda _: StrictOrder(),
    "easy": lambda terms: Backfill(Terms(terms.reserve_chips, 1, is_deep=False)),
    "conservative": lambda terms: Backfill(Terms(terms.reserve_chips, terms.reserve_depth, is_deep=True)),
    "plain-pods": lambda _: PlainPods(),
    "drains": lambda _: Drains(),
    "held-places": lambda _: HeldPlaces(),
    QUEUES: Queues,
    ENTITLED: lambda _: Entitled(),
    PREEMPTION: Preemption,
}


def register(name: str, parameters: type[Parameters], made_by: Callable[[Any], Rule]) -> None:
    """Add a rule, when the module that defines it is imported.

    Args:
        name: Its name, which no other rule has.
        parameters: The type of its parameters.
        made_by: Makes the rule of them.

    Raises:
        ValueError: Another rule has the name.
    """
    schemas.register(name, parameters)
    _MADE_BY[name] = made_by


def built(rules: Iterable[StatedRule]) -> EpochRules:
    """The rules of a record, in their order.

    Raises:
        UnknownRuleError: This release lacks one.
    """
    found: list[Rule] = []
    for one in rules:
        rule = _MADE_BY[one.name](parameters_of(one))
        rule.name = one.name
        found.append(rule)
    return EpochRules(found)


def rules_of(settings: Settings) -> list[StatedRule]:
    """The rules that settings stand for, in their order; ``skip`` is none of them."""
    chips, depth = settings.reserve_chips, settings.reserve_depth
    plain = stated("plain-pods", Parameters())
    found = [stated("drains", Parameters()), stated("held-places", Parameters())]
    if settings.queues:
        level = ORDERED if has_turns(settings) else min(settings.queues, 1)
        found.append(stated(QUEUES, schemas.Queues(level, settings.queues_max)))
    match settings.queue_policy:
        case "fifo":
            found.append(stated(FIFO, Parameters()))
        case "easy":
            found += [stated("easy", Easy(chips)), plain]
        case "conservative":
            found += [stated("conservative", Conservative(chips, depth)), plain]
        case _:
            pass
    if has_turns(settings):
        found.append(stated(ENTITLED, Parameters()))
    if settings.preempt:
        found.append(
            stated(
                PREEMPTION,
                schemas.Preemption(
                    settings.preempt,
                    settings.evictions_per_hour,
                    settings.queue_evictions_per_hour,
                    settings.preempt_min_run_s,
                    settings.reclaim_min_run_s,
                ),
            )
        )
    return found


def more_than(settings: Settings, rules: Iterable[StatedRule]) -> list[StatedRule]:
    """Rules of an epoch that its settings do not stand for."""
    known = rules_of(settings)
    return [rule for rule in rules if rule not in known]
