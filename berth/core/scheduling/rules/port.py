"""What a rule of an epoch is asked, between rounds and to begin one."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from berth.core.placement.projected_state import MissingRows
from berth.core.placement.rules import RuleRound
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.turn import Opening
from berth.core.state.cell import State
from berth.core.state.holdings.holding import Holding
from berth.core.state.internal_errors import SetAside
from berth.core.state.ledger import GangRecord


class RoundStart(NamedTuple):
    """What a rule knows when a round begins."""

    state: State
    """The cell before the round."""
    queue: Queue
    scorer: Scorer
    opening: Opening
    silent: MissingRows
    """Rows of nodes whose shard did not answer."""
    on_error: Callable[[SetAside], None]
    """Called with each gang that a rule leaves out because of an error."""
    before: Sequence[RuleRound]
    """The round of each rule before this one."""


class AfterRecord(NamedTuple):
    """What a rule knows when a record has been folded."""

    state: State
    queue: Queue
    drained: DrainedGangs
    """Drains at the moment of the record."""
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

    def begin(self, start: RoundStart) -> RuleRound | None:  # noqa: ARG002  # the rules that define it use it; so below
        """The rule in a round; None if it has no say in it."""
        return None

    def wakes(self, gang: GangRecord) -> tuple[str, ...] | None:  # noqa: ARG002
        """Keys under which a gang sleeps that the rule refused: it is tried again once one of them wakes.

        They are names of namespaces, which an anonymised recording renames, or begin with a sign that none has.

        Returns:
            The keys; without any it is tried again after each change that may help some gang. None: it does not sleep,
            for its place in the queue keeps it back.
        """
        return ()

    def due_ms(self, after: AfterRecord) -> int:  # noqa: ARG002
        """When gangs are tried again that a rule refused, although nothing has woken them; 0 for never."""
        return 0

    def ended(self, holding: Holding) -> Iterable[str]:  # noqa: ARG002
        """Keys that wake when an attempt gives back all or some of what it held."""
        return ()

    def may_reserve(self, gang: Gang, *, behind: bool) -> bool:  # noqa: ARG002
        """Whether a gang that waits may get a reservation.

        Args:
            gang: The gang.
            behind: Although it waits for a reservation of others.
        """
        return False
