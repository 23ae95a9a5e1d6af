"""Victims by brute force: each set of gangs is judged by its rules and planned; shares no code with the search."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from berth.core.placement.projected_state import ProjectedState, footprint_of
from berth.core.preemption.model import Preemptor, RunningGang, VictimSet
from berth.core.queues.shares import Shares
from berth.core.queues.tree import State
from berth.schemas.intake import JobRequest
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import CHIP, Queue
from tests.support.cells import a_job, a_node
from tests.support.core_cells import on
from tests.support.dice import Dice
from tests.support.preemption_cells import Contest, PreemptionCell, chips, leaves

HOUR_S = 3_600
RESTART_S = 300


class Going(NamedTuple):
    """A gang that ends, or the first ranks of its surplus."""

    gang: RunningGang
    ranks: tuple[int, ...] = ()

    @property
    def uid(self) -> str:
        return self.gang.counted.uid

    @property
    def queue(self) -> str:
        return self.gang.counted.queue

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        return self.uid, self.ranks


class Oracle:
    """All sets of gangs, and of parts of their surplus, for one preemptor.

    Args:
        cell: The cell.
        preemptor: The preemptor.
    """

    def __init__(self, cell: PreemptionCell, preemptor: Preemptor) -> None:
        self.cell, self.preemptor = cell, preemptor
        self.running = sorted(cell.running(), key=lambda one: one.counted.uid)
        self.shares = cell.state.queues.shares()
        self.within = _within(self.shares, self.running) if self.shares is not None else set()
        self.candidates = [gang for gang in self.running if self._may_go(gang)]
        self._planned: dict[tuple[object, ...], Placement | None] = {}

    def _may_go(self, gang: RunningGang) -> bool:
        counted, asking = gang.counted, self.preemptor.gang
        if counted.is_leaving or counted.is_critical or not counted.is_preemptable or self.preemptor.is_never:
            return False
        if self.shares is None or counted.queue == asking.queue:
            return counted.priority < asking.priority
        is_kept = any(not self.shares.tree.queues[one].reclaimable for one in self._path(counted.queue))
        return not is_kept and counted.uid not in self.within

    def options(self) -> int:
        """How many sets there are."""
        return math.prod(len(gang.surplus) + 2 for gang in self.candidates)

    def going(self, found: VictimSet) -> list[Going]:
        """What a search has found."""
        gangs = {gang.counted.uid: gang for gang in self.candidates}
        return [Going(gangs[victim.uid], victim.ranks) for victim in found.victims]

    def _path(self, queue: str) -> list[str]:
        """A queue and those above it, without the root."""
        assert self.shares is not None
        found: list[str] = []
        while queue and queue != "root":
            found.append(queue)
            queue = self.shares.tree.queues[queue].parent
        return found

    def _held(self, queue: str, without: Sequence[Going]) -> int:
        """Chips that a queue and those below it hold."""
        mine = [one for one in self.running if queue in self._path(one.counted.queue)]
        gone = [one for one in without if queue in self._path(one.queue)]
        return sum(sum(one.counted.charge.values()) for one in mine) - sum(map(self._charge, gone))

    def _charge(self, one: Going) -> int:
        return self._chips(one) * CHIP if one.ranks else sum(one.gang.counted.charge.values())

    def _chips(self, one: Going) -> int:
        if not one.ranks:
            return one.gang.chips
        each = self.cell.state.fold.holdings[one.gang.key].placement.chips_by_rank()
        return sum(len(each[rank]) for rank in one.ranks)

    def is_allowed(self, victims: Sequence[Going]) -> bool:
        """Whether a set may end as a whole, by entitlements and limits in chips."""
        shares, asking = self.shares, self.preemptor.gang
        if shares is None:
            return True
        charge = sum(asking.charge.values())
        path = self._path(asking.queue)
        if any(shares.tree.states[one] != State.OPEN for one in path):
            return False
        reclaimed = [one for one in victims if one.queue != asking.queue]
        for step in path:
            limit = shares.limits[step].get(next(iter(asking.charge)))
            if limit is not None and self._held(step, victims) + charge > limit:
                return False
        bound = {step for one in reclaimed for step in path if step not in self._path(one.queue)}
        if self.preemptor.was_reclaimed and victims and not reclaimed:
            bound.add(path[0])
        if any(self._held(step, victims) + charge > self._entitled(step) for step in bound):
            return False
        return all(self._borrows(one, reclaimed) for one in reclaimed)

    def _entitled(self, queue: str) -> int:
        assert self.shares is not None
        return self.shares.entitlements[queue].get(next(iter(self.preemptor.gang.charge)), 0)

    def _borrows(self, gang: Going, reclaimed: Sequence[Going]) -> bool:
        others = [one for one in reclaimed if one is not gang]
        steps = [one for one in self._path(gang.queue) if one not in self._path(self.preemptor.gang.queue)]
        return all(self._held(step, others) > self._entitled(step) for step in steps)

    def cost(self, victims: Sequence[Going]) -> tuple[object, ...]:
        """Cost of a set; the smaller one is cheaper."""
        levels = sorted({self._level(one) for one in self.candidates}, reverse=True)
        lost = [sum(self._lost(one) for one in victims if self._level(one.gang) == level) for level in levels]
        uids = sorted(one.uid for one in victims)
        budgets = sum(len(one.gang.budgets) for one in victims)
        return (budgets, *lost, len(victims), sum(one.gang.restarts for one in victims), uids)

    def _level(self, gang: RunningGang) -> tuple[int, int]:
        priority = self.shares.tree.queues[gang.counted.queue].priority if self.shares is not None else 0
        return (priority, gang.counted.priority)

    def _lost(self, one: Going) -> int:
        return self._chips(one) * (min((self.cell.now_ms - one.gang.start_ms) // 1_000, HOUR_S) + RESTART_S)

    def planned(self, victims: Sequence[Going]) -> Placement | None:
        """Placement of the preemptor once victims are gone."""
        key = tuple(one.key for one in victims)
        if key not in self._planned:
            state = self.cell.state
            projection = ProjectedState(state, self.cell.scheduler.new_scorer(), None)
            for one in victims:
                owned, placement = state.held_by(one.gang.key), state.fold.holdings[one.gang.key].placement
                if one.ranks:
                    projection.free(footprint_of(state, [owned[rank] for rank in one.ranks], placement))
                else:
                    projection.end({one.gang.key: footprint_of(state, owned, placement)})
            self._planned[key] = projection.plan(self.preemptor.gang)
        return self._planned[key]

    def best(self) -> list[Going] | None:
        """The cheapest set; empty for one that needs no victims; None without any."""
        sets = sorted((self.cost(found), number) for number, found in enumerate(self._sets()))
        listed = list(self._sets())
        return next((listed[number] for _, number in sets if self._is_enough(listed[number])), None)

    def _is_enough(self, victims: Sequence[Going]) -> bool:
        return self.is_allowed(victims) and self.planned(victims) is not None

    def _sets(self) -> Iterator[list[Going]]:
        ways = [
            [(), (Going(gang),), *((Going(gang, gang.surplus[:count]),) for count in range(1, len(gang.surplus) + 1))]
            for gang in self.candidates
        ]
        for chosen in itertools.product(*ways):
            yield [one for way in chosen for one in way]

    def useless(self, victims: Sequence[Going]) -> list[str]:
        """Gangs of a set without which, or with one rank less of which, the rest is enough."""
        found = []
        for one in victims:
            others = [other for other in victims if other is not one]
            fewer = [*others, Going(one.gang, one.ranks[:-1])] if len(one.ranks) > 1 else others
            if self._is_enough(others) or self._is_enough(fewer):
                found.append(one.uid)
        return found


def _within(shares: Shares, running: Sequence[RunningGang]) -> set[str]:
    found: set[str] = set()
    held: dict[str, int] = {}
    for gang in sorted(running, key=lambda one: (-one.counted.priority, one.counted.start, one.counted.uid)):
        ((dimension, charge),) = gang.counted.charge.items()
        queue = gang.counted.queue
        if held.get(queue, 0) + charge <= shares.entitlements[queue].get(dimension, 0):
            held[queue] = held.get(queue, 0) + charge
            found.add(gang.counted.uid)
    return found


def a_contested_cell(seed: int) -> tuple[PreemptionCell, Preemptor]:
    """A small cell with random queues and gangs, and a gang that may displace some of them."""
    dice = Dice(seed)
    nodes = leaves(dice.number(1, 3), dice.number(1, 3))
    total = len(nodes) * 8
    queues = _queues(dice, total) if dice.chance(0.7) else []
    below = {queue.parent for queue in queues}
    names = [queue.name for queue in queues if queue.name not in below] or [""]
    cell = PreemptionCell(nodes, *queues)
    for number in range(dice.number(4, 12)):
        chosen = on(dice.pick(*nodes).name)
        if dice.chance(0.5):
            del chosen["kubernetes.io/hostname"]
        request = a_job(
            f"g{number:02}",
            chips=dice.pick(1, 2, 4, 8),
            replicas=dice.number(1, 3),
            priority=dice.pick(0, 0, 5),
            queue=dice.pick(*names),
            node_selector=chosen,
        )
        cell.runs_if_fits(request)
        cell.facts[request.name] = {
            "start_ms": cell.now_ms - dice.number(0, 5) * 600_000,
            "restarts": dice.number(0, 2),
            "is_preemptable": dice.chance(0.93),
            "is_critical": dice.chance(0.05),
        }
    for queue in queues:
        if dice.chance(0.3):
            cell.limit(queue, dice.number(1, total + 8))
    asked = a_job(
        "p", chips=dice.pick(1, 2, 4, 8), replicas=dice.number(1, 4), priority=dice.pick(3, 10), queue=dice.pick(*names)
    )
    return cell, cell.preemptor(asked, was_reclaimed=dice.chance(0.1))


def an_elastic_cell(seed: int) -> tuple[PreemptionCell, Preemptor]:
    """The same with gangs of which some ranks may leave."""
    cell, preemptor = a_contested_cell(seed)
    dice = Dice(seed + 2_000_000)
    for holding in cell.state.fold.holdings.values():
        pods = holding.placement.pods()
        if pods > 1 and dice.chance(0.8):
            least = dice.number(1, pods - 1)
            cell.facts[holding.name] = {**cell.facts[holding.name], "surplus": tuple(range(pods - 1, least - 1, -1))}
    return cell, preemptor


def a_sharing_cell(seed: int) -> tuple[PreemptionCell, Preemptor]:
    """Pods that share chips beside others that have whole ones, and a gang of either kind."""
    dice = Dice(seed)
    nodes = [a_node(f"n{number}", "soft-share", chips=0b11, allocatable=2) for number in range(dice.number(1, 3))]
    cell = PreemptionCell(nodes)
    for number in range(dice.number(2, 9)):
        request = _sharer(dice, f"g{number}", priority=dice.pick(0, 0, 5))
        cell.runs_if_fits(request)
        cell.facts[request.name] = {
            "start_ms": cell.now_ms - dice.number(0, 5) * 600_000,
            "restarts": dice.number(0, 2),
            "is_preemptable": dice.chance(0.93),
        }
    return cell, cell.preemptor(_sharer(dice, "p", priority=3))


def _sharer(dice: Dice, name: str, *, priority: int) -> JobRequest:
    """A pod with a quota of a chip, or with whole chips."""
    if dice.chance(0.3):
        return a_job(name, product="soft-share", annotations={}, chips=dice.pick(1, 1, 2), priority=priority)
    request = a_job(name, product="soft-share", priority=priority)
    quotas = {"aicoreQuota": str(dice.pick(20, 50, 70, 100)), "hbmQuota": "4000", "policy": "elastic"}
    request.labels.update({f"huawei.com/scheduler.softShareDev.{key}": value for key, value in quotas.items()})
    return request


def a_contest(seed: int) -> Contest:
    """A small cell with gangs that run, and others that want their places."""
    cell, _ = a_contested_cell(seed)
    dice, tree = Dice(seed + 1_000_000), cell.state.queues.tree()
    names = [name for name in tree.leaves() if name in tree.declared] if tree is not None else [""]
    contest = Contest(cell)
    for number in range(dice.number(3, 6)):
        chips_a_pod, pods, priority = dice.pick(2, 4, 8), dice.number(1, 3), dice.pick(0, 3, 10)
        request = a_job(
            f"w{number}", chips=chips_a_pod, replicas=pods, priority=priority, queue=dice.pick(*names or [""])
        )
        contest.waiting.append(request)
    return contest


def _queues(dice: Dice, total: int) -> list[Queue]:
    def one(name: str, parent: str = "") -> Queue:
        deserved = chips(dice.number(0, total)) if dice.chance(0.7) else {}
        is_reclaimable = dice.chance(0.9)
        return Queue(name, parent=parent, deserved=deserved, priority=dice.pick(0, 0, 1), reclaimable=is_reclaimable)

    found = [one(f"q{number}") for number in range(dice.number(1, 3))]
    return [*found, one("r0", "q0"), one("r1", "q0")] if dice.chance(0.4) else found
