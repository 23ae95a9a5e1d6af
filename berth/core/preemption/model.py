"""Preemptors, gangs that may end for them, and what a search finds.

All but candidates is input and output of :class:`berth.core.preemption.search.Search`. Times are those of the record.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.gangs import ClassKey, Gang
from berth.core.queues.charges import Holding
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import Amounts

HOUR_MS: Final = 3_600_000
PLACES: Final[dict[str, str]] = {
    "node": "node",
    "leaf": "leaf",
    "superpod": "SuperPoD",
    "rack": "rack",
    "group": "group of nodes",
}
"""What kinds of places are called; all nodes have no name."""

Level = tuple[int, int]
"""Priority of a queue, and of a gang in it; what is lost at a higher one is dearer."""

Likeness = tuple[ClassKey, str, str, int, bool, bool, bool]


class Terms(msgspec.Struct, frozen=True):
    """Settings of an epoch that say who may go, and how much a search may cost.

    Attributes:
        declared_only: Only gangs that declare themselves preemptable may go.
        preemptors_max: Preemptors of a round; the search does not count them. Those that share a search may count once.
        places_max: Places that are looked at for a preemptor.
        plans_max: Plans that are made for a preemptor.
        evictions_per_hour: Evictions of a gang in an hour after which it may not go; 0: no bound.
        queue_evictions_per_hour: Evictions of gangs of a queue in an hour; 0: no bound.
        preempt_min_run_s: Time after its start before which a gang is not preempted in its own queue.
        reclaim_min_run_s: The same for a gang that another queue would get back.
        restart_s: Time that a restart costs a gang, beside the time since its last checkpoint.
        assumed_checkpoint_s: A gang that declares no checkpoint is taken to have saved so long ago.
        checkpoint_trust_max_s: A declared checkpoint that is older counts as none.
    """

    declared_only: bool = False
    preemptors_max: int = 8
    places_max: int = 64
    plans_max: int = 8
    evictions_per_hour: int = 4
    queue_evictions_per_hour: int = 0
    preempt_min_run_s: int = 0
    reclaim_min_run_s: int = 0
    restart_s: int = 300
    assumed_checkpoint_s: int = 3_600
    checkpoint_trust_max_s: int = 86_400


def evictions_at(evicted_ms: Iterable[int], at_ms: int) -> int:
    """How many of some evictions were in the hour before a moment."""
    return sum(at_ms - HOUR_MS < one <= at_ms for one in evicted_ms)


class RunningGang(msgspec.Struct, frozen=True):
    """A placed gang, with all that decides whether it may go and what its end costs.

    Attributes:
        counted: The gang as queues count it: uid, queue, namespace, charge, priority of its placement, start (the
            sequence or time of its placement), whether it is leaving, preemptable (an unreadable value is no) and
            critical. Without queues the name of its queue and its charge do not matter.
        attempt: Attempt that is placed: a key of the holdings of the ledger is (uid, attempt).
        chips: Chips that it holds.
        start_ms: When it was placed.
        checkpoint_ms: When it last saved, as it declares; 0 if it declares nothing. A time in the future or before its
            start does not count.
        cooldown_until_ms: Until when it may not go as a whole, as it declares; 0 without.
        declares_preemptable: It says itself that it is preemptable; counts only with :attr:`Terms.declared_only`.
        evicted_ms: When it was evicted for others, in any order; what is older than an hour does not count.
        restarts: How often it started anew so far.
        budgets: Names of the disruption budgets that its end would break.
        surplus: Ranks beyond its minimum, in the order in which they leave; empty for a gang that is not elastic.
        is_kept: It is leaving, and its places are kept for its next attempt.
    """

    counted: Holding
    attempt: int
    chips: int
    start_ms: int
    checkpoint_ms: int = 0
    cooldown_until_ms: int = 0
    declares_preemptable: bool = False
    evicted_ms: tuple[int, ...] = ()
    restarts: int = 0
    budgets: tuple[str, ...] = ()
    surplus: tuple[int, ...] = ()
    is_kept: bool = False

    @property
    def may_end(self) -> bool:
        """Whether it may end for others at all, whatever the terms are and whoever asks."""
        counted = self.counted
        return counted.is_preemptable and not counted.is_leaving and not counted.is_critical

    def evictions_at(self, at_ms: int) -> int:
        """How often it was evicted for others in the hour before a moment."""
        return evictions_at(self.evicted_ms, at_ms)

    @property
    def key(self) -> tuple[str, int]:
        """Identity of its placement: uid and attempt."""
        return (self.counted.uid, self.attempt)


class Candidate(msgspec.Struct, frozen=True, eq=False):
    """A gang that may go, or its surplus.

    Attributes:
        gang: The gang.
        is_own: It is in the queue of the preemptor, or both are in no tree.
        charge: What the queue gets back.
        ranks: Surplus ranks that leave, in their order; empty: the whole gang.
        chips: Chips that are given up.
        lost: Chip-seconds that are lost.
        level: Level of the loss.
    """

    gang: RunningGang
    is_own: bool
    charge: Amounts
    ranks: tuple[int, ...]
    chips: int
    lost: int
    level: Level

    @property
    def dearness(self) -> tuple[bool, int, Level, int, int, str]:
        """Sort key: surplus before whole gangs, and then the cheapest first."""
        gang = self.gang
        return (not self.ranks, len(gang.budgets), self.level, self.lost, gang.restarts, gang.counted.uid)


class Preemptor(msgspec.Struct, frozen=True):
    """A gang that was refused for room, or by a limit of its queue.

    Attributes:
        gang: The gang, with its queue and charge where there are queues, and with what drains say of its shapes.
        is_never: Its class says ``preemptionPolicy: Never``.
        is_critical: Its class or namespace is critical: it may preempt in every queue.
        was_reclaimed: It was ever evicted by reclaim: it preempts in its own queue only within the entitlement.
    """

    gang: Gang
    is_never: bool = False
    is_critical: bool = False
    was_reclaimed: bool = False

    @property
    def likeness(self) -> Likeness:
        """What preemptors have in common that share one search: a further one costs little beside the first."""
        gang = self.gang
        flags = (self.is_never, self.is_critical, self.was_reclaimed)
        return (gang.request_class, gang.queue, gang.namespace, gang.priority, *flags)


class Victim(NamedTuple):
    """A gang that ends, or ranks that it gives up.

    Attributes:
        uid: Uid of the gang.
        attempt: Its attempt.
        queue: Its queue.
        priority: Its priority.
        is_reclaimed: Another queue gets it back; else it is preempted.
        chips: Chips that it gives up.
        lost: Chip-seconds that are lost.
        ranks: Surplus ranks that leave, in the order of their leaving; empty: the whole gang.
    """

    uid: str
    attempt: int
    queue: str
    priority: int
    is_reclaimed: bool
    chips: int
    lost: int
    ranks: tuple[int, ...] = ()


class Cost(NamedTuple):
    """What a set of victims costs; the smaller one is cheaper.

    Attributes:
        budgets: Disruption budgets that are broken.
        lost: Chip-seconds that are lost at each level, the highest level first. Levels are priorities of queues and
            then of gangs; all costs of one preemptor have the same levels.
        gangs: Number of gangs.
        restarts: Restarts of these gangs so far.
        uids: Uids of the gangs, sorted.
    """

    budgets: int
    lost: tuple[int, ...]
    gangs: int
    restarts: int
    uids: tuple[str, ...]


class Standing(NamedTuple):
    """What a queue holds before the victims leave, in a dimension by which the preemptor is judged.

    Attributes:
        queue: Name of the queue.
        dimension: The dimension.
        held: What gangs hold that are not leaving.
        entitled: What the queue may get back.
    """

    queue: str
    dimension: str
    held: int
    entitled: int


class Place(NamedTuple):
    """Nodes on which a gang could be planned.

    Attributes:
        kind: What the nodes are.
        name: Name of the node or group; empty for all nodes.
    """

    kind: Literal["node", "leaf", "superpod", "rack", "group", "cell"]
    name: str = ""


class VictimSet(NamedTuple):
    """The cheapest gangs whose end makes room, and the room.

    Attributes:
        victims: The gangs, by uid. Empty if the gang has a place as soon as those that are leaving have left.
        placement: Exact placement of the preemptor on the nodes as they are without the victims, and without those that
            are leaving already.
        place: The place that was searched.
        cost: What the victims cost.
        standings: Its own queue and those of the victims that are reclaimed; empty without queues.
        plans: Plans that were made.
    """

    victims: tuple[Victim, ...]
    placement: Placement
    place: Place
    cost: Cost
    standings: tuple[Standing, ...]
    plans: int


class NoVictims(NamedTuple):
    """Why no gang ends for a preemptor.

    Attributes:
        code: ``preempt``: no set of gangs that may go makes room, or there are none; ``evictions-exhausted``: those
            that would were evicted too often in the last hour; ``never``: it may not preempt, or its queue lets nobody
            in.
        gangs: How many gangs may go, or were evicted too often.
        chips: How many chips they hold.
        place: The smallest kind of place that it needs.
        evictions: ``evictions-exhausted``: most evictions of one of these gangs, or of a queue, in the last hour.
    """

    code: Literal["preempt", "evictions-exhausted", "never"]
    gangs: int = 0
    chips: int = 0
    place: str = ""
    evictions: int = 0
