"""``berth queues show``: the tree of queues, with limits and entitlements."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import OK, WRONG_USE, CommandError, age, emit, listed, print_result, print_table, warn
from berth.cli.queue_files import read_file
from berth.cli.queues.cell_queues import NO_JOBS, CellQueues, queues_of
from berth.cli.simulation.cluster_input import cluster_of
from berth.cli.tables import Span, Table
from berth.core.queues.amounts import in_order, is_chips, number_of
from berth.core.queues.capacity import capacity_of
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import State, Tree
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.queues.queue import ROOT, Amounts

_NAMESPACES_SHOWN = 3
_NONE = "-"
_STYLES = {State.OPEN: "green", State.CLOSING: "yellow", State.CLOSED: "red"}


class QueueRow(msgspec.Struct, frozen=True):
    """A queue, as ``--json`` prints it. Amounts: cpu in thousandths, memory in MiB, chips in hundredths."""

    name: str
    parent: str
    depth: int
    state: str
    is_valid: bool
    is_declared: bool
    entitlement: Amounts
    """Dimensions of the cluster; empty without one."""
    limit: Amounts
    guarantee: Amounts
    namespaces: list[str] | None
    reason: str = ""
    """Why it is not valid."""
    held: Amounts = {}
    """What jobs there and below hold, those that are leaving included; empty for a file, as what follows."""
    borrowed: Amounts = {}
    """By how much it holds more than it is entitled to, without those that are leaving."""
    running: int = 0
    """Jobs there and below that have places."""
    waiting: int = 0
    """Jobs there and below that wait for places."""
    waiting_since_ms: int = 0
    """Since when the oldest of these waits; 0 without."""


class QueueTree(msgspec.Struct, frozen=True):
    """Result of ``berth queues show --json`` and ``berth queues list --json``."""

    capacity: Amounts
    queues: list[QueueRow]
    """Each behind the one above it; those that are not valid come last."""
    oversubscribed: dict[str, Amounts]
    """By how much children declare more than their queue is entitled to."""
    faults: list[str]
    setting: int | None = None
    """What queues do in the cell, see ``decisions.queues``; null for a file."""


def show_queues(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    /,
    *,
    cluster: str = "",
    common: Common | None = None,
) -> int:
    """Show queues of a cell, or of a file, as a tree: entitlement, limit, what they hold and borrow, and who waits.

    Args:
        file: Queues of Volcano or of Berth in YAML or JSON, such as from kubectl get queues -o yaml; - for stdin. None:
            those of the cell.
        cluster: What queues of a file divide: a topology file, or words such as nodes=302,product=module910bx8. Without
            it the capability of the root is.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if file:
            _show_file(file, cluster, options)
        elif cluster:
            raise CommandError("--cluster divides queues of a file, and no file is named", code=WRONG_USE)
        else:
            await _show_cell(options)
        return OK

    return run(work)


def list_queues(*, common: Common | None = None) -> int:
    """List the queues of a cell as a tree: entitlement, limit, what they hold and borrow, and who waits.

    Args:
        common: Cell and form of the output.
    """
    return show_queues(common=common)


def _show_file(file: str, cluster: str, options: Common) -> None:
    found = read_file(file)
    root = found.tree.queues[ROOT]
    capacity = capacity_of(cluster_of(cluster).nodes) if cluster else root.capability
    shares = shares_of(found.tree, capacity)
    rows = [*_rows(shares), *_broken_rows(found.tree)]
    if options.json:
        emit(QueueTree(shares.capacity, rows, shares.oversubscribed, found.faults))
        return
    table = Table("QUEUE", "STATE", "ENTITLED", "LIMIT", "KEPT FREE", "NAMESPACES")
    for dimension, row in _lines(table, shares, rows):
        amounts = (_amount(dimension, given) for given in (row.entitlement, row.limit, row.guarantee))
        table.add_row(_title(row), _state(row), *amounts, _namespaces(row))
    print_table(table)
    warn(found.faults)
    warn(_oversubscribed(shares))
    if not shares.capacity:
        print_result("entitlements need a cluster: --cluster FILE, or a root with a capability")


