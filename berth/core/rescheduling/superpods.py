"""Blocks after a fault: which keep their nodes, which are mended where they are, which move.

A pod that runs never moves. Where a block with such pods can get no node for a lost one in its SuperPoD, the plan says so:
its pods have to be deleted before the block can move. The reference lists other nodes for them instead (decision D-10),
which ``parity`` restores.

Source: docs/reference/superpods.md, "Places after a fault" and "Where Berth decides otherwise".
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from berth.core.rescheduling.block_history import NOWHERE, FailureKind, Held, PodFate
from berth.core.superpods.block_selection import Ask, decisions_of, select
from berth.core.superpods.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    CandidatePool,
    Lack,
    NoBlocks,
    Phase,
    Rows,
    Rules,
    closest,
)
from berth.core.superpods.planner import candidates, drawn, not_enough_nodes

RELEASE_WAIT_MS: Final = 10_000
"""How long after its first try a gang waits for its own healthy nodes to be given back."""


class Stuck(NamedTuple):
    """Blocks that cannot get what they lack in their SuperPoD, while some of their pods run.

    Attributes:
        vids: Their ids, ascending: all their pods have to be deleted before they can move.
        lack: How many nodes are missing.
    """

    vids: tuple[int, ...]
    lack: NoBlocks


class _Settled(NamedTuple):
    """A block whose nodes are decided, by position."""

    held: Held
    pod: int
    rows: list[int]
    phase: Phase


class _Ground:
    """Candidates as they are handed out."""

    def __init__(self, pool: CandidatePool, worn: Collection[int]) -> None:
        """All candidates of the yard are free."""
        self.pool = pool
        self.gone = np.zeros(len(pool.rows), np.bool_)
        self._worn = worn
        self._index = {name: pod for pod, name in enumerate(pool.ids)}
        self._place = np.full(int(pool.rows.max(initial=0)) + 1, NOWHERE, np.int64)
        self._place[pool.rows] = np.arange(len(pool.rows))
        self._queues: dict[str, list[int]] = {}

    def pod(self, superpod: str) -> int:
        """A SuperPoD as its index; -1 where the yard does not know it."""
        return self._index.get(superpod, NOWHERE)

    def is_free(self, row: int) -> bool:
        """A node is a candidate that nobody took."""
        place = int(self._place[row]) if 0 <= row < len(self._place) else NOWHERE
        return place != NOWHERE and not self.gone[place]

    def free(self, superpod: str) -> int:
        """Candidates of a SuperPoD that nobody took."""
        places = self._places(superpod)
        return len(places) - int(self.gone[places.start : places.stop].sum())

    def take(self, row: int) -> int:
        """Takes a free node."""
        self.gone[self._place[row]] = True
        return row

    def take_next(self, superpod: str) -> int:
        """Takes the next free node of a SuperPoD that has one: nodes that failed for this gang come last."""
        if superpod not in self._queues:
            places = self._places(superpod)
            rows = self.pool.rows[places.start : places.stop].tolist()
            self._queues[superpod] = sorted(rows, key=lambda row: row in self._worn)[::-1]
        queue = self._queues[superpod]
        while not self.is_free(queue[-1]):
            queue.pop()
        return self.take(queue[-1])

    def fill(self, rows: list[int], superpod: str) -> list[int]:
        """Positions without a node get free ones of a SuperPoD."""
        return [self.take_next(superpod) if row == NOWHERE else row for row in rows]

    def _places(self, superpod: str) -> range:
        pod = self.pod(superpod)
        return range(0) if pod == NOWHERE else range(int(self.pool.starts[pod]), int(self.pool.starts[pod + 1]))


class _Halfway(NamedTuple):
    """What is decided before other SuperPoDs are looked at.

    Attributes:
        settled: Blocks whose nodes are decided, by id.
        rest: Candidates that are left.
        ask: Blocks and nodes that are still to be found.
        is_overdrawn: Parity only: a block with pods that run took a whole block of nodes (decision D-10).
    """

    settled: dict[int, _Settled]
    rest: CandidatePool
    ask: Ask
    is_overdrawn: bool = False


def plan_again(
    pool: CandidatePool, demand: BlockDemand, rules: Rules, failure: FailureKind
) -> BlockPlan | NoBlocks | Stuck:
    """Where the pods of a gang go after a fault.

    Source: docs/reference/superpods.md, "Places after a fault".

    Args:
        pool: Candidates; the nodes of pods that run are not among them, those of pods that return may be.
        demand: What the gang asks.
        rules: Reserve, size, and whether decisions go the reference's way.
        failure: Its blocks and what became of them.
    """
    found = _halfway(pool, demand, rules, failure)
    if not isinstance(found, _Halfway):
        return found
    grants: tuple[BlockAllocation, ...] | NoBlocks = ()
    if found.ask.open_ids or found.ask.missing > 0:
        grants = select(pool.ids, found.rest.counts, found.ask, rules)
    if isinstance(grants, NoBlocks):
        return grants
    return _copied_plan(found, demand, grants) if rules.parity else _mended_plan(found, demand, grants)


def decisions_after(pool: CandidatePool, demand: BlockDemand, rules: Rules, failure: FailureKind) -> tuple[str, ...]:
    """Documented decisions that can change the plan.

    D-10: pods that run are moved, or nodes are set aside for it. D-3: a block is opened that nobody needs. D-5: more nodes
    are taken than are missing. D-8: a new piece goes by the id of one that stays. The rest: those of the selection.
    """
    copied = _halfway(pool, demand, rules._replace(parity=True), failure)
    if not isinstance(copied, _Halfway):
        return ()
    names = dict.fromkeys(decisions_of(pool.ids, copied.rest.counts, copied.ask, rules))
    grants = select(pool.ids, copied.rest.counts, copied.ask, rules._replace(parity=True))
    if not isinstance(grants, NoBlocks):
        if sum(allocation.nodes for allocation in grants) > copied.ask.missing:
            names["D-5"] = None
        if any(allocation.block_id in copied.settled for allocation in grants):
            names["D-8"] = None
    if _vain(demand, failure):
        names["D-3"] = None
    if copied.is_overdrawn or any(held.runs and held.block_id not in copied.settled for held in failure.held):
        names["D-10"] = None
    return tuple(names)


def _halfway(
    pool: CandidatePool, demand: BlockDemand, rules: Rules, failure: FailureKind
) -> _Halfway | NoBlocks | Stuck:
    pool = candidates(pool, demand)
    ground = _Ground(pool, failure.worn)
    pending = demand.replicas - failure.runs
    if len(pool.rows) < pending and not (failure.runs and len(pool.rows)):
        return not_enough_nodes(pool, demand._replace(replicas=pending))
    if not failure.is_pod_level and failure.waited_ms < RELEASE_WAIT_MS:
        late = [row for row in _healthy(failure.held, with_running=rules.parity) if not ground.is_free(row)]
        if late:
            return _none("wait", pool, demand, failure.held, nodes=(len(late), 0))
    return _copied(ground, demand, failure, pending) if rules.parity else _mended(ground, demand, failure, pending)


def _healthy(held: Iterable[Held], *, with_running: bool) -> Iterable[int]:
    """Nodes that did not fail and that the gang gives back."""
    for block in held:
        for row, stay in zip(block.rows, block.stays, strict=True):
            if stay is PodFate.RETURNS or (with_running and stay is PodFate.RUNS):
                yield row


def _own(ground: _Ground, held: Held) -> list[int]:
    """Takes the nodes of pods that return and whose node is free; :data:`NOWHERE` for all other pods but those that run."""
    return [
        row
        if stay is PodFate.RUNS
        else ground.take(row)
        if stay is PodFate.RETURNS and ground.is_free(row)
        else NOWHERE
        for row, stay in zip(held.rows, held.stays, strict=True)
    ]


def _mended(ground: _Ground, demand: BlockDemand, failure: FailureKind, pending: int) -> _Halfway | Stuck:
    """Blocks that stay: those with pods that run come first, since they have nowhere else to go."""
    settled: dict[int, _Settled] = {}
    damaged: list[Held] = []
    for held in failure.held:
        returning = [row for row, stay in zip(held.rows, held.stays, strict=True) if stay is PodFate.RETURNS]
        if held.is_damaged or not all(map(ground.is_free, returning)):
            damaged.append(held)
        else:
            settled[held.block_id] = _Settled(held, ground.pod(held.superpod), _own(ground, held), "kept")
    torn = [_Settled(held, ground.pod(held.superpod), _own(ground, held), "replaced") for held in damaged if held.runs]
    owed: Counter[str] = Counter()
    stuck: list[_Settled] = []
    for block in torn:
        lacking = block.rows.count(NOWHERE)
        if owed[block.held.superpod] + lacking > ground.free(block.held.superpod):
            stuck.append(block)
        else:
            owed[block.held.superpod] += lacking
    if stuck:
        return _stuck(ground, demand, stuck, owed)
    owed_counts = Counter(owed)
    for held in damaged:
        left = ground.free(held.superpod) - owed[held.superpod]
        if not held.runs and left + owed_counts[held.superpod] >= demand.block and left >= len(held.rows):
            block = _Settled(held, ground.pod(held.superpod), _own(ground, held), "rebuilt")
            owed[held.superpod] += block.rows.count(NOWHERE)
            torn.append(block)
    for block in torn:
        settled[block.held.block_id] = block._replace(rows=ground.fill(block.rows, block.held.superpod))
    return _Halfway(settled, ground.pool.without(ground.gone), _ask(demand, settled, pending, _vain(demand, failure)))


def _stuck(ground: _Ground, demand: BlockDemand, stuck: Sequence[_Settled], owed: Counter[str]) -> Stuck:
    """Blocks that lack more than their SuperPoD has."""
    homes = dict.fromkeys(block.held.superpod for block in stuck)
    lacking = sum(block.rows.count(NOWHERE) for block in stuck)
    have = sum(ground.free(home) - owed[home] for home in homes)
    held = [block.held for block in stuck]
    return Stuck(
        tuple(block.block_id for block in held),
        _none("home", ground.pool.without(ground.gone), demand, held, nodes=(lacking, have)),
    )


def _copied(ground: _Ground, demand: BlockDemand, failure: FailureKind, pending: int) -> _Halfway | NoBlocks:
    """Blocks that stay, the reference's way."""
    lack = _copied_lack(ground, demand, failure)
    if lack is not None:
        return lack
    settled: dict[int, _Settled] = {}
    damaged: list[Held] = []
    for held in failure.held:
        if held.is_damaged or not (failure.is_pod_level or all(map(ground.is_free, held.rows))):
            damaged.append(held)
            continue
        settled[held.block_id] = _Settled(held, ground.pod(held.superpod), list(held.rows), "kept")
        for row in filter(ground.is_free, held.rows):
            ground.take(row)
    is_overdrawn = False
    for held in damaged:
        if ground.free(held.superpod) >= demand.block:
            rows = [
                ground.take(row) if stay is not PodFate.LOST and ground.is_free(row) else NOWHERE
                for row, stay in zip(held.rows, held.stays, strict=True)
            ]
            settled[held.block_id] = _Settled(
                held, ground.pod(held.superpod), ground.fill(rows, held.superpod), "rebuilt"
            )
            is_overdrawn |= held.runs > 0
    for held in damaged if failure.is_pod_level else ():
        lost = held.stays.count(PodFate.LOST)
        if lost == 0:
            settled[held.block_id] = _Settled(held, ground.pod(held.superpod), list(held.rows), "kept")
        elif lost <= ground.free(held.superpod) and pending < len(held.rows):
            rows = [NOWHERE if stay is PodFate.LOST else row for row, stay in zip(held.rows, held.stays, strict=True)]
            settled[held.block_id] = _Settled(
                held, ground.pod(held.superpod), ground.fill(rows, held.superpod), "replaced"
            )
    return _Halfway(settled, ground.pool.without(ground.gone), _ask(demand, settled, pending), is_overdrawn)


