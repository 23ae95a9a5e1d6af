"""The tree of queues: paths to the root, what is not valid and why, states, and who may use a queue."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from berth.core.parity import OWN, Differences
from berth.core.queues.validity import faults_of
from berth.schemas.queues.queue import DEFAULT, ROOT, STATES, Queue

DEPTH_MAX: Final = 16
"""Most queues on a path, the root included."""
QUEUES_MAX: Final = 4096
"""Most queues of a cell, unless a setting says otherwise."""


class State(IntEnum):
    """State of a queue; the largest on its path counts."""

    OPEN = 0
    CLOSING = 1
    CLOSED = 2


_STATES: Final[Mapping[str, State]] = {"": State.OPEN, "Open": State.OPEN, "Closing": State.CLOSING}
"""Whatever else is declared is closed."""
_OPEN: Final = frozenset({"", "Open"})


class Tree(NamedTuple):
    """Queues and what follows from them alone. Mappings and lists are ordered by age and name of the queues.

    Attributes:
        queues: All queues by name, the root first; root and ``default`` are made where nobody declares them.
        declared: Names of those that somebody declares.
        paths: Path of each valid queue, from itself to the root.
        broken: Reason of each queue that is not valid.
        children: Valid children of each valid queue that has any.
        states: State of each queue; one that is not valid is closed.
        differs: Differences from the reference that are in force.
        is_shared: Something is guaranteed, so that limits rest on what the nodes have.
    """

    queues: dict[str, Queue]
    declared: frozenset[str]
    paths: dict[str, tuple[str, ...]]
    broken: dict[str, str]
    children: dict[str, tuple[str, ...]]
    states: dict[str, State]
    differs: Differences = OWN
    is_shared: bool = False

    def charged(self, name: str) -> tuple[str, ...]:
        """Queues to which what runs in a queue is charged: its path; of one that is not valid what its path reaches.

        The last one is the root, which is alone for a queue that does not exist; the reference charges that to none.
        """
        path = self.paths.get(name)
        if path is not None:
            return path
        reached: dict[str, None] = {}
        while name in self.queues and name not in reached and name != ROOT:
            reached[name] = None
            name = self.queues[name].parent or ROOT
        return (*reached, ROOT) if reached or self.differs.orphans_at_root else ()

    def branches(self, one: str, other: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Parts of two paths below the lowest queue that both have; a queue above the other one has an empty part."""
        mine, theirs = self.charged(one), self.charged(other)
        common = 0
        while common < min(len(mine), len(theirs)) and mine[-1 - common] == theirs[-1 - common]:
            common += 1
        return mine[: len(mine) - common], theirs[: len(theirs) - common]

    def namespaces(self, name: str) -> frozenset[str] | None:
        """Namespaces whose jobs may use a valid queue; None: all."""
        named = [frozenset(found) for step in self.paths[name] if (found := self.queues[step].namespaces) is not None]
        return frozenset.intersection(*named) if named else None

    def is_reclaimable(self, name: str) -> bool:
        """Whether other queues may get something back from a queue: it and those above say so.

        The root is not asked: Volcano makes it with ``reclaimable: false``, and everything is below it.
        """
        return all(self.queues[step].reclaimable for step in self.charged(name) if step != ROOT)

    def leaves(self) -> list[str]:
        """Valid queues that have no children, by age and name."""
        return [name for name in self.paths if name not in self.children]


def is_tree(queues: Iterable[Queue]) -> bool:
    """Whether queues are in force: not if there are none but root and ``default``, open and without amounts.

    Every cluster has these two where Volcano was.
    """
    return any(
        queue.name not in {ROOT, DEFAULT}
        or queue.capability
        or queue.guarantee
        or queue.deserved
        or queue.per_namespace
        or queue.namespaces is not None
        or queue.state not in _OPEN
        for queue in queues
    )


def tree_of(queues: Iterable[Queue], *, most: int = QUEUES_MAX, differs: Differences = OWN) -> Tree:
    """Tree of queues, whatever is wrong with some of them.

    A wrong queue makes itself and those below it not valid, and no others. The root is always valid: what is wrong in
    its fields does not count.

    Args:
        queues: Queues in any order; no two have the same name.
        most: Most queues that are valid; the oldest are, beside root and ``default``.
        differs: Differences from the reference that are in force.
    """
    given = {queue.name: queue for queue in queues}
    declared = frozenset(given)
    root = given.pop(ROOT, Queue(ROOT))
    faults = faults_of(root)
    if faults:
        root = Queue(ROOT, wrong=faults, notes=root.notes, state=root.state if root.state in STATES else "")
    given.setdefault(DEFAULT, Queue(DEFAULT))
    known = {ROOT: root} | {
        queue.name: queue for queue in sorted(given.values(), key=lambda one: (one.created, one.name))
    }
    counted = [name for name in known if name not in {ROOT, DEFAULT}]
    own = {name: faults_of(queue) for name, queue in known.items() if name != ROOT}
    young = f"the cell has more than {most} queues, and this is one of the youngest"
    own |= {name: [young] for name in counted[max(0, most - 2) :]}
    paths: dict[str, tuple[str, ...]] = {}
    broken: dict[str, str] = {}
    children: dict[str, list[str]] = {}
    for name in known:
        path, reason = _path_of(name, known, own)
        if reason:
            broken[name] = reason
            continue
        paths[name] = path
        if len(path) > 1:
            children.setdefault(path[1], []).append(name)
    states = {name: State.CLOSED if name in broken else _state(known, paths[name], differs) for name in known}
    below = {name: tuple(found) for name, found in children.items()}
    is_shared = differs.guarantees_on_nodes and any(known[name].guarantee for name in paths)
    return Tree(known, declared, paths, broken, below, states, differs, is_shared)


def _path_of(name: str, known: Mapping[str, Queue], own: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], str]:
    """Path of a queue to the root, or why it is not valid."""
    path: list[str] = []
    step = name
    while step != ROOT:
        if step in path:
            return (), f"a cycle of parents: {' > '.join([*path, step])}"
        faults = own.get(step)
        if faults is None:
            step = path[-1]
            faults = [f"its parent {known[step].parent} does not exist"]
        if faults and step == name:
            return (), "; ".join(faults)
        if faults:
            more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
            return (), f"its ancestor {step} is not valid: {faults[0]}{more}"
        path.append(step)
        if len(path) == DEPTH_MAX:
            return (), f"its path to the root has more than {DEPTH_MAX} queues: {' > '.join(path)}"
        step = known[step].parent or ROOT
    return (*path, ROOT), ""


def _state(known: Mapping[str, Queue], path: Sequence[str], differs: Differences) -> State:
    states = [_declared_state(known[step]) for step in path]
    return max(states) if differs.closed_branches else states[0]


def _declared_state(queue: Queue) -> State:
    return _STATES.get(queue.state, State.CLOSED)


class Closing(msgspec.Struct, frozen=True):
    """Why a queue is not open.

    Attributes:
        state: Its state.
        by: The queue on its path that has this state: itself, or the nearest above it.
    """

    state: State
    by: str


def closing_of(tree: Tree, name: str) -> Closing | None:
    """Why a valid queue is not open; None if it is open."""
    state = tree.states[name]
    if state is State.OPEN:
        return None
    by = next(step for step in tree.paths[name] if _declared_state(tree.queues[step]) >= state)
    return Closing(state, by)
