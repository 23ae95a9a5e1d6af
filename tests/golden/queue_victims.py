"""What family ``queues_ours`` says of victims: who may go, which sets may, where there is room, and the cheapest set.

Each line is a cell of real nodes: one ring of four chips is half a 910A node, two rings are a whole one.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.gangs import Gang
from berth.core.placement.projected_state import ProjectedState
from berth.core.placement.scoring import Scorer
from berth.core.preemption.candidates import Eligible
from berth.core.preemption.choice import Picked, choose
from berth.core.preemption.footprints import Held, held_of
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import Candidate, Preemptor, RunningGang, Terms
from berth.core.preemption.pool import Pool
from berth.core.preemption.rooms import CountedRoom, Gains
from berth.core.preemption.slots import WholeGroups
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.shares import Shares
from berth.core.state.cell_fork import CellFork
from berth.core.state.ledger import Holding as Attempt
from berth.core.state.ledger import pods_of
from berth.schemas.placement import Placement, Run, placement_of
from tests.golden.harness import Differences, Line, differ
from tests.golden.queue_lines import amounts_of
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell
from tests.support.preemption_cells import gang_of_request

RING: Final = 4
PRODUCTS: Final[Mapping[int, str]] = {1: "half910x4", 2: "module910x8"}
"""Product by the rings of a node."""
RESOURCE: Final = "huawei.com/Ascend910"


class World(NamedTuple):
    """A line as a cell.

    Attributes:
        state: The cell.
        base: Its nodes.
        held: What each gang holds, by uid.
    """

    state: CellFork
    base: ProjectedState
    held: dict[str, Held]


def victim_differences(line: Line, shares: Shares, gangs: Sequence[Holding]) -> Differences:
    """Answers about victims that differ from those of a line."""
    result, raw = line["result"], {gang["uid"]: gang for gang in line["gangs"]}
    world = _world(line)
    preemptor = _preemptor(line, world.state)
    usage = Usage(shares.tree, gangs)
    running = [RunningGang(gang, 1, 0, 0, restarts=raw[gang.uid]["restarts"]) for gang in gangs]
    eligible = Eligible(running, Terms(), 0, shares=shares, queue_evictions={}, part=lambda _gang, _ranks: ({}, 0))
    candidates = [
        msgspec.structs.replace(one, lost=raw[one.gang.counted.uid]["lost"])
        for one in eligible.candidates(preemptor)[0]
    ]
    by_uid = {one.gang.counted.uid: one for one in candidates}
    differences = differ("candidates", sorted(result["candidates"]), sorted(by_uid))
    sets = [one[0] for one in result["allowed"] if len(one) == len(("set", "answer"))]
    allowed = [[uids, _is_allowed(uids, by_uid, Legality(preemptor, shares, usage))] for uids in sets]
    differences += differ("allowed", result["allowed"], allowed)
    pool = Pool(candidates, lambda one: world.held[one.gang.counted.uid], world.base, None, is_exact=False)
    fits, best = _best(line, world, pool, preemptor, Legality(preemptor, shares, usage))
    return differences + differ("fits_alone", result["fits_alone"], fits) + differ("best", result["best"], best)


def _world(line: Line) -> World:
    product, rings = PRODUCTS[line["rings"]], line["rings"]
    chips = rings * RING
    cell = CoreCell([a_node(name, product, chips=(1 << chips) - 1) for name in line["nodes"]], strict_job_shape=False)
    state = CellFork(cell.state)
    free = {(node, ring): [*range(ring * RING, ring * RING + RING)] for node in line["nodes"] for ring in range(rings)}
    held: dict[str, Held] = {}
    for number, gang in enumerate(line["gangs"], start=1):
        names, owned = [], []
        for node, ring, count in gang["pods"]:
            names.append(node)
            owned.append(tuple([free[node, ring].pop(0) for _ in range(count)]))
        runs = [Run(1, len(own), 0, 0) for own in owned]
        placement: Placement = placement_of(names, owned, runs, resource=RESOURCE, share=None, groups=[], claims=[])
        state.lay(Attempt("default", gang["uid"], gang["uid"], 1, placement, ledger_seq=number, at_ms=0))
        held[gang["uid"]] = held_of(state, pods_of(placement), placement)
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    return World(state, ProjectedState(state, scorer, None), held)


def _preemptor(line: Line, state: CellFork) -> Preemptor:
    asking = line["preemptor"]
    request = a_job(
        asking["uid"], chips=asking["chips_a_pod"], replicas=asking["pods"], product=PRODUCTS[line["rings"]]
    )
    gang: Gang = msgspec.structs.replace(
        gang_of_request(state, request),
        priority=asking["priority"],
        queue=asking["queue"],
        namespace="",
        charge=amounts_of(asking["request"]),
    )
    assert gang.invalid is None, gang.invalid
    return Preemptor(gang, is_never=asking["never"], was_reclaimed=asking["was_reclaimed"])


def _is_allowed(uids: Sequence[str], candidates: Mapping[str, Candidate], legality: Legality) -> bool:
    if not all(uid in candidates for uid in uids):
        return False
    for uid in uids:
        legality.add(candidates[uid])
    return legality.is_allowed()


def _best(
    line: Line, world: World, pool: Pool, preemptor: Preemptor, legality: Legality
) -> tuple[list[str], Mapping[str, object] | None]:
    """Places with room for the preemptor if nobody leaves, and the cheapest set of all places."""
    gains = Gains(pool, pool.counts(preemptor.gang), WholeGroups([]))
    helpers, row_of = legality.helpers(pool.candidates), world.state.table.row_of
    fits: list[str] = []
    found: list[tuple[object, int, int, str, list[Candidate]]] = []
    for order, (name, nodes) in enumerate(line["places"]):
        inside = np.zeros(len(world.state.table), np.bool_)
        inside[[row_of[node] for node in nodes]] = True
        room = CountedRoom(gains, inside)
        picked = Picked(room, legality)
        if room.fits():
            fits.append(name)
        victims = [] if picked.is_enough() else choose(pool.on(inside, helpers), picked, pool.prices)
        if victims is not None:
            found.append((pool.prices.of(victims), len(nodes), order, name, victims))
    if not found:
        return fits, None
    *_, name, victims = min(found, key=lambda one: one[:3])
    return fits, {"place": name, "victims": sorted(one.gang.counted.uid for one in victims)}
