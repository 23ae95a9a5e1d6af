"""``berth queues show``: the tree of queues, with limits and entitlements."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import run
from berth.cli.output import OK, emit, listed, print_result, print_table, warn
from berth.cli.queue_files import read_file
from berth.cli.simulation.cluster_input import cluster_of
from berth.cli.tables import Span, Table
from berth.core.queues.amounts import in_order, is_chips, number_of
from berth.core.queues.capacity import capacity_of
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import State, Tree
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


class QueueTree(msgspec.Struct, frozen=True):
    """Result of ``berth queues show --json``."""

    capacity: Amounts
    queues: list[QueueRow]
    """Each behind the one above it; those that are not valid come last."""
    oversubscribed: dict[str, Amounts]
    """By how much children declare more than their queue is entitled to."""
    faults: list[str]


def show_queues(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    cluster: str = "",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Show queues of a file as a tree: state, entitlement, limit, what is kept free, and who may use them.

    Args:
        file: Queues of Volcano or of Berth in YAML or JSON, such as from kubectl get queues -o yaml; - for stdin.
        cluster: What is divided: a topology file, or words such as nodes=302,product=module910bx8. Without it the
            capability of the root is.
        json: Print JSON instead of text.
    """

    async def work() -> int:
        found = read_file(file)
        root = found.tree.queues[ROOT]
        capacity = capacity_of(cluster_of(cluster).nodes) if cluster else root.capability
        shares = shares_of(found.tree, capacity)
        rows = [*_rows(shares), *_broken_rows(found.tree)]
        if json:
            emit(QueueTree(shares.capacity, rows, shares.oversubscribed, found.faults))
            return OK
        print_table(_table(shares, rows))
        warn(found.faults)
        warn(_oversubscribed(shares))
        if not shares.capacity:
            print_result("entitlements need a cluster: --cluster FILE, or a root with a capability")
        return OK

    return run(work)


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


def _table(shares: Shares, rows: list[QueueRow]) -> Table:
    """The tree once for each dimension that a queue names, and for the chips of the cluster."""
    named = {
        dimension
        for queue in shares.tree.queues.values()
        for amounts in (queue.capability, queue.guarantee, queue.deserved)
        for dimension in amounts
    }
    shown = in_order(named | {dimension for dimension in shares.capacity if is_chips(dimension)})
    table = Table("QUEUE", "STATE", "ENTITLED", "LIMIT", "KEPT FREE", "NAMESPACES")
    for dimension in shown or [_NONE]:
        table.add_section(dimension if shown else "no limits")
        for row in rows:
            if row.is_valid:
                amounts = (
                    number_of(dimension, given[dimension]) if dimension in given else _NONE
                    for given in (row.entitlement, row.limit, row.guarantee)
                )
                state = Span(row.state, _STYLES[State[row.state.upper()]])
                table.add_row(_title(row), state, *amounts, _namespaces(row))
    broken = [row for row in rows if not row.is_valid]
    if broken:
        table.add_section("not valid")
        for row in broken:
            table.add_row(row.name, Span(row.state, "red"), _NONE, _NONE, _NONE, _namespaces(row))
    return table


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
