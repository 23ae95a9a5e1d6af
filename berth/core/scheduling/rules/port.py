"""What a rule of an epoch is asked, between rounds and to begin one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from berth.core.changes import Changes
from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.rules import NO_RULES, LastRefusal, RuleRound, Rules
from berth.core.placement.scoring import Scorer
from berth.core.scheduling.drained_gangs import GangTerms
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.turn import Opening, Returning
from berth.core.scheduling.turns import Turns
from berth.core.state.cell import State
from berth.core.state.holdings.holding import Holding
from berth.core.state.internal_errors import SetAside
from berth.core.state.ledger import GangRecord


class TurnStart(NamedTuple):
    """What a rule knows when a turn is opened."""

    state: State
    queue: Queue
    terms: GangTerms
    taken: Sequence[Gang]
    """Gangs that the turn tries."""
    changes: Changes
    """What the turn consumes."""


class RoundStart(NamedTuple):
    """What a rule knows when a round begins."""

    state: State
    """The cell before the round."""
    queue: Queue
    scorer: Scorer
    terms: GangTerms
    opening: Opening
    silent: Fits | None
    """Marks of rows of nodes whose shard did not answer, shape (rows,); None when all did."""
    on_error: Callable[[SetAside], None]
    """Called with each gang that a rule leaves out because of an error."""
    before: Sequence[RuleRound]
    """The round of each rule before this one."""
    turns: Callable[[], Turns | None] = lambda: None
    """Turns of the queues as the round begins; None where gangs are in one order."""


class AfterRecord(NamedTuple):
    """What a rule knows when a record has been folded."""

    state: State
    queue: Queue
    terms: GangTerms
    """At the moment of the record."""
    is_silent: bool
    """Shards were missing when it was decided."""


class Rule:
    """A rule of an epoch. What it keeps between rounds saves time only: decisions do not depend on it.

    Attributes:
        name: Its name in the record.
        is_strict: No gang is placed before one that waits ahead of it.
        keeps_room: Gangs without chips leave room free for it, so that their nodes need not be the best.
    """

    name: str = ""
    is_strict: bool = False
    keeps_room: bool = False

    def terms(self, state: State, at_ms: int) -> GangTerms | None:  # noqa: ARG002  # the rules that define it use it; so below
        """On which terms gangs are decided at a moment; None if the rule makes no difference."""
        return None

    def turns(self, state: State) -> Turns | None:  # noqa: ARG002
        """Turns of the queues in a round; None if the rule does not order gangs."""
        return None

    def returning(self, start: TurnStart) -> Sequence[Returning]:  # noqa: ARG002
        """Gangs with places of their own, which are tried before all others."""
        return ()

    def begin(self, start: RoundStart) -> RuleRound | None:  # noqa: ARG002
        """The rule in a round; None if it has no say in it."""
        return None

    def wakes(self, state: State, gang: GangRecord) -> tuple[str, ...] | None:  # noqa: ARG002
        """Keys under which a gang sleeps that the rule refused: it is tried again once one of them wakes.

        They are names of namespaces, or those of queues: an anonymised recording renames both.

        Returns:
            The keys; without any it is tried again after each change that may help some gang. None: it does not sleep,
            for its place in the queue keeps it back.
        """
        return ()

    def due_ms(self, after: AfterRecord) -> int:  # noqa: ARG002
        """When gangs are tried again that a rule refused, although nothing has woken them; 0 for never."""
        return 0

    def ended(self, state: State, holding: Holding) -> Iterable[str]:  # noqa: ARG002
        """Keys that wake when an attempt gives back all or some of what it held."""
        return ()

    def may_reserve(self, gang: Gang, *, behind: bool) -> bool:  # noqa: ARG002
        """Whether a gang that waits may get a reservation.

        Args:
            gang: The gang.
            behind: Although it waits for a reservation of others.
        """
        return False


class EpochRules:
    """All rules of an epoch, in their order.

    Attributes:
        by_name: The rules.
        is_strict: No gang is placed before one that waits ahead of it.
        keeps_room: Gangs without chips leave room free, so that their nodes need not be the best.
        have_say: Some rule is asked in rounds, so that gangs of one class may fare in different ways.
        may_hold: Some rule keeps gangs that it has refused from being tried.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.by_name = {rule.name: rule for rule in rules}
        self.is_strict = any(rule.is_strict for rule in rules)
        self.keeps_room = any(rule.keeps_room for rule in rules)
        self._in_rounds = [rule for rule in rules if type(rule).begin is not Rule.begin]
        self.have_say = bool(self._in_rounds)
        self.may_hold = self.have_say or any(type(rule).wakes is not Rule.wakes for rule in rules)
        self._in_ends = [rule for rule in rules if type(rule).ended is not Rule.ended]
        self._rules = rules

    def terms(self, state: State, at_ms: int) -> GangTerms:
        """On which terms gangs are decided at a moment; one rule of an epoch at most makes a difference."""
        for rule in self._rules:
            terms = rule.terms(state, at_ms)
            if terms is not None:
                return terms
        return _ALIKE

    def turns(self, state: State) -> Turns | None:
        """Turns of the queues in a round; one rule of an epoch at most orders gangs."""
        return next((turns for rule in self._rules if (turns := rule.turns(state)) is not None), None)

    def returning(self, start: TurnStart) -> list[Returning]:
        """Gangs that are tried before all others, those of the first rule first."""
        return [one for rule in self._rules for one in rule.returning(start)]

    def begun(self, start: RoundStart, last: LastRefusal) -> Rules:
        """The rules in a round.

        Args:
            start: What it begins with; no rule has begun.
            last: Last refusals.
        """
        begun: list[RuleRound] = []
        for rule in self._in_rounds:
            one = rule.begin(start._replace(before=begun))
            if one is not None:
                begun.append(one)
        return Rules(begun, last) if begun else NO_RULES

    def woken(self, state: State, ended: Iterable[Holding]) -> dict[str, None]:
        """Keys that wake when attempts have given back all or some of what they held."""
        if not self._in_ends:
            return {}
        return {key: None for holding in ended for rule in self._in_ends for key in rule.ended(state, holding)}

    def may_reserve(self, gang: Gang, *, behind: bool) -> bool:
        """Whether a gang that waits may get a reservation; see :meth:`Rule.may_reserve`."""
        return any(rule.may_reserve(gang, behind=behind) for rule in self._in_rounds)


_ALIKE: Final = GangTerms()
NO_EPOCH_RULES: Final = EpochRules()
