"""``berth repair``: lets the readers of the ledger go on where a message stops them."""

import asyncio
import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import CommandError, emit, print_result
from berth.runtime.clock import SystemClock
from berth.runtime.identity import process_identity
from berth.runtime.ledger_repair import Found, find, repair


class SkipRow(msgspec.Struct, frozen=True):
    """Messages that are passed over, as ``--json`` prints them."""

    sequence: int
    last_seq: int
    reason: str
    digest: str
    """Empty if they were deleted."""


class RepairResult(msgspec.Struct, frozen=True):
    """Result of ``berth repair --json``."""

    first_seq: int
    """First message of the ledger that was read."""
    last_seq: int
    skips: list[SkipRow]
    """What stopped the readers and is passed over now."""


def repair_ledger(*, yes: Annotated[bool, Parameter(negative=())] = False, common: Common | None = None) -> int:
    """Let the readers of the ledger go on where a message stops them, or was deleted.

    Args:
        yes: Make the change without a question.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        by, clock = process_identity(), SystemClock()
        async with connected(options) as bus:
            found = await find(bus, clock, by=by)
            if not options.json:
                _show(found)
            if found.skips:
                if not yes and not await asyncio.to_thread(_agrees):
                    raise CommandError("nothing was changed; make the change with: berth repair --yes")
                await repair(bus, clock, found, by=by)
        if options.json:
            rows = [SkipRow(skip.sequence, skip.last_seq, skip.reason, skip.digest) for skip in found.skips]
            emit(RepairResult(found.first_seq, found.last_seq, rows))
        elif found.skips:
            print_result(
                "Done. Services that stopped go on when they are started again; the dispatcher begins an epoch."
            )

    return run(work)


def _show(found: Found) -> None:
    print_result(f"Messages {found.first_seq} to {found.last_seq} of the ledger were read.")
    for skip in found.skips:
        which = f"{skip.sequence}" if skip.sequence == skip.last_seq else f"{skip.sequence} to {skip.last_seq}"
        print_result(f"  {which}: {skip.reason}")
    if found.skips:
        print_result("Readers will pass over them. The bytes that are stored stay as they are.")
    else:
        print_result("Nothing stops their readers; nothing was changed.")


def _agrees() -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write("Make this change? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