async def _show_cell(options: Common) -> None:
    async with connected(options) as bus:
        cell = queues_of(await state_now(bus, SystemClock()))
    now_ms = SystemClock().now_ms()
    shares = cell.shares
    rows = [_with_jobs(cell, row) for row in (*_rows(shares), *_broken_rows(shares.tree))]
    faults = [f"queue {name} is not valid: {reason}" for name, reason in shares.tree.broken.items()]
    if options.json:
        emit(QueueTree(shares.capacity, rows, shares.oversubscribed, faults, cell.setting))
        return
    table = Table("QUEUE", "STATE", "ENTITLED", "LIMIT", "HELD", "BORROWED", "WAITING")
    for dimension, row in _lines(table, shares, rows):
        amounts = (_amount(dimension, given) for given in (row.entitlement, row.limit, row.held, row.borrowed))
        table.add_row(_title(row), _state(row), *amounts, _waiting(row, now_ms))
    print_table(table)
    warn(faults)
    warn(_oversubscribed(shares))
    idle = cell.why_not_applied()
    if idle:
        print_result(idle)


def _rows(shares: Shares) -> Iterator[QueueRow]:
    """Valid queues, each behind the one above it, siblings by age and name."""
    tree = shares.tree
    left = [ROOT]
    while left:
        name = left.pop()
        left += reversed(tree.children.get(name, ()))
        namespaces = tree.namespaces(name)
        yield QueueRow(
            name,
            tree.paths[name][1] if name != ROOT else "",
            len(tree.paths[name]) - 1,
            tree.states[name].name.capitalize(),
            is_valid=True,
            is_declared=name in tree.declared,
            entitlement=shares.entitlements[name],
            limit=shares.limits[name],
            guarantee=tree.queues[name].guarantee,
            namespaces=None if namespaces is None else sorted(namespaces),
        )


def _broken_rows(tree: Tree) -> Iterator[QueueRow]:
    for name, reason in tree.broken.items():
        queue = tree.queues[name]
        yield QueueRow(
            name,
            queue.parent or ROOT,
            0,
            tree.states[name].name.capitalize(),
            is_valid=False,
            is_declared=True,
            entitlement={},
            limit={},
            guarantee={},
            namespaces=queue.namespaces,
            reason=reason,
        )


def _with_jobs(cell: CellQueues, row: QueueRow) -> QueueRow:
    """The row with what jobs hold there, and how many wait."""
    jobs = cell.below.get(row.name, NO_JOBS)
    held = {one: cell.usage.held(row.name, one) for one in cell.shares.capacity}
    leaving = {one: cell.usage.leaving(row.name, one) for one in held}
    beyond = {one: held[one] - most for one, most in row.entitlement.items() if held.get(one, 0) > most}
    return msgspec.structs.replace(
        row,
        held={one: held[one] + leaving[one] for one in held},
        borrowed=beyond,
        running=len(jobs.running),
        waiting=len(jobs.waiting),
        waiting_since_ms=jobs.oldest_ms,
    )


def _lines(table: Table, shares: Shares, rows: list[QueueRow]) -> Iterator[tuple[str, QueueRow]]:
    """The tree once for each dimension that a queue names, and for the chips of the cluster, each in a section."""
    named = {
        dimension
        for queue in shares.tree.queues.values()
        for amounts in (queue.capability, queue.guarantee, queue.deserved)
        for dimension in amounts
    }
    shown = in_order(named | {dimension for dimension in shares.capacity if is_chips(dimension)})
    for dimension in shown or [_NONE]:
        table.add_section(dimension if shown else "no limits")
        yield from ((dimension, row) for row in rows if row.is_valid)
    broken = [row for row in rows if not row.is_valid]
    if broken:
        table.add_section("not valid")
        yield from ((_NONE, row) for row in broken)


def _amount(dimension: str, given: Amounts) -> str:
    return number_of(dimension, given[dimension]) if dimension in given else _NONE


def _state(row: QueueRow) -> Span:
    return Span(row.state, _STYLES[State[row.state.upper()]] if row.is_valid else "red")


def _waiting(row: QueueRow, now_ms: int) -> str:
    return f"{row.waiting:,} ({age(row.waiting_since_ms, now_ms)})" if row.waiting else _NONE


def _title(row: QueueRow) -> str:
    made = "" if row.is_declared or row.name == ROOT else " (made)"
    return f"{'  ' * row.depth}{row.name}{made}"


def _namespaces(row: QueueRow) -> str:
    return "all" if row.namespaces is None else listed(row.namespaces, _NAMESPACES_SHOWN) or "none"


def _oversubscribed(shares: Shares) -> list[str]:
    return [
        f"queues below {name} are entitled to {number_of(dimension, beyond[dimension])} {dimension} more than {name}"
        for name, beyond in shares.oversubscribed.items()
        for dimension in in_order(beyond)
    ]
