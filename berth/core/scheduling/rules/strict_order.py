"""Strict order (``fifo``): a gang that finds no room blocks all gangs behind it."""

import functools
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from berth.core.gangs import Gang
from berth.core.placement.rules import Entry, RuleRound
from berth.core.placement.scoring import Scorer
from berth.core.scheduling.rules.port import RoundStart, Rule
from berth.core.scheduling.wake_rules import NEVER
from berth.core.state.cell import State
from berth.core.state.ledger import GangRecord
from berth.schemas.offers import Shape
from berth.schemas.refusal import OF_THE_NODE, Refusal

FIFO: Final = "fifo"
_OF_THE_NODE: Final = np.array(sorted(OF_THE_NODE))


class StrictOrder(Rule):
    """``fifo``."""

    is_strict = True

    def wakes(self, state: State, gang: GangRecord) -> None:
        """A gang behind the head is not taken while that one waits."""

    def begin(self, start: RoundStart) -> RuleRound | None:
        """The rule in a round."""
        return StrictOrderRound(start.queue.head(), functools.partial(could_take, start.scorer))


class StrictOrderRound(RuleRound):
    """The rule in one round.

    Args:
        head: First gang that waits without being tried in this round.
        could_take: Whether some node could take each pod of a gang if nothing else ran there.
    """

    lane = "chips"
    admits_again = True

    def __init__(self, head: Gang | None, could_take: Callable[[Gang], bool] = lambda _: True) -> None:
        self._head = head
        self._could_take = could_take

    def admit(self, entry: Entry) -> Refusal | None:
        """A gang behind the head is not tried."""
        head, gang = self._head, entry.gang
        return None if head is None or gang.order <= head.order else behind(gang, head)

    def refused(self, entry: Entry, refusal: Refusal) -> Refusal:
        """The gang becomes the head, unless it waits for another cluster, or is for ranks that no node could take."""
        gang = entry.gang
        if gang.is_fragile and not refusal.missing_shards and not self._could_take(gang):
            return msgspec.structs.replace(refusal, yields=True)
        if refusal.code not in NEVER and (self._head is None or gang.order < self._head.order):
            self._head = gang
        return refusal

    def is_news(self, entry: Entry, refusal: Refusal, last: Refusal) -> bool:  # noqa: ARG002  # the port has it
        """A changed ``ahead`` alone is not recorded: else each start would change the refusal of every waiting gang."""
        return last.yields != refusal.yields


def behind(gang: Gang, head: Gang) -> Refusal:
    """The refusal of a gang that waits behind the head of the queue."""
    return Refusal(
        code="behind",
        rule=FIFO,
        ahead=head.namespaced_name,
        pods_need=gang.pods,
        form=gang.form,
        form_because=gang.form_because,
    )


def could_take(scorer: Scorer, gang: Gang) -> bool:
    """Whether some node could take each pod of a gang if nothing else ran there.

    Args:
        scorer: Scoring under the settings of the epoch.
        gang: The gang.
    """
    return all(_could_take(scorer, shape) for shape, _ in gang.request_class)


def _could_take(scorer: Scorer, shape: Shape) -> bool:
    table = scorer.table
    rows = table.view()
    usable = table.chips[rows] & ~table.unhealthy[rows] & ~table.withheld[rows]
    may = ~np.isin(scorer.evaluate(shape)[0][rows], _OF_THE_NODE) & table.present[rows]
    return bool((may & (np.bitwise_count(usable) >= shape.chips)).any())
