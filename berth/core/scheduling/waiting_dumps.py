"""Gangs that wait, for snapshots: written from a queue and the changes that no turn has consumed, and read again."""

from collections.abc import Callable

from berth.core.changes import Changes
from berth.core.scheduling.constraint_wakeups import dump_changes, load_changes
from berth.core.scheduling.queue import Queue
from berth.core.state.cell import State
from berth.core.state.waiting_dump import WaitingDump


def waiting_dump(state: State, queue: Queue, pending: Changes) -> WaitingDump:
    """What a snapshot holds of the gangs that wait.

    Args:
        state: The cell.
        queue: The queue.
        pending: Changes that no turn has consumed.
    """
    names = state.table.names
    known, sleeping = queue.dump()
    return WaitingDump(
        known=known,
        sleeping=sleeping,
        capacity_gained=sorted(names[row] for row in pending.capacity_gained),
        chips_taken=sorted((names[row], chips) for row, chips in pending.chips_taken.items()),
        leaf_opened=pending.leaf_opened,
        time_ms=state.time_ms,
        held=queue.held,
        queue_unblocked=pending.queue_unblocked,
        capacity_lost=pending.capacity_lost,
        chips_returned=sorted(names[row] for row in pending.chips_returned),
        nodes_changed=pending.nodes_changed,
        constraints=dump_changes(pending.constraints, names),
        woken=sorted(pending.woken),
    )


def changes_of(dump: WaitingDump, row: Callable[[str], int]) -> Changes:
    """Changes that no turn had consumed when a snapshot was written.

    Args:
        dump: What the snapshot holds.
        row: Row of a node.
    """
    return Changes(
        capacity_gained=dict.fromkeys(row(name) for name in dump.capacity_gained),
        chips_taken={row(name): chips for name, chips in dump.chips_taken},
        chips_returned=dict.fromkeys(row(name) for name in dump.chips_returned),
        capacity_lost=dump.capacity_lost,
        nodes_changed=dump.nodes_changed,
        leaf_opened=dump.leaf_opened,
        queue_unblocked=dump.queue_unblocked,
        constraints=load_changes(dump.constraints, row),
        woken=dict.fromkeys(dump.woken),
    )
