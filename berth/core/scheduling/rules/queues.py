"""Queues: they limit what their jobs hold, and let in none that they are not for.

A gang that a queue refuses waits aside: no room is kept for it, and it holds back nobody. It is tried again when the
queue that binds, or one above, holds less or is declared otherwise.
"""

from typing import Final

import msgspec

from berth.core.gangs import Gang
from berth.core.placement.rules import Entry, RuleRound
from berth.core.queues.admission import Ask, placement_refusal
from berth.core.queues.shares import Shares
from berth.core.queues.turns import LeafTurns
from berth.core.queues.wake_keys import keys_of_gang
from berth.core.requests.gangs import ORDERED
from berth.core.scheduling.rules.port import RoundStart, Rule
from berth.core.scheduling.turns import Turns
from berth.core.scheduling.wake_rules import NEVER
from berth.core.state.cell import State
from berth.core.state.ledger import GangRecord
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import DEFAULT
from berth.schemas.refusal import QueueRefusal, Refusal
from berth.schemas.rules import Queues as Terms

QUEUES: Final = "queues"
_ASIDE: Final = NEVER | {"behind"}
"""Refusals of gangs that hold back nobody in a fifo queue."""

_Heads = dict[tuple[str, bool], Gang]
"""The first waiting gang of each fifo queue, with and without chips."""


class Queues(Rule):
    """``queues``.

    Args:
        terms: What queues do.
    """

    def __init__(self, terms: Terms) -> None:
        self._orders = terms.level == ORDERED

    def turns(self, state: State) -> Turns | None:
        """Turns of the queues, if they order their jobs."""
        shares = state.queues.shares() if self._orders else None
        return None if shares is None else QueueTurns(LeafTurns(shares, state.queues.usage(shares.tree)))

    def begin(self, start: RoundStart) -> RuleRound | None:
        """The rule in a round; None without a tree."""
        shares = start.state.queues.shares()
        return None if shares is None else QueuesRound(start, shares)

    def wakes(self, state: State, gang: GangRecord) -> tuple[str, ...]:
        """Keys of what is declared of the queues on its path, and of what binds."""
        job = state.jobs.get((gang.namespace, gang.name))
        queue = job.request.queue if job is not None and job.request is not None else DEFAULT
        refusal = gang.refusal.queue if gang.refusal is not None else None  # none where its queue is fifo
        return keys_of_gang(state.queues.tree(), refusal, queue) if refusal is not None else ()


class QueuesRound(RuleRound):
    """The rule in one round.

    Args:
        start: What the round begins with.
        shares: Limits of the queues.
    """

    admits_again = True

    def __init__(self, start: RoundStart, shares: Shares) -> None:
        self._queues = start.state.queues
        self._shares = shares
        self._usage = self._queues.usage(shares.tree).fork()
        self._start = start
        self._heads: _Heads | None = None
        """Looked for when a gang of a fifo queue is tried: one pass over the waiting gangs for all queues."""

    def admit(self, entry: Entry) -> Refusal | None:
        """A gang waits while its queue does not let it in; one that starts anew on places held there continues."""
        gang = entry.gang
        if self._queues.continues(gang):
            return None
        head = self._head(gang)
        if head is not None and head.order < gang.order:
            return _behind(gang, head)
        found = self._refusal(gang)
        if found is None:
            return None
        self._wait(gang)
        return refusal_of(gang, msgspec.structs.replace(found, reason=""))

    def refused(self, entry: Entry, refusal: Refusal) -> Refusal:
        """In a fifo queue the others wait behind it, unless it waits for another cluster."""
        if refusal.code not in NEVER:
            self._wait(entry.gang)
        return refusal

    def started(self, gang: Gang, placement: Placement) -> None:  # noqa: ARG002  # the port has it
        """It counts from now on, in place of what was held for it."""
        self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace)
        self._queues.charge_held(self._usage, gang.uid, times=-1)

    def grew(self, gang: Gang) -> None:
        """What it gets back counts from now on."""
        self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace)

    def lets_in(self, gang: Gang) -> bool:
        """Whether its queue lets a gang in, with what was placed so far."""
        return self._queues.continues(gang) or self._refusal(gang) is None

    def _refusal(self, gang: Gang) -> QueueRefusal | None:
        self._queues.charge_held(self._usage, gang.uid, times=-1)  # in another queue, but perhaps below the same one
        found = placement_refusal(self._shares, self._usage, Ask(gang.queue, gang.charge, gang.namespace))
        self._queues.charge_held(self._usage, gang.uid)
        return found

    def _wait(self, gang: Gang) -> None:
        if self._is_fifo(gang.queue):
            _note_head(self._found_heads(), gang)

    def _is_fifo(self, queue: str) -> bool:
        known = self._shares.tree.queues.get(queue)
        return known is not None and known.is_fifo

    def _head(self, gang: Gang) -> Gang | None:
        """The first gang of a fifo queue, of the lane of a gang of it, that waits behind none and was refused."""
        return self._found_heads().get((gang.queue, gang.is_plain)) if self._is_fifo(gang.queue) else None

    def _found_heads(self) -> _Heads:
        if self._heads is None:
            self._heads = self._waiting_heads()
        return self._heads

    def _waiting_heads(self) -> _Heads:
        """Of the gangs that were refused before, and are not tried in this round."""
        tried, gangs = {gang.uid for gang in self._start.opening.gangs}, self._start.state.fold.gangs
        heads: _Heads = {}
        for gang in self._start.queue.gangs():
            if self._is_fifo(gang.queue) and not gang.fresh and gang.uid not in tried:
                record = gangs.get(gang.uid)
                if record is not None and record.refusal is not None and record.refusal.code not in _ASIDE:
                    _note_head(heads, gang)
        return heads


def _note_head(heads: _Heads, gang: Gang) -> None:
    key = gang.queue, gang.is_plain
    if key not in heads or gang.order < heads[key].order:
        heads[key] = gang


def _behind(gang: Gang, head: Gang) -> Refusal:
    return Refusal(
        code="behind",
        pods_need=gang.pods,
        form=gang.form,
        form_because=gang.form_because,
        rule=QUEUES,
        ahead=head.namespaced_name,
        template="waits behind {ahead}, which is before it in its queue (dequeueStrategy fifo)",
    )


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
        self._turns.took(line, gang.charge)


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
