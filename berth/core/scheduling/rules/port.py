"""What a rule of an epoch is asked, between rounds and to begin one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from berth.core.placement.projected_state import MissingRows
from berth.core.placement.rules import RuleRound
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.turn import Opening
from berth.core.state.cell import State
from berth.core.state.internal_errors import SetAside


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


class Rule:
    """A rule of an epoch. What it keeps between rounds saves time only: decisions do not depend on it.

    Attributes:
        is_strict: No gang is placed before one that waits ahead of it.
        keeps_room: Gangs without chips leave room free for it, so that their nodes need not be the best.
    """

    is_strict: bool = False
    keeps_room: bool = False

    def begin(self, start: RoundStart) -> RuleRound | None:  # noqa: ARG002  # the rules that define it use it; so below
        """The rule in a round; None if it has no say in it."""
        return None

    def may_reserve(self, gang: Gang, *, behind: bool) -> bool:  # noqa: ARG002
        """Whether a gang that waits may get a reservation.

        Args:
            gang: The gang.
            behind: Although it waits for a reservation of others.
        """
        return False
