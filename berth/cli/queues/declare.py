"""``berth queues apply``, ``delete``, ``open`` and ``close``: declare the queues of a cell.

On Kubernetes with Queues of Volcano these are the queues of the cell, and ``kubectl`` changes them.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, caller, cause, connected, run
from berth.cli.output import FAILED, WRONG_USE, CommandError, emit, print_result, warn
from berth.cli.queue_files import reading_of
from berth.cli.queues.cell_queues import CellQueues, queues_of
from berth.cli.queues.changes import (
    ChangedRow,
    QueueChange,
    applied,
    check_not_kube_objects,
    deleted,
    lines_of,
    with_state,
)
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.history import state_now
from berth.schemas.envelope import encode

_KIND: Final = "queues.scheduling.volcano.sh"
_Plan = Callable[[CellQueues, str, int], QueueChange]
"""What a command changes, of the queues of a cell, who calls it, and the time."""


class QueueChanges(msgspec.Struct, frozen=True):
    """Result of the commands with ``--json``."""

    queues: list[ChangedRow]
    warnings: list[str]


def apply(file: Annotated[str, Parameter(allow_leading_hyphen=True)], /, *, common: Common | None = None) -> int:
    """Declare the queues of a file in a cell; other queues stay as they are. Nothing is changed if any is wrong.

    Args:
        file: Queues of Berth or of Volcano in YAML or JSON; - for stdin.
        common: Cell and form of the output.
    """

    async def work() -> None:
        reading = reading_of(file)
        warn(f"{what} is no queue; it is skipped" for what in reading.skipped)

        def plan(cell: CellQueues, by: str, at_ms: int) -> QueueChange:
            check_not_kube_objects(cell, f"kubectl apply -f {shlex.quote(file)}")
            return applied(cell, reading.queues, [f"{file}: {error}" for error in reading.errors], by=by, at_ms=at_ms)

        await _change(plan, common or Common())

    return run(work)


def delete(
    *names: Annotated[str, Parameter(help="Names of queues.")],
    common: Common | None = None,
) -> int:
    """Declare queues of a cell no longer: what runs there runs on, charged to root; what waits there starts in none.

    Args:
        names: Names of queues.
        common: Cell and form of the output.
    """

    def plan(cell: CellQueues, by: str, at_ms: int) -> QueueChange:
        check_not_kube_objects(cell, f"kubectl delete {_KIND} {shlex.join(names)}")
        return deleted(cell, names, by=by, at_ms=at_ms)

    return _run(names, plan, common)


def open_(
    *names: Annotated[str, Parameter(help="Names of queues.")],
    common: Common | None = None,
) -> int:
    """Open queues of a cell that are closed.

    Args:
        names: Names of queues.
        common: Cell and form of the output.
    """
    return _run(names, _with_state(names, "Open"), common)


def close(
    *names: Annotated[str, Parameter(help="Names of queues.")],
    common: Common | None = None,
) -> int:
    """Close queues of a cell: no job starts there or in queues below; what runs there runs on.

    Args:
        names: Names of queues.
        common: Cell and form of the output.
    """
    return _run(names, _with_state(names, "Closed"), common)


def _with_state(names: Sequence[str], state: str) -> _Plan:
    def plan(cell: CellQueues, by: str, at_ms: int) -> QueueChange:
        patch = shlex.quote(f'{{"status":{{"state":"{state}"}}}}')
        check_not_kube_objects(
            cell, f"kubectl patch {_KIND} {shlex.join(names)} --subresource status --type merge -p {patch}"
        )
        return with_state(cell, names, state, by=by, at_ms=at_ms)

    return plan


def _run(names: Sequence[str], plan: _Plan, common: Common | None) -> int:
    async def work() -> None:
        if not names:
            raise CommandError("no queue is named, expected one or several", code=WRONG_USE)
        await _change(plan, common or Common())

    return run(work)


async def _change(plan: _Plan, options: Common) -> None:
    """Plan a change on the queues of a cell, store it, and say what it does."""
    async with connected(options) as bus:
        cell = queues_of(await state_now(bus, SystemClock()))
        change = plan(cell, caller(), SystemClock().now_ms())
        await _store(bus, change)
    idle = cell.why_not_applied(change.facts)
    warnings = [*change.warnings, *([idle] if idle else [])]
    if options.json:
        emit(QueueChanges(change.rows, warnings))
        return
    for row in change.rows:
        for line in lines_of(row):
            print_result(line)
    warn(warnings)


async def _store(bus: Bus, change: QueueChange) -> None:
    """Store facts one after the other.

    Raises:
        CommandError: The server did not answer, or the user may not publish queues.
    """
    for number, fact in enumerate(change.facts):
        try:
            await bus.publish(bus.subjects.fact_queue(fact.queue.name), encode(fact))
        except TransientError as error:
            done = f"{number} of {len(change.facts)} changes are stored; run the command again for the others"
            raise CommandError(f"{cause(error)}: queue {fact.queue.name} is not stored", done, code=FAILED) from error
