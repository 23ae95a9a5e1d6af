"""Blocks after a fault: which keep their nodes, which are mended where they are, which move.

A pod that runs never moves. Where a block with such pods can get no node for a lost one in its SuperPoD, the plan says so:
its pods have to be deleted before the block can move. The reference lists other nodes for them instead (decision D-10),
which ``parity`` restores.

Source: specification, SuperPoD affinity, sections 7.2, 13 and 16.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from berth.core.rescheduling.block_history import NOWHERE, Held, Setback, Stay
from berth.core.superpods.block_selection import Ask, decisions_of, select
from berth.core.superpods.model import BlockPlan, Grant, Lack, NoBlocks, Phase, Rows, Rules, Want, Yard, closest
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

    def __init__(self, yard: Yard, worn: Collection[int]) -> None:
        """All candidates of the yard are free."""
        self.yard = yard
        self.gone = np.zeros(len(yard.rows), np.bool_)
        self._worn = worn
        self._index = {name: pod for pod, name in enumerate(yard.ids)}
        self._place = np.full(int(yard.rows.max(initial=0)) + 1, NOWHERE, np.int64)
        self._place[yard.rows] = np.arange(len(yard.rows))
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
            rows = self.yard.rows[places.start : places.stop].tolist()
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
        return range(0) if pod == NOWHERE else range(int(self.yard.starts[pod]), int(self.yard.starts[pod + 1]))


class _Halfway(NamedTuple):
    """What is decided before other SuperPoDs are looked at.

    Attributes:
        settled: Blocks whose nodes are decided, by id.
        rest: Candidates that are left.
        ask: Blocks and nodes that are still to be found.
        is_overdrawn: Parity only: a block with pods that run took a whole block of nodes (decision D-10).
    """

    settled: dict[int, _Settled]
    rest: Yard
    ask: Ask
    is_overdrawn: bool = False


def plan_again(yard: Yard, want: Want, rules: Rules, setback: Setback) -> BlockPlan | NoBlocks | Stuck:
    """Where the pods of a gang go after a fault.

    Source: specification, SuperPoD affinity, section 7.2.

    Args:
        yard: Candidates; the nodes of pods that run are not among them, those of pods that return may be.
        want: What the gang asks.
        rules: Reserve, size, and whether decisions go the reference's way.
        setback: Its blocks and what became of them.
    """
    found = _halfway(yard, want, rules, setback)
    if not isinstance(found, _Halfway):
        return found
    grants: tuple[Grant, ...] | NoBlocks = ()
    if found.ask.open_ids or found.ask.missing > 0:
        grants = select(yard.ids, found.rest.counts, found.ask, rules)
    if isinstance(grants, NoBlocks):
        return grants
    return _copied_plan(found, want, grants) if rules.parity else _mended_plan(found, want, grants)


def decisions_after(yard: Yard, want: Want, rules: Rules, setback: Setback) -> tuple[str, ...]:
    """Documented decisions that can change the plan.

    D-10: pods that run are moved, or nodes are set aside for it. D-3: a block is opened that nobody needs. D-5: more nodes
    are taken than are missing. D-8: a new piece goes by the id of one that stays. The rest: those of the selection.
    """
    copied = _halfway(yard, want, rules._replace(parity=True), setback)
    if not isinstance(copied, _Halfway):
        return ()
    names = dict.fromkeys(decisions_of(yard.ids, copied.rest.counts, copied.ask, rules))
    grants = select(yard.ids, copied.rest.counts, copied.ask, rules._replace(parity=True))
    if not isinstance(grants, NoBlocks):
        if sum(grant.nodes for grant in grants) > copied.ask.missing:
            names["D-5"] = None
        if any(grant.vid in copied.settled for grant in grants):
            names["D-8"] = None
    if _vain(want, setback):
        names["D-3"] = None
    if copied.is_overdrawn or any(held.runs and held.vid not in copied.settled for held in setback.held):
        names["D-10"] = None
    return tuple(names)


def _halfway(yard: Yard, want: Want, rules: Rules, setback: Setback) -> _Halfway | NoBlocks | Stuck:
    yard = candidates(yard, want)
    ground = _Ground(yard, setback.worn)
    pending = want.replicas - setback.runs
    if len(yard.rows) < pending and not (setback.runs and len(yard.rows)):
        return not_enough_nodes(yard, want._replace(replicas=pending))
    if not setback.is_pod_level and setback.waited_ms < RELEASE_WAIT_MS:
        late = [row for row in _healthy(setback.held, with_running=rules.parity) if not ground.is_free(row)]
        if late:
            return _none("wait", yard, want, setback.held, nodes=(len(late), 0))
    return _copied(ground, want, setback, pending) if rules.parity else _mended(ground, want, setback, pending)


def _healthy(held: Iterable[Held], *, with_running: bool) -> Iterable[int]:
    """Nodes that did not fail and that the gang gives back."""
    for block in held:
        for row, stay in zip(block.rows, block.stays, strict=True):
            if stay is Stay.RETURNS or (with_running and stay is Stay.RUNS):
                yield row


def _own(ground: _Ground, held: Held) -> list[int]:
    """Takes the nodes of pods that return and whose node is free; :data:`NOWHERE` for all other pods but those that run."""
    return [
        row if stay is Stay.RUNS else ground.take(row) if stay is Stay.RETURNS and ground.is_free(row) else NOWHERE
        for row, stay in zip(held.rows, held.stays, strict=True)
    ]


def _mended(ground: _Ground, want: Want, setback: Setback, pending: int) -> _Halfway | Stuck:
    """Blocks that stay: those with pods that run come first, since they have nowhere else to go."""
    settled: dict[int, _Settled] = {}
    damaged: list[Held] = []
    for held in setback.held:
        returning = [row for row, stay in zip(held.rows, held.stays, strict=True) if stay is Stay.RETURNS]
        if held.is_damaged or not all(map(ground.is_free, returning)):
            damaged.append(held)
        else:
            settled[held.vid] = _Settled(held, ground.pod(held.superpod), _own(ground, held), "kept")
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
        return _stuck(ground, want, stuck, owed)
    owed_counts = Counter(owed)
    for held in damaged:
        left = ground.free(held.superpod) - owed[held.superpod]
        if not held.runs and left + owed_counts[held.superpod] >= want.block and left >= len(held.rows):
            block = _Settled(held, ground.pod(held.superpod), _own(ground, held), "rebuilt")
            owed[held.superpod] += block.rows.count(NOWHERE)
            torn.append(block)
    for block in torn:
        settled[block.held.vid] = block._replace(rows=ground.fill(block.rows, block.held.superpod))
    return _Halfway(settled, ground.yard.without(ground.gone), _ask(want, settled, pending, _vain(want, setback)))


def _stuck(ground: _Ground, want: Want, stuck: Sequence[_Settled], owed: Counter[str]) -> Stuck:
    """Blocks that lack more than their SuperPoD has."""
    homes = dict.fromkeys(block.held.superpod for block in stuck)
    lacking = sum(block.rows.count(NOWHERE) for block in stuck)
    have = sum(ground.free(home) - owed[home] for home in homes)
    held = [block.held for block in stuck]
    return Stuck(
        tuple(block.vid for block in held),
        _none("home", ground.yard.without(ground.gone), want, held, nodes=(lacking, have)),
    )


def _copied(ground: _Ground, want: Want, setback: Setback, pending: int) -> _Halfway | NoBlocks:
    """Blocks that stay, the reference's way."""
    lack = _copied_lack(ground, want, setback)
    if lack is not None:
        return lack
    settled: dict[int, _Settled] = {}
    damaged: list[Held] = []
    for held in setback.held:
        if held.is_damaged or not (setback.is_pod_level or all(map(ground.is_free, held.rows))):
            damaged.append(held)
            continue
        settled[held.vid] = _Settled(held, ground.pod(held.superpod), list(held.rows), "kept")
        for row in filter(ground.is_free, held.rows):
            ground.take(row)
    is_overdrawn = False
    for held in damaged:
        if ground.free(held.superpod) >= want.block:
            rows = [
                ground.take(row) if stay is not Stay.LOST and ground.is_free(row) else NOWHERE
                for row, stay in zip(held.rows, held.stays, strict=True)
            ]
            settled[held.vid] = _Settled(held, ground.pod(held.superpod), ground.fill(rows, held.superpod), "rebuilt")
            is_overdrawn |= held.runs > 0
    for held in damaged if setback.is_pod_level else ():
        lost = held.stays.count(Stay.LOST)
        if lost == 0:
            settled[held.vid] = _Settled(held, ground.pod(held.superpod), list(held.rows), "kept")
        elif lost <= ground.free(held.superpod) and pending < len(held.rows):
            rows = [NOWHERE if stay is Stay.LOST else row for row, stay in zip(held.rows, held.stays, strict=True)]
            settled[held.vid] = _Settled(held, ground.pod(held.superpod), ground.fill(rows, held.superpod), "replaced")
    return _Halfway(settled, ground.yard.without(ground.gone), _ask(want, settled, pending), is_overdrawn)


