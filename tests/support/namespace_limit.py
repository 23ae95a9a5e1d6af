"""A rule that the product does not have: at most so many chips of one namespace at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from berth.core.gangs import Gang, chips_of
from berth.core.placement.rules import Entry, RuleRound
from berth.core.scheduling.rules.port import RoundStart, Rule
from berth.core.scheduling.rules.registry import register
from berth.core.state.cell import State
from berth.core.state.ledger import GangRecord, Holding, chips_in
from berth.schemas.placement import Placement
from berth.schemas.refusal import RULE, Refusal
from berth.schemas.rules import Parameters, StatedRule, stated

NAME: Final = "namespace-limit"
SENTENCE: Final = "jobs of its namespace hold {held} of at most {most} chips, and it needs {need} chips"


class Limit(Parameters, frozen=True):
    """Parameters of the rule."""

    chips: int


class NamespaceLimit(Rule):
    """The rule between rounds."""

    def __init__(self, limit: Limit) -> None:
        self._most = limit.chips

    def begin(self, start: RoundStart) -> RuleRound:
        """Count what each namespace holds."""
        held: Counter[str] = Counter()
        for holding in start.state.fold.holdings.values():
            held[holding.namespace] += chips_in(holding.placement.runs)
        return NamespaceLimitRound(self._most, held)

    def wakes(self, state: State, gang: GangRecord) -> tuple[str, ...]:  # noqa: ARG002  # the port has it
        """A gang is tried again when its namespace gives something back."""
        return (gang.namespace,)

    def ended(self, state: State, holding: Holding) -> Iterable[str]:  # noqa: ARG002  # as above
        """Its namespace has given something back."""
        return (holding.namespace,)


class NamespaceLimitRound(RuleRound):
    """The rule in one round."""

    def __init__(self, most: int, held: Mapping[str, int]) -> None:
        self._most = most
        self._held = Counter(held)

    def admit(self, entry: Entry) -> Refusal | None:
        """A gang waits while it would take its namespace beyond the limit."""
        gang = entry.gang
        held, need = self._held[gang.namespace], chips_of(gang.request_class)
        if held + need <= self._most:
            return None
        return Refusal(
            RULE,
            pods_need=gang.pods,
            rule=NAME,
            template=SENTENCE,
            numbers={"held": held, "most": self._most, "need": need},
        )

    def started(self, gang: Gang, placement: Placement) -> None:  # noqa: ARG002  # the port has it
        """It counts from now on."""
        self._held[gang.namespace] += chips_of(gang.request_class)


def limit_of(chips: int) -> StatedRule:
    """The rule as a record states it."""
    return stated(NAME, Limit(chips))


register(NAME, Limit, NamespaceLimit)
