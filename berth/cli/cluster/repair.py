"""``berth repair``: lets the readers of the ledger go on, and corrects snapshots and statuses that are wrong."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.consent import ask_consent
from berth.cli.output import emit, print_result
from berth.core.text import pluralize
from berth.runtime.clock import SystemClock
from berth.runtime.fsck.cell_repair import Plan, carry_out, plan_of
from berth.runtime.identity import process_identity


class SkipRow(msgspec.Struct, frozen=True):
    """Messages that are passed over, as ``--json`` prints them."""

    sequence: int
    last_seq: int
    reason: str
    digest: str
    """Empty if they were deleted."""


class SnapshotRow(msgspec.Struct, frozen=True):
    """A snapshot that was removed."""

    ledger_seq: int
    reason: str


class StatusRow(msgspec.Struct, frozen=True):
    """A status that was written again."""

    namespace: str
    name: str
    reason: str


class RepairResult(msgspec.Struct, frozen=True):
    """Result of ``berth repair --json``."""

    first_seq: int
    """First message of the ledger that was read."""
    last_seq: int
    skips: list[SkipRow]
    """What stopped the readers and is passed over now."""
    snapshots: list[SnapshotRow]
    statuses: list[StatusRow]


def repair_ledger(*, yes: Annotated[bool, Parameter(negative=())] = False, common: Common | None = None) -> int:
    """Let the readers of the ledger go on where a message stops them, or was deleted; correct snapshots and statuses.

    Args:
        yes: Make the change without a question.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        by, clock = process_identity(), SystemClock()
        async with connected(options) as bus:
            plan = await plan_of(bus, clock, by=by)
            if not options.json:
                _show(plan)
            left = []
            if not plan.is_empty:
                await ask_consent("Make this change", "berth repair --yes", yes=yes)
                left = await carry_out(bus, clock, plan, by=by)
        if options.json:
            emit(_result_of(plan))
        elif not plan.is_empty:
            _show_done(plan, len(left))

    return run(work)


def _result_of(plan: Plan) -> RepairResult:
    found = plan.found
    return RepairResult(
        found.first_seq,
        found.last_seq,
        [SkipRow(skip.sequence, skip.last_seq, skip.reason, skip.digest) for skip in found.skips],
        [SnapshotRow(one.ledger_seq, one.reason) for one in plan.snapshots],
        [StatusRow(*one.key, one.finding.text) for one in plan.statuses or ()],
    )


def _show(plan: Plan) -> None:
    found = plan.found
    if found.last_seq < found.first_seq:
        after = " after its newest snapshot" if found.first_seq > 1 else ""
        print_result(f"The ledger has no message{after}.")
    else:
        print_result(f"Messages {found.first_seq} to {found.last_seq} of the ledger were read.")
    for skip in found.skips:
        which = f"{skip.sequence}" if skip.sequence == skip.last_seq else f"{skip.sequence} to {skip.last_seq}"
        print_result(f"  {which}: {skip.reason}")
    if found.skips:
        print_result("Readers will pass over them. The bytes that are stored stay as they are.")
    else:
        print_result("Nothing stops their readers.")
    if plan.snapshots:
        print_result("These snapshots will be removed:")
    for one in plan.snapshots:
        print_result(f"  at record {one.ledger_seq}: {one.reason}")
    if plan.statuses:
        print_result("These statuses will be written again:")
    for wrong in plan.statuses or ():
        print_result(f"  {'/'.join(wrong.key)}: {wrong.finding.text}")
    if plan.statuses is None:
        print_result("Statuses are compared when this is done: start the command again.")
    elif plan.is_empty:
        print_result("Nothing was changed.")


def _show_done(plan: Plan, left: int) -> None:
    print_result("Done.")
    if plan.found.skips:
        print_result("Services that stopped go on when they are started again; the dispatcher begins an epoch.")
    if any(not skip.was_void for skip in plan.found.skips):
        print_result("Services that had read what is passed over end; they go on when they are started again.")
    if left:
        print_result(f"{pluralize(left, 'job')}: the status changed meanwhile and stays as it is.")
