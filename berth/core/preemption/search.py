"""Search: the cheapest gangs whose end gives a preemptor a place, and its exact placement there.

The dispatcher makes one search for a round, after its gangs have their verdicts, and asks it about each preemptor in
the order of the queue. Preemptors see what those before them got: :meth:`Search.accept` counts it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.scoring import Scorer
from berth.core.preemption.model import NoVictims, Preemptor, RunningGang, Terms, VictimSet
from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares
from berth.core.state.cell import State
from berth.schemas.placement import Placement


class Ground(NamedTuple):
    """What a search sees of a round. Nothing of it is changed.

    Attributes:
        state: The cell before the round.
        scorer: Its scoring, under the settings of the epoch.
        running: Gangs that hold something, leaving ones included, in any order. Gangs that the round itself ends are
            leaving too.
        at_ms: The moment of the round.
        silent: Rows of shards that did not answer, shape (rows,): neither places nor victims; None for no such row.
        taken: Gangs that the round has placed, and gangs for which places are reserved on chips that others still have
            (these first), each with its placement. Nobody else gets these places.
        shares: Limits and entitlements; None where queues do nothing: then all gangs are in one queue.
        usage: What queues hold, those of ``taken`` included; None without shares.
        queue_evictions: Evictions of gangs of each queue in the last hour, for a bound of a queue.
    """

    state: State
    scorer: Scorer
    running: Sequence[RunningGang]
    at_ms: int
    silent: Fits | None = None
    taken: Sequence[tuple[Gang, Placement]] = ()
    shares: Shares | None = None
    usage: Usage | None = None
    queue_evictions: Mapping[str, int] = {}


class Search:
    """A search for victims during one round.

    Args:
        ground: What it sees of the round.
        terms: Settings of the epoch.
    """

    def __init__(self, ground: Ground, terms: Terms) -> None:
        self._ground = ground
        self._terms = terms

    def find(self, preemptor: Preemptor) -> VictimSet | NoVictims:
        """The cheapest victims of a preemptor with its placement, or why there are none.

        It is deterministic: equal grounds and equal calls before give equal results. The caller asks only about gangs
        that an eviction may help: refused for room or by ``over-capability``, with no place reserved.

        Args:
            preemptor: The gang; its class was refused on all nodes in this round.
        """
        raise NotImplementedError

    def accept(self, preemptor: Preemptor, found: VictimSet) -> None:
        """Count a result for the preemptors behind: its victims are leaving, and its places are taken."""
        raise NotImplementedError
