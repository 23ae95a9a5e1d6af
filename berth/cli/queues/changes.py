"""Changes of the queues of a cell: what is to be stored, what follows for jobs, and what is refused.

Everything is checked before anything is stored.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from berth.cli.output import FAILED, CommandError, listed, near_names
from berth.cli.queues.cell_queues import NO_JOBS, CellQueues, QueueJobs
from berth.core.queues.amounts import number_of
from berth.core.queues.shares import shares_of
from berth.core.queues.tree import Tree, closing_of, tree_of
from berth.core.queues.validity import warnings_of
from berth.core.text import pluralize
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import DEFAULT, ROOT, Queue

_JOBS_SHOWN = 8
_OPEN = "Open"


class ChangedRow(msgspec.Struct, frozen=True):
    """A queue that a command names, as ``--json`` prints it."""

    name: str
    result: str
    """created, changed, deleted, opened, closed or unchanged."""
    running: list[str]
    """Jobs that have places there, or in queues below it."""
    waiting: list[str]
    """Jobs that wait there, or in queues below it."""
    notes: list[str] = []
    """What follows, a sentence each."""


class QueueChange(NamedTuple):
    """What a command changes.

    Attributes:
        facts: What is to be stored, in this order: no step between makes a queue not valid.
        rows: The queues that it names, in the order of their names.
        warnings: What its user may not expect, a sentence each.
    """

    facts: list[QueueSeen]
    rows: list[ChangedRow]
    warnings: list[str]


def check_not_kube_objects(cell: CellQueues, kubectl: str) -> None:
    """Check that the queues of a cell are no objects of Kubernetes.

    Args:
        cell: The queues.
        kubectl: The command that makes the change there.

    Raises:
        CommandError: The queues are objects of Kubernetes.
    """
    if cell.are_objects:
        raise CommandError(
            f"the queues of this cell are objects of Kubernetes, nothing was changed; change them with: {kubectl}"
        )


def applied(cell: CellQueues, queues: Sequence[Queue], faults: Iterable[str], *, by: str, at_ms: int) -> QueueChange:
    """Declare queues; those that are not named stay as they are.

    Args:
        cell: The queues of the cell.
        queues: What is declared. A state that is not given stays, and so does the age of a queue.
        faults: What of them cannot be read.
        by: Who declares it.
        at_ms: The time.

    Raises:
        CommandError: One of them is wrong, or would not be valid in the cell, or one of the others no more: all of it.
    """
    known = {name: fact.queue for name, fact in cell.declared.items()}
    wanted = {queue.name: _kept(queue, known.get(queue.name), at_ms) for queue in queues}
    tree = tree_of((known | wanted).values(), most=cell.most, differs=cell.tree.differs)
    errors = [*faults]
    errors += [
        f"queue {name} would not be valid: {reason}"
        for name, reason in tree.broken.items()
        if (name in wanted or name not in cell.tree.broken) and reason != "; ".join(tree.queues[name].wrong)
    ]
    if errors:
        raise CommandError(*errors, "nothing was changed", code=FAILED)
    changed = [queue for queue in wanted.values() if known.get(queue.name) != queue]
    changed.sort(key=lambda queue: (len(tree.paths[queue.name]), queue.name))
    rows = [_applied_row(cell, tree, name, known.get(name), wanted[name]) for name in sorted(wanted)]
    warnings = [f"queue {name}: {text}" for name in sorted(wanted) for text in warnings_of(wanted[name])]
    warnings += _above_limit(cell, tree, [queue.name for queue in changed])
    return QueueChange([QueueSeen(queue, by=by, at_ms=at_ms) for queue in changed], rows, warnings)


def deleted(cell: CellQueues, names: Iterable[str], *, by: str, at_ms: int) -> QueueChange:
    """Declare queues no longer.

    Args:
        cell: The queues of the cell.
        names: Names of queues.
        by: Who does.
        at_ms: The time.

    Raises:
        CommandError: One is not declared, or queues that would stay name it as their parent: all of it.
    """
    chosen = dict.fromkeys(names)
    errors = [_unknown(cell, name) for name in chosen if name not in cell.declared]
    left: dict[str, list[str]] = {}
    for name in sorted(cell.declared.keys() - chosen.keys()):
        left.setdefault(cell.declared[name].queue.parent, []).append(name)
    errors += [
        f"queue {name} is the parent of {listed(left[name], _JOBS_SHOWN)}: delete them too, or apply them with another"
        " parent"
        for name in chosen
        if name in left and name in cell.declared and name not in {ROOT, DEFAULT}
    ]
    if errors:
        raise CommandError(*errors, "nothing was changed", code=FAILED)
    order = sorted(chosen, key=lambda name: (-len(cell.tree.charged(name)), name))  # what is below others goes first
    facts = [QueueSeen(Queue(name), gone=True, by=by, at_ms=at_ms) for name in order]
    return QueueChange(facts, [_deleted_row(cell, name) for name in sorted(chosen)], [])


def with_state(cell: CellQueues, names: Iterable[str], state: str, *, by: str, at_ms: int) -> QueueChange:
    """Open or close queues.

    Args:
        cell: The queues of the cell.
        names: Names of queues; root and ``default`` need not be declared.
        state: Open or Closed.
        by: Who does.
        at_ms: The time.

    Raises:
        CommandError: There is no such queue.
    """
    chosen = sorted(dict.fromkeys(names))
    errors = [_unknown(cell, name) for name in chosen if name not in cell.tree.queues]
    if errors:
        raise CommandError(*errors, "nothing was changed", code=FAILED)
    known = {name: fact.queue for name, fact in cell.declared.items()}
    changed = {
        name: _kept(msgspec.structs.replace(known.get(name, Queue(name)), state=state), known.get(name), at_ms)
        for name in chosen
        if (known.get(name, Queue(name)).state or _OPEN) != state
    }
    tree = tree_of((known | changed).values(), most=cell.most, differs=cell.tree.differs)
    rows = [_state_row(cell, tree, name, state, is_changed=name in changed) for name in chosen]
    return QueueChange([QueueSeen(queue, by=by, at_ms=at_ms) for queue in changed.values()], rows, [])


def lines_of(row: ChangedRow) -> list[str]:
    """What a command says of a queue."""
    return [f"queue {row.name} {'is' if row.result == 'unchanged' else 'was'} {row.result}", *row.notes]


def _kept(queue: Queue, before: Queue | None, at_ms: int) -> Queue:
    """The queue with what a file does not say: its age, and the state that commands gave it."""
    if before is None:
        now = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%d%H%M%S}"  # as the age of an object is read
        return msgspec.structs.replace(queue, created=queue.created or int(now))
    return msgspec.structs.replace(queue, created=before.created, state=queue.state or before.state)


def _unknown(cell: CellQueues, name: str) -> str:
    if name in {ROOT, DEFAULT}:
        return f"queue {name} is not declared: it exists without that, and cannot be deleted"
    near = ", ".join(near_names(name, cell.tree.queues))
    return f"queue {name} does not exist; {f'near names: {near}' if near else 'see: berth queues'}"


def _above_limit(cell: CellQueues, tree: Tree, names: Iterable[str]) -> list[str]:
    limits = shares_of(tree, cell.shares.capacity).limits
    return [
        f"queue {name} holds {number_of(dimension, held)} {dimension}, more than {number_of(dimension, most)}: nothing"
        " is evicted, and nothing starts there until it holds less"
        for name in names
        for dimension, most in limits[name].items()
        if (held := cell.usage.held(name, dimension) + cell.usage.leaving(name, dimension)) > most
    ]


def _applied_row(cell: CellQueues, tree: Tree, name: str, before: Queue | None, queue: Queue) -> ChangedRow:
    result = "created" if before is None else "unchanged" if before == queue else "changed"
    own = cell.jobs.get(name, NO_JOBS)
    notes = []
    if name != ROOT and own.waiting and name in tree.children:
        children = listed(tree.children[name], _JOBS_SHOWN)
        notes.append(f"{_waiting(own)} in queue {name}, which takes none any more: it has child queues ({children})")
    if before is not None and queue.parent != before.parent:
        notes.append(f"what it holds is charged below {queue.parent or ROOT} from now on")
    return ChangedRow(name, result, *_names(cell.below.get(name, NO_JOBS)), notes)


def _deleted_row(cell: CellQueues, name: str) -> ChangedRow:
    jobs = cell.jobs.get(name, NO_JOBS)
    notes = []
    if name in {ROOT, DEFAULT}:
        notes.append(f"queue {name} exists all the same, without amounts")
    else:
        if jobs.running:
            notes.append(f"{_running(jobs)} on, charged to {ROOT}: {listed(jobs.running, _JOBS_SHOWN)}")
        if jobs.waiting:
            notes.append(f"{_waiting(jobs)} for a queue that exists: {listed(jobs.waiting, _JOBS_SHOWN)}")
    return ChangedRow(name, "deleted", *_names(jobs), notes)


def _state_row(cell: CellQueues, tree: Tree, name: str, state: str, *, is_changed: bool) -> ChangedRow:
    jobs = cell.below.get(name, NO_JOBS)
    result = "unchanged"
    if is_changed:
        result = "opened" if state == _OPEN else "closed"
    notes = []
    if state != _OPEN:
        if jobs.running:
            notes.append(f"{_running(jobs)} on: {listed(jobs.running, _JOBS_SHOWN)}")
        if jobs.waiting:
            notes.append(f"{_waiting(jobs)} until it is open: {listed(jobs.waiting, _JOBS_SHOWN)}")
    elif name in tree.broken:
        notes.append(f"it counts as closed, because it is not valid: {tree.broken[name]}")
    elif (closing := closing_of(tree, name)) is not None:
        notes.append(f"it counts as {closing.state.name.capitalize()} as its parent {closing.by} does")
    return ChangedRow(name, result, *_names(jobs), notes)


def _names(jobs: QueueJobs) -> tuple[list[str], list[str]]:
    return jobs.running, jobs.waiting


def _running(jobs: QueueJobs) -> str:
    return f"{pluralize(len(jobs.running), 'job')} {'runs' if len(jobs.running) == 1 else 'run'}"


def _waiting(jobs: QueueJobs) -> str:
    return f"{pluralize(len(jobs.waiting), 'job')} {'waits' if len(jobs.waiting) == 1 else 'wait'}"
