"""A state beside one that was loaded from its snapshot: every column, table and queue, and what is due."""

from collections.abc import Iterator

import msgspec

from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.ledger import LedgerDump
from berth.core.state.lifecycle import examine
from berth.core.state.waiting_dump import WaitingDump
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.schemas.envelope import decode
from berth.schemas.status import SnapshotBody
from tests.fuzz.failure import Failure
from tests.fuzz.seat import Seat

_PLAIN = (
    "chips", "unhealthy", "network", "withheld", "network_known", "spoken", "level", "unhealthy_count",
    "allocatable_seen", "allocatable", "idle", "capacity", "cpu", "cpu_free", "memory", "memory_free", "position",
)  # fmt: skip
_LEDGER = [name for name in LedgerDump.__struct_fields__ if name != "waiting"]
_WAITING = WaitingDump.__struct_fields__
_HELD = ("used", "releasing", "free")


def see_alike(live: Seat, snapshot: bytes) -> Seat:
    """See that a seat that is loaded from a snapshot of another is like it; returns it.

    Raises:
        Failure: It is not.
    """
    other = Seat.loaded(snapshot)
    see_same_snapshot(snapshot, other.snapshot(), "snapshot")
    for kind, mine, its in _pairs(live, other):
        if mine != its:
            raise Failure(f"snapshot: {kind}", _told(mine, its))
    return other


def see_same_snapshot(snapshot: bytes, other: bytes, whose: str) -> None:
    """See that two snapshots are the same.

    Args:
        snapshot: Of the one who writes history.
        other: Of somebody else.
        whose: Who that is.

    Raises:
        Failure: They are not.
    """
    if snapshot != other:
        kind, mine, its = _first_difference(snapshot, other)
        raise Failure(f"{whose}: {kind}", _told(mine, its))


def _pairs(live: Seat, other: Seat) -> Iterator[tuple[str, object, object]]:
    yield "columns", columns_of(live.state), columns_of(other.state)
    yield "shared chips", _shares(live.state), _shares(other.state)
    yield (
        "states of leaves",
        leaf_index_of(live.state.indexes).occupancy.bits().tobytes(),
        leaf_index_of(other.state.indexes).occupancy.bits().tobytes(),
    )
    yield (
        "jobs on leaves",
        leaf_index_of(live.state.indexes).occupancy.jobs(),
        leaf_index_of(other.state.indexes).occupancy.jobs(),
    )
    for name in ("jobs", "pods", "outcomes", "topologies", "intake_seq", "nodes_seq", "time_ms"):
        yield name, getattr(live.state, name), getattr(other.state, name)
    yield "who has a uid", live.state.name_of, other.state.name_of
    yield "pods of other schedulers", _foreign(live.state), _foreign(other.state)
    yield "usage of nodes", _usage(live.state), _usage(other.state)
    yield "what is due", _due(live), _due(other)
    yield "gangs that wait", _waiting(live.scheduler), _waiting(other.scheduler)
    yield "settings", live.scheduler.scorer.settings, other.scheduler.scorer.settings


def columns_of(state: State) -> dict[str, dict[str, object]]:
    """What is known of each node; of one that is gone, only what is held there."""
    table = state.table
    found: dict[str, dict[str, object]] = {}
    for row, name in enumerate(table.names):
        columns: dict[str, object] = {column: int(getattr(table, column)[row]) for column in _HELD}
        if not table.present[row]:
            if any(columns.values()):
                found[name] = columns
            continue
        columns |= {column: int(getattr(table, column)[row]) for column in _PLAIN}
        for column, names in (("superpod", table.superpods), ("leaf", table.leaves), ("rack", table.racks)):
            place = int(getattr(table, column)[row])
            columns[column] = names[place] if place >= 0 else ""
        found[name] = columns | {
            "domain": table.domain_name(row),
            "class": table.classes[int(table.node_class[row])],
        }
    return found


def _shares(state: State) -> dict[str, object]:
    found: dict[str, object] = {}
    for row, node in state.shares.nodes.items():
        if any(node.pods):
            found[state.table.names[row]] = (node.core, node.hbm, node.policy, node.pods)
        if state.table.present[row] and node.enabled:
            found[f"{state.table.names[row]} label"] = node.memory_mib
    return found


def _foreign(state: State) -> dict[str, object]:
    """Pods of other schedulers that facts show now."""
    return {uid: key for uid, key in state.foreign.items() if key in state.pods and state.pods[key].uid == uid}


def _usage(state: State) -> dict[str, object] | None:
    """What is counted for constraints, by node; None where nothing is."""
    view, names = state.constraints.view, state.table.names
    if view.is_idle:
        return None
    index = view.usage
    found: dict[str, object] = {}
    for what in ("groups", "terms", "resources", "claims"):
        sums = getattr(index, what).items()
        found[what] = {key: {names[row]: number for row, number in rows.items()} for key, rows in sums}
    found["pods"] = {names[row]: number for row, number in index.pods.items()}
    found["ports"] = {names[row]: ports for row, ports in index.ports.items()}
    slots = index.slots(view.rows)
    if slots is not None:
        known = [row for row in range(view.rows) if state.table.present[row] or row in index.pods]
        found["free places"] = {names[row]: int(slots[row]) for row in known}
    return found


def _due(seat: Seat) -> Due:
    """What is due; looking must leave no trace."""
    state, short = seat.state, dict(seat.state.short)
    found = examine(state, seat.scheduler.to_examine)
    state.short.clear()
    state.short.update(short)
    return found.due


def _waiting(scheduler: Scheduler) -> list[tuple[object, ...]]:
    scheduler.sync()
    queue = scheduler.queue
    found: list[tuple[object, ...]] = []
    for key, members in queue._classes.items():
        state = (members.sleeps, members.retry_at_ms, members.never)
        found.extend((uid, gang.order, gang.attempt, gang.fresh, key, state) for uid, gang in members.gangs.items())
    return sorted(found, key=lambda entry: str(entry[0]))


def _first_difference(snapshot: bytes, again: bytes) -> tuple[str, object, object]:
    """What of two snapshots differs first, in few words, and how."""
    one, two = decode(snapshot, SnapshotBody), decode(again, SnapshotBody)
    mine, its = (msgspec.msgpack.decode(body.ledger, type=LedgerDump) for body in (one, two))
    fields = [
        *((f"{name}", getattr(one, name), getattr(two, name)) for name in ("ledger_seq", "facts_seq", "facts")),
        *((f"ledger {name}", getattr(mine, name), getattr(its, name)) for name in _LEDGER),
        *((f"waiting {name}", getattr(mine.waiting, name), getattr(its.waiting, name)) for name in _WAITING),
    ]
    return next((field for field in fields if field[1] != field[2]), ("bytes", snapshot, again))


def _told(mine: object, its: object) -> str:
    if isinstance(mine, dict) and isinstance(its, dict):
        keys = sorted((key for key in mine.keys() | its.keys() if mine.get(key) != its.get(key)), key=str)
        return "; ".join(f"{key}: {_told(mine.get(key), its.get(key))}" for key in keys[:3])
    return f"{mine!r} live, {its!r} loaded"
