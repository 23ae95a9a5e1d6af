"""New places for leaving pods of a gang with switch affinity.

Pods without a fault that can return count as pods that stay. If the others find no places beside them, all leaving pods
are planned anew. A pod never gets the node of another one that can return to it: the two swap their nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.switches.occupancy.leaf_bits import STATE
from berth.core.topologies.switches.occupancy.leaf_states import Bits
from berth.core.topologies.switches.occupancy.leaf_table import Grid
from berth.core.topologies.switches.placed import SwitchPlacement, switch_of
from berth.core.topologies.switches.planner import Demand, LeafPool, NoPlan, Plan, plan
from berth.core.topologies.switches.rescheduling import PartialGang, plan_partial
from berth.core.topologies.switches.rounds.leaf_round import LeafRound, demand_of
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement
from berth.schemas.refusal import SwitchLack


class LeafReplacement(NamedTuple):
    """New places of the planned pods that leave.

    Attributes:
        rows: Row of each of them, by rank.
        part: What the new places record of the plan.
    """

    rows: dict[int, int]
    part: SwitchPlacement


class LeavesMissing(NamedTuple):
    """Why there are no new places.

    Attributes:
        lack: What is missing.
        ranks: Ranks that keep their places; a plan of the whole gang would need them to leave as well. Empty if there
            is no such plan.
    """

    lack: SwitchLack
    ranks: list[int]


class _Trial(NamedTuple):
    """Pods to plan.

    Attributes:
        kept: Row of each leaving pod that returns, by rank.
        usable: Places for the others, shape (leaves, places).
    """

    kept: Mapping[int, int]
    usable: Grid


def replace_below_leaves(
    leaves: LeafRound, leaving: LeavingPods, own: OwnPlaces, usable: Grid
) -> LeafReplacement | LeavesMissing:
    """New places of the planned pods that leave, or what is missing.

    Args:
        leaves: Leaf switches of the round.
        leaving: The leaving pods.
        own: Places of the gang.
        usable: Places that can take any of the pods, shape (leaves, places).
    """
    lacks: list[NoPlan] = []
    for trial in _trials(leaves, leaving, own, usable):
        found = _planned(leaves, leaving, own, trial)
        if not isinstance(found, NoPlan):
            return found
        lacks.append(found)
    return LeavesMissing(lacks[0].lack, _also(leaves, leaving, own, usable))


def _also(leaves: LeafRound, leaving: LeavingPods, own: OwnPlaces, usable: Grid) -> list[int]:
    """Ranks that stay, if there is a plan of the whole gang with all places that it has or can get."""
    staying = [rank for rank in own.staying if own.shapes[rank].is_planned]
    ranks = [rank for rank in leaving.ranks if own.shapes[rank].is_planned]
    if not staying:
        return []
    nodes = [own.pods[rank].node for rank in staying if own.could_return(rank)]
    nodes += [own.pods[rank].node for rank in ranks if own.usable(rank) is not None]
    pool = leaves.pool(_marked(leaves, usable, nodes, value=True))
    pool = pool._replace(bits=_bits(leaves, leaving, own, []))
    found = plan(pool, demand_of(leaving.gang)._replace(replicas=len(staying) + len(ranks)), leaves.rules)
    return [] if isinstance(found, NoPlan) else staying


def _marked(leaves: LeafRound, marks: Grid, nodes: Iterable[str], *, value: bool) -> Grid:
    """A copy of marks of places, shape (leaves, places), with other marks for some nodes."""
    found = marks.copy()
    cell_of = leaves.leaves.cell_of
    found.reshape(-1)[[cell_of[name] for name in nodes if name in cell_of]] = value
    return found


def _trials(leaves: LeafRound, leaving: LeavingPods, own: OwnPlaces, usable: Grid) -> Iterator[_Trial]:
    """Pods to plan, and places for them: without the avoided nodes first, and with as many pods that return first."""
    names = own.pods
    ranks = [rank for rank in leaving.ranks if own.shapes[rank].is_planned]
    healthy = {rank: row for rank in ranks if rank not in leaving.faulty and (row := own.usable(rank)) is not None}
    faulty = [names[rank].node for rank in ranks if rank in leaving.faulty and own.usable(rank) is not None]
    open_places = _marked(leaves, usable, own.avoided_nodes, value=False)
    anywhere = _marked(leaves, usable, faulty, value=True)
    for kept in dict.fromkeys((tuple(healthy), ())):
        nodes = [names[rank].node for rank in healthy if rank not in kept]
        for marks in (open_places, anywhere):
            yield _Trial({rank: healthy[rank] for rank in kept}, _marked(leaves, marks, nodes, value=True))


def _planned(leaves: LeafRound, leaving: LeavingPods, own: OwnPlaces, trial: _Trial) -> LeafReplacement | NoPlan:
    """Plan of one trial."""
    table, gang = leaves.leaves, leaving.gang
    planned = [rank for rank, shape in enumerate(own.shapes) if shape.is_planned]
    states = _states(leaving.placement, len(own.pods))
    staying = [rank for rank in own.staying if own.shapes[rank].is_planned] + sorted(trial.kept)
    ranks = [rank for rank in leaving.ranks if own.shapes[rank].is_planned and rank not in trial.kept]
    cells = {rank: table.cell_of.get(own.pods[rank].node, -1) for rank in staying}
    reported = {rank: states[rank] for rank in trial.kept}
    if ranks:
        part = switch_of(leaving.placement)
        is_single = part is not None and part.annotated and any(not states[rank] & STATE for rank in staying)
        pool = leaves.pool(trial.usable)._replace(bits=_bits(leaves, leaving, own, sorted(staying)))
        demand = demand_of(gang)._replace(replicas=len(ranks))
        place = {rank: index for index, rank in enumerate(planned)}
        partial_gang = PartialGang(list(cells.values()), [place[rank] for rank in ranks], is_single)
        found = _plan(leaves, pool, demand, partial_gang)
        if isinstance(found, NoPlan):
            return found
        cells |= _settled(dict(zip(ranks, found.cells, strict=True)), own, table.cell_of)
        state_at = dict(zip(found.cells, found.states, strict=True))
        reported |= {rank: state_at[cells[rank]] for rank in ranks}
    rows = dict(zip(ranks, leaves.rows_of([cells[rank] for rank in ranks]), strict=True))
    return LeafReplacement(
        rows | dict(trial.kept),
        leaves.part_of(
            gang,
            [(cells[rank], reported[rank]) if own.shapes[rank].is_planned else None for rank in leaving.ranks],
            rule="replacement",
        ),
    )


def _plan(leaves: LeafRound, pool: LeafPool, demand: Demand, partial_gang: PartialGang) -> Plan | NoPlan:
    """Plan of the leaving pods: as a new gang where no pod stays."""
    if not partial_gang.cells:
        return plan(pool, demand, leaves.rules)
    return plan_partial(pool, demand, leaves.rules, partial_gang, leaves.leaves.node_names)


def _states(placement: Placement, pods: int) -> bytes:
    """State that each pod of a gang reports of its leaf."""
    part = switch_of(placement)
    return (part.states if part is not None else b"") or bytes(pods)


def _bits(leaves: LeafRound, leaving: LeavingPods, own: OwnPlaces, staying: Sequence[int]) -> Bits:
    """State byte of each leaf without the gang: only what its pods that stay report still counts."""
    occupancy, key = leaves.occupancy(), (leaving.gang.uid, leaving.gang.attempt)
    job = occupancy.job(key)
    if job is not None and any(job.states):
        states = _states(leaving.placement, len(own.pods))
        if not _say_the_same(leaving, states, staying):
            reported = bytes(states[rank] for rank in staying)
            nodes = [own.pods[rank].node for rank in staying]
            less = msgspec.structs.replace(job, nodes=nodes, states=reported if any(reported) else b"")
            return occupancy.bits(without=key, instead=less)
    return occupancy.bits(without=key)


def _say_the_same(leaving: LeavingPods, states: bytes, staying: Sequence[int]) -> bool:
    """Whether the pods that stay report all that the leaving ones do; a quick check that may say no wrongly."""
    part = switch_of(leaving.placement)
    if part is None or not part.leaf_index:
        return False
    leaves = unpack(part.leaf_index, 2)
    reported = {(leaves[rank], states[rank]) for rank in staying}
    return all(not states[rank] or (leaves[rank], states[rank]) in reported for rank in leaving.ranks)


def _settled(cells: dict[int, int], own: OwnPlaces, cell_of: Mapping[str, int]) -> dict[int, int]:
    """The same cells, where those to which pods can return belong to just these pods."""
    rank_at = {cell: rank for rank, cell in cells.items()}
    for rank in sorted(cells):
        home = cell_of.get(own.pods[rank].node, -1) if own.usable(rank) is not None else -1
        other = rank_at.get(home)
        if other is not None and other != rank:
            cells[other], cells[rank] = cells[rank], home
            rank_at[cells[other]], rank_at[home] = other, rank
    return cells
