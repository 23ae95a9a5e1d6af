"""Queues: they limit what their jobs hold, and let in none that they are not for.

A gang that a queue refuses waits aside: no room is kept for it, and it holds back nobody. It is tried again when the
queue that binds, or one above, holds less or is declared otherwise.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.placement.rules import Entry, RuleRound
from berth.core.queues.admission import Ask, placement_refusal
from berth.core.queues.charges import UsageOver, charge_of_placement, charge_of_runs
from berth.core.queues.shares import Shares
from berth.core.queues.turns import LeafTurns
from berth.core.queues.wake_keys import keys_of_amounts, keys_of_gang
from berth.core.requests.gangs import ORDERED, Gang
from berth.core.scheduling.rules.port import RoundStart, Rule
from berth.core.scheduling.turns import Turns
from berth.core.state.cell import State
from berth.core.state.ledger import GangRecord, Holding
from berth.core.state.queues.queue_index import QueueIndex
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import DEFAULT, Amounts
from berth.schemas.refusal import QueueRefusal, Refusal
from berth.schemas.rules import Queues as Terms

QUEUES: Final = "queues"


class Queues(Rule):
    """``queues``.

    Args:
        terms: What queues do.
    """

    def __init__(self, terms: Terms) -> None:
        self._orders = terms.level >= ORDERED

    def turns(self, state: State) -> Turns | None:
        """Turns of the queues, if they order their jobs."""
        shares = state.queues.shares() if self._orders else None
        return None if shares is None else QueueTurns(LeafTurns(shares, state.queues.usage(shares.tree)))

    def begin(self, start: RoundStart) -> RuleRound | None:
        """The rule in a round; None without a tree."""
        queues = start.state.queues
        shares = queues.shares()
        return None if shares is None else QueuesRound(queues, shares)

    def wakes(self, state: State, gang: GangRecord) -> tuple[str, ...]:
        """Keys of what is declared of the queues on its path, and of what binds."""
        job = state.jobs.get((gang.namespace, gang.name))
        queue = job.request.queue if job is not None and job.request is not None else DEFAULT
        refusal = gang.refusal.queue if gang.refusal is not None else None
        return keys_of_gang(state.queues.tree(), refusal, queue) if refusal is not None else ()

    def ended(self, state: State, holding: Holding) -> Iterable[str]:
        """Keys of what its queue, and those above, hold less."""
        tree = state.queues.tree()
        if tree is None:
            return ()
        return keys_of_amounts(tree, holding.queue or DEFAULT, charge_of_placement(holding.placement))


class QueuesRound(RuleRound):
    """The rule in one round.

    Args:
        queues: Queues of the cell, as they are before the round.
        shares: Their limits.
    """

    admits_again = True

    def __init__(self, queues: QueueIndex, shares: Shares) -> None:
        self._queues = queues
        self._shares = shares
        self._usage = UsageOver(queues.usage(shares.tree))

    def admit(self, entry: Entry) -> Refusal | None:
        """A gang waits while its queue does not let it in; one that starts anew on places of its own continues."""
        gang = entry.gang
        if self._queues.held_places(gang.uid):
            return None
        found = placement_refusal(self._shares, self._usage, Ask(gang.queue, charge_of_gang(gang), gang.namespace))
        return None if found is None else refusal_of(gang, msgspec.structs.replace(found, reason=""))

    def started(self, gang: Gang, placement: Placement) -> None:  # noqa: ARG002  # the port has it
        """It counts from now on, in place of what was held for it."""
        self._usage.charge(gang.queue, charge_of_gang(gang), namespace=gang.namespace)
        held = self._queues.held_places(gang.uid)
        if held:
            self._usage.charge(gang.queue, held, namespace=gang.namespace, times=-1)


class QueueTurns:
    """Turns of the gangs of queues, each with what it is charged.

    Args:
        turns: Turns of the queues.
    """

    def __init__(self, turns: LeafTurns) -> None:
        self._turns = turns
        self.open, self.next, self.close = turns.open, turns.next, turns.close

    def took(self, line: str, gang: Gang) -> None:
        """Count a gang as if it were placed."""
        self._turns.took(line, charge_of_gang(gang))


def charge_of_gang(gang: Gang) -> Amounts:
    """What a gang counts for once it is placed."""
    return charge_of_runs(gang.runs, gang.resource, gang.share)


def refusal_of(gang: Gang, found: QueueRefusal) -> Refusal:
    """The refusal of a gang that a queue does not let in.

    Records have it without what is wrong with the queue: that is told from the tree as it is when somebody asks.
    """
    return Refusal(
        code=found.code,
        pods_need=gang.pods,
        form=gang.form,
        form_because=gang.form_because,
        rule=QUEUES,
        queue=found,
    )
