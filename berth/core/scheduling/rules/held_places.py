"""Held places: a job that starts anew as a whole finds the places again that are held for it."""

from berth.core.gangs import Gang
from berth.core.scheduling.rules.port import Rule, TurnStart
from berth.core.scheduling.turn import Returning
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.core.topologies.leaving import LeavingPods


class HeldPlaces(Rule):
    """Gangs with held places are tried before others, once they may find their other places."""

    def returning(self, start: TurnStart) -> list[Returning]:
        """Gangs that the turn tries anyway; all of them when nodes have more room than before."""
        state, queue = start.state, start.queue
        uids = {gang.uid for gang in start.taken}
        has_gained = bool(start.changes.capacity_gained or start.changes.chips_returned)
        found: list[Returning] = []
        for uid, held in sorted(state.fold.held.items()):
            if held.awaits:
                continue
            gang = queue.gang(uid) if has_gained or uid in uids else None
            if gang is not None and gang.invalid is None and gang.pods == held.placement.pods():
                gang = start.terms.applied(gang)
                found.append(Returning(gang, _pods(state, gang, held)))
        return found


def _pods(state: State, gang: Gang, held: Held) -> LeavingPods:
    """All pods of a gang; those whose places are held can return."""
    record = state.fold.gangs.get(gang.uid)
    recovery = record.recovery if record is not None and not held.is_reserved else None
    ranks, kept = range(gang.pods), set(held.ranks)
    failed_nodes = tuple(recovery.nodes) if recovery is not None else ()
    names = held.placement.names()
    faulty = [rank for rank in recovery.faulty if names[rank] in failed_nodes] if recovery is not None else []
    return LeavingPods(
        gang,
        held.placement,
        tuple(ranks),
        tuple(faulty),  # others have a place that was reserved for them
        tuple(rank for rank in ranks if rank not in kept),
        "job",
        failed_nodes=failed_nodes,
        have_ended=True,
    )