def _copied_lack(ground: _Ground, demand: BlockDemand, failure: FailureKind) -> NoBlocks | None:
    """The reference's look at whether pods can return at all, which passes as soon as one block returns as a whole."""
    homes: Counter[str] = Counter()
    for held in failure.held:
        running = held.runs if failure.is_pod_level else 0
        if not running:
            return None
        homes[held.superpod] += len(held.rows) - running
    short = {home: number for home, number in homes.items() if ground.free(home) < number}
    if not short:
        return None
    torn = [held for held in failure.held if held.superpod in short]
    return _none("home", ground.pool, demand, torn, nodes=(sum(short.values()), sum(map(ground.free, short))))


def _ask(demand: BlockDemand, settled: Mapping[int, _Settled], pending: int, vain: Collection[int] = ()) -> Ask:
    """What is still to be found; ``vain`` ids stay closed."""
    return Ask(
        demand.variant,
        demand.block,
        [block_id for block_id in range(demand.blocks) if block_id not in settled and block_id not in vain],
        demand.replicas - sum(len(block.rows) for block in settled.values()),
        demand.blocks + sum(block_id >= demand.blocks for block_id in settled),
        demand.soft,
        demand._replace(pending=pending).is_partial,
    )


def _vain(demand: BlockDemand, failure: FailureKind) -> list[int]:
    """Ids that had no nodes and need none, since others had all that the gang needs (decision D-3)."""
    known = {held.block_id for held in failure.held}
    unknown = max(0, demand.replicas - sum(len(held.rows) for held in failure.held))
    return [block_id for block_id in range(demand.blocks) if block_id not in known][-(-unknown // demand.block) :]


def _copied_plan(found: _Halfway, demand: BlockDemand, grants: Sequence[BlockAllocation]) -> BlockPlan:
    """Ranks by a walk over all blocks, as the reference has them."""
    rows, vids, pods = _nodes_of(found, grants)
    walk = np.argsort(vids, kind="stable")[: demand.replicas]
    plan = _nowhere(demand)
    for field, values in ((plan.rows, rows), (plan.vids, vids), (plan.pods, pods)):
        field[: len(walk)] = values[walk]
    return plan._replace(grants=(*_kept_grants(found), *grants))


def _mended_plan(found: _Halfway, demand: BlockDemand, grants: Sequence[BlockAllocation]) -> BlockPlan:
    """Blocks that stay keep their ranks; the others go by id to the ranks that are open."""
    grants = _fitted(found, demand, grants)
    rows, vids, pods = _nodes_of(found, grants)
    settled = [rank for block in found.settled.values() for rank in block.held.ranks]
    is_open = np.ones(demand.replicas, np.bool_)
    is_open[settled] = False
    walk = np.argsort(vids[len(settled) :], kind="stable") + len(settled)
    ranks = np.concatenate([np.array(settled, np.int64), np.flatnonzero(is_open)])
    order = np.concatenate([np.arange(len(settled)), walk])
    plan = _nowhere(demand)
    for field, values in ((plan.rows, rows), (plan.vids, vids), (plan.pods, pods)):
        field[ranks] = values[order]
    return plan._replace(grants=(*_kept_grants(found), *grants))


def _fitted(found: _Halfway, demand: BlockDemand, grants: Sequence[BlockAllocation]) -> list[BlockAllocation]:
    """No more nodes than are missing (decision D-5), and no new piece by the id of one that stays (D-8)."""
    free_ids = (block_id for block_id in count(found.ask.next_id) if block_id not in found.settled)
    missing = found.ask.missing
    fitted = []
    for allocation in grants:
        nodes = min(allocation.nodes, missing)
        if nodes:
            block_id = allocation.block_id if allocation.block_id < demand.blocks else next(free_ids)
            fitted.append(allocation._replace(block_id=block_id, nodes=nodes))
        missing -= nodes
    return fitted


def _nodes_of(found: _Halfway, grants: Sequence[BlockAllocation]) -> tuple[Rows, Rows, Rows]:
    """Node, block and SuperPoD: first of the blocks that stay, by position, then of what was selected."""
    settled = found.settled.items()
    new = drawn(found.rest, grants, sum(allocation.nodes for allocation in grants))
    return (
        np.array([row for _, block in settled for row in block.rows] + new.rows.tolist(), np.int64),
        np.array([block_id for block_id, block in settled for _ in block.rows] + new.vids.tolist(), np.int64),
        np.array([block.pod for _, block in settled for _ in block.rows] + new.pods.tolist(), np.int64),
    )


def _kept_grants(found: _Halfway) -> tuple[BlockAllocation, ...]:
    return tuple(
        BlockAllocation(block_id, block.pod, len(block.rows), block.phase)
        for block_id, block in sorted(found.settled.items())
    )


def _nowhere(demand: BlockDemand) -> BlockPlan:
    """A plan without a node for any rank."""
    rows, vids, pods = np.full((3, demand.replicas), NOWHERE, np.int64)
    return BlockPlan(rows, vids, pods, ())


def _none(
    lack: Lack, pool: CandidatePool, demand: BlockDemand, held: Sequence[Held], *, nodes: tuple[int, int]
) -> NoBlocks:
    """Why there is no plan; ``nodes`` needed and found."""
    counts = pool.counts
    return NoBlocks(
        lack=lack,
        block=demand.block,
        blocks_need=sum(block.runs < len(block.rows) for block in held),
        blocks_have=int((counts // demand.block).sum()),
        nodes_need=nodes[0],
        nodes_have=nodes[1],
        closest=closest(pool.ids, counts, demand.block),
    )
