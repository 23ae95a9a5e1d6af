"""Invariants of the state, as a check for tests after every event.

No chip has two owners; a gang is placed whole or not at all; free chips are the healthy ones without used and releasing
ones; CPU and memory add up.
"""

from collections.abc import Iterable
from typing import Final

from berth.core.errors import InvariantError
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.core.state.ledger import Holding, PodShare, owned_by

_CORE_PERCENT: Final = 100


class _Given:
    """What the ledger gives to gangs, by node.

    Attributes:
        chips: Mask of chips that have an owner; those that are shared by quota are not among them.
        cpu: In thousandths.
        memory: In MiB.
    """

    def __init__(self) -> None:
        self.chips: dict[str, int] = {}
        self.cpu: dict[str, int] = {}
        self.memory: dict[str, int] = {}

    def add(self, pods: Iterable[PodShare], problem: str, *, shared: bool) -> None:
        """Add what pods have.

        Raises:
            InvariantError: A chip of theirs has an owner.
        """
        for pod in pods:
            self.cpu[pod.node] = self.cpu.get(pod.node, 0) + pod.cpu_milli
            self.memory[pod.node] = self.memory.get(pod.node, 0) + pod.memory_mib
            if shared:
                continue
            if self.chips.get(pod.node, 0) & pod.mask:
                raise InvariantError(problem, subject=f"node {pod.node}")
            self.chips[pod.node] = self.chips.get(pod.node, 0) | pod.mask


def check(state: State) -> None:
    """Check all invariants.

    Raises:
        InvariantError: One of them does not hold.
    """
    given = _Given()
    for key in sorted(state.fold.holdings):
        holding = state.fold.holdings[key]
        _check_whole(state, holding)
        given.add(state.held_by(key), "a chip has two owners", shared=holding.placement.share is not None)
    for uid in sorted(state.fold.held):
        held = state.fold.held[uid]
        _check_held(state, held)
        shared = held.placement.share is not None
        given.add(held.places().values(), "a chip that is held has an owner", shared=shared)
    _check_columns(state, given)
    _check_gangs(state)


def _check_whole(state: State, holding: Holding) -> None:
    _check_moves(state, holding)
    pods = state.owned(holding.key)
    if len(pods) != holding.placement.pods() or sum(run.pods for run in holding.placement.runs) != len(pods):
        raise InvariantError("a gang is neither whole nor absent", subject=f"gang {holding.uid}")
    for pod in pods:
        if len(set(pod.chips)) != len(pod.chips):
            raise InvariantError("a pod has a chip twice", subject=f"gang {holding.uid}")


def _check_held(state: State, held: Held) -> None:
    """Check that places are held for gangs that wait.

    Raises:
        InvariantError: Places are held for a gang that does not wait.
    """
    gang = state.fold.gangs.get(held.uid)
    if held.key in state.fold.holdings or (gang is not None and gang.phase in {"placed", "ending"}):
        raise InvariantError("places are held for a gang that has its own", subject=f"gang {held.uid}")


def _check_moves(state: State, holding: Holding) -> None:
    """Check that ranks leave once, that places are reserved for ranks that leave, and that nothing is left of moves.

    Raises:
        InvariantError: One of these does not hold.
    """
    subject = f"gang {holding.uid}"
    leaving = [rank for move in holding.moves for rank in move.leaving]
    placed = [rank for move in holding.moves if not move.is_restart for rank in move.placed]
    if len(set(leaving)) != len(leaving) or len(set(placed)) != len(placed):
        raise InvariantError("a rank leaves or is placed twice at a time", subject=subject)
    backups = holding.backups()
    if not set(placed) <= {*leaving, *backups} or not {*leaving, *backups}.isdisjoint(holding.gone):
        raise InvariantError("a place is reserved for a rank that does not leave", subject=subject)
    if not set(holding.unplaced) <= set(holding.gone) or (holding.ending and holding.recovers):
        raise InvariantError("ranks wait for a place that they cannot get", subject=subject)
    given_up = set(holding.given_up)
    if not given_up <= set(holding.gone) or not given_up.isdisjoint(holding.unplaced) or (holding.ending and given_up):
        raise InvariantError("ranks are given up that hold something, or wait for a place", subject=subject)
    if any(move.is_restart for move in holding.moves) and holding.ending != "fault":
        raise InvariantError("places are reserved for an attempt that does not follow", subject=subject)
    if any(move.is_over for move in holding.moves):
        raise InvariantError("a move is over and still there", subject=subject)
    if list(state.held_by(holding.key)) != [*owned_by(holding), *holding.reserved().values()]:
        raise InvariantError("the columns count other places than those of the ledger", subject=subject)


def _check_columns(state: State, given: _Given) -> None:
    table, owned = state.table, given.chips
    for row, name in enumerate(table.names):
        node = state.shares.nodes.get(row)
        shared = node.mask if node is not None else 0
        used, releasing = int(table.used[row]), int(table.releasing[row])
        if used & releasing:
            raise InvariantError("a chip is used and releasing at once", subject=f"node {name}")
        if (used | releasing) != owned.get(name, 0) | shared or owned.get(name, 0) & shared:
            raise InvariantError("held chips are not those that the ledger gives", subject=f"node {name}")
        healthy = int(table.chips[row]) & ~int(table.unhealthy[row]) if table.present[row] else 0
        if int(table.free[row]) != healthy & ~used & ~releasing & ~int(table.withheld[row]):
            raise InvariantError("free is not healthy minus used, releasing and withheld", subject=f"node {name}")
        if int(table.cpu_free[row]) != int(table.cpu[row]) - given.cpu.get(name, 0):
            raise InvariantError("cpu does not add up", subject=f"node {name}")
        if int(table.memory_free[row]) != int(table.memory[row]) - given.memory.get(name, 0):
            raise InvariantError("memory does not add up", subject=f"node {name}")
        if node is not None and any(core > _CORE_PERCENT for core in node.core):
            raise InvariantError("more than 100 percent of a chip is given", subject=f"node {name}")


def _check_gangs(state: State) -> None:
    for uid, gang in state.fold.gangs.items():
        held = (uid, gang.attempt) in state.fold.holdings
        if held != (gang.phase in {"placed", "ending"}):
            raise InvariantError(
                f"is {gang.phase}, and {'holds' if held else 'does not hold'} chips", subject=f"gang {uid}"
            )