def _copied_lack(ground: _Ground, want: Want, setback: Setback) -> NoBlocks | None:
    """The reference's look at whether pods can return at all, which passes as soon as one block returns as a whole."""
    homes: Counter[str] = Counter()
    for held in setback.held:
        running = held.runs if setback.is_pod_level else 0
        if not running:
            return None
        homes[held.superpod] += len(held.rows) - running
    short = {home: number for home, number in homes.items() if ground.free(home) < number}
    if not short:
        return None
    torn = [held for held in setback.held if held.superpod in short]
    return _none("home", ground.yard, want, torn, nodes=(sum(short.values()), sum(map(ground.free, short))))


def _ask(want: Want, settled: Mapping[int, _Settled], pending: int, vain: Collection[int] = ()) -> Ask:
    """What is still to be found; ``vain`` ids stay closed."""
    return Ask(
        want.variant,
        want.block,
        [vid for vid in range(want.blocks) if vid not in settled and vid not in vain],
        want.replicas - sum(len(block.rows) for block in settled.values()),
        want.blocks + sum(vid >= want.blocks for vid in settled),
        want.soft,
        want._replace(pending=pending).is_partial,
    )


def _vain(want: Want, setback: Setback) -> list[int]:
    """Ids that had no nodes and need none, since others had all that the gang needs (decision D-3)."""
    known = {held.vid for held in setback.held}
    unknown = max(0, want.replicas - sum(len(held.rows) for held in setback.held))
    return [vid for vid in range(want.blocks) if vid not in known][-(-unknown // want.block) :]


def _copied_plan(found: _Halfway, want: Want, grants: Sequence[Grant]) -> BlockPlan:
    """Ranks by a walk over all blocks, as the reference has them."""
    rows, vids, pods = _nodes_of(found, grants)
    walk = np.argsort(vids, kind="stable")[: want.replicas]
    plan = _nowhere(want)
    for field, values in ((plan.rows, rows), (plan.vids, vids), (plan.pods, pods)):
        field[: len(walk)] = values[walk]
    return plan._replace(grants=(*_kept_grants(found), *grants))


def _mended_plan(found: _Halfway, want: Want, grants: Sequence[Grant]) -> BlockPlan:
    """Blocks that stay keep their ranks; the others go by id to the ranks that are open."""
    grants = _fitted(found, want, grants)
    rows, vids, pods = _nodes_of(found, grants)
    settled = [rank for block in found.settled.values() for rank in block.held.ranks]
    is_open = np.ones(want.replicas, np.bool_)
    is_open[settled] = False
    walk = np.argsort(vids[len(settled) :], kind="stable") + len(settled)
    ranks = np.concatenate([np.array(settled, np.int64), np.flatnonzero(is_open)])
    order = np.concatenate([np.arange(len(settled)), walk])
    plan = _nowhere(want)
    for field, values in ((plan.rows, rows), (plan.vids, vids), (plan.pods, pods)):
        field[ranks] = values[order]
    return plan._replace(grants=(*_kept_grants(found), *grants))


def _fitted(found: _Halfway, want: Want, grants: Sequence[Grant]) -> list[Grant]:
    """No more nodes than are missing (decision D-5), and no new piece by the id of one that stays (D-8)."""
    free_ids = (vid for vid in count(found.ask.next_id) if vid not in found.settled)
    missing = found.ask.missing
    fitted = []
    for grant in grants:
        nodes = min(grant.nodes, missing)
        if nodes:
            vid = grant.vid if grant.vid < want.blocks else next(free_ids)
            fitted.append(grant._replace(vid=vid, nodes=nodes))
        missing -= nodes
    return fitted


def _nodes_of(found: _Halfway, grants: Sequence[Grant]) -> tuple[Rows, Rows, Rows]:
    """Node, block and SuperPoD: first of the blocks that stay, by position, then of what was selected."""
    settled = found.settled.items()
    new = drawn(found.rest, grants, sum(grant.nodes for grant in grants))
    return (
        np.array([row for _, block in settled for row in block.rows] + new.rows.tolist(), np.int64),
        np.array([vid for vid, block in settled for _ in block.rows] + new.vids.tolist(), np.int64),
        np.array([block.pod for _, block in settled for _ in block.rows] + new.pods.tolist(), np.int64),
    )


def _kept_grants(found: _Halfway) -> tuple[Grant, ...]:
    return tuple(Grant(vid, block.pod, len(block.rows), block.phase) for vid, block in sorted(found.settled.items()))


def _nowhere(want: Want) -> BlockPlan:
    """A plan without a node for any rank."""
    rows, vids, pods = np.full((3, want.replicas), NOWHERE, np.int64)
    return BlockPlan(rows, vids, pods, ())


def _none(lack: Lack, yard: Yard, want: Want, held: Sequence[Held], *, nodes: tuple[int, int]) -> NoBlocks:
    """Why there is no plan; ``nodes`` needed and found."""
    counts = yard.counts
    return NoBlocks(
        lack=lack,
        block=want.block,
        blocks_need=sum(block.runs < len(block.rows) for block in held),
        blocks_have=int((counts // want.block).sum()),
        nodes_need=nodes[0],
        nodes_have=nodes[1],
        closest=closest(yard.ids, counts, want.block),
    )
