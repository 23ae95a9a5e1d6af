"""``berth usage``: chip-hours of a cell, by who used them and by product."""

from typing import Final

import msgspec

from berth.cli.cell import Common, connected, run
from berth.cli.durations import option_ms
from berth.cli.output import emit, moment, print_result, print_table
from berth.cli.selection import not_known
from berth.cli.tables import Table
from berth.core.overview.chip_account import FIELDS, ChipAccount
from berth.core.replay.log_clock import moment_of
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.recording import past_since
from berth.schemas.recording import BEGINNING

_HOUR_MS: Final = 3_600_000
_EXACT_BELOW: Final = 100


class UserRow(msgspec.Struct, frozen=True):
    """Chip-time of jobs as ``--json`` prints it; times are chips times milliseconds."""

    of: dict[str, str]
    """Value of each field of ``--by``."""
    jobs: int
    used_ms: int
    lost_to_faults_ms: int
    lost_to_evictions_ms: int


class ProductRow(msgspec.Struct, frozen=True):
    """Chip-time of a product likewise."""

    product: str
    chips_ms: int
    used_ms: int
    idle_ms: int
    unhealthy_ms: int
    drained_ms: int


class UsageResult(msgspec.Struct, frozen=True):
    """Result of ``berth usage --json``."""

    from_ms: int
    to_ms: int
    users: list[UserRow]
    products: list[ProductRow]


def usage(
    *,
    since: str = "30d",
    by: str = "namespace",
    common: Common | None = None,
) -> int:
    """Add up chip-hours from the ledger: used, idle, and lost to faults and evictions.

    Args:
        since: How far back, such as 8h or 30d.
        by: Fields by which the use is told: namespace, job, product and queue, separated by commas.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        fields = [field.strip() for field in by.split(",")]
        wrong = [field for field in fields if field not in FIELDS]
        if wrong:
            raise not_known("--by", wrong[0], FIELDS)
        now_ms = SystemClock().now_ms()
        begin_ms = now_ms - option_ms("--since", since)
        async with connected(options) as bus:
            begin_ms, account = await account_of(bus, begin_ms, now_ms)
        found = result_of(account, fields, begin_ms, now_ms)
        if options.json:
            emit(found)
        else:
            show(found, fields)

    return run(work)


async def account_of(bus: Bus, begin_ms: int, end_ms: int) -> tuple[int, ChipAccount]:
    """Chip-time of a cell, and when the account begins: at the begin of what is stored at the earliest.

    Raises:
        TransientError: The bus did not answer.
        NoHistoryError: No history is stored.
    """
    start, history, is_whole = await past_since(bus, begin_ms)
    state = State()
    if start is not BEGINNING:
        state.load(start)
    account: ChipAccount | None = None
    at_ms = 0
    async for entry in history.entries():
        at_ms = max(moment_of(entry), at_ms)
        if account is None and (at_ms >= begin_ms or (not is_whole and at_ms)):
            begin_ms = begin_ms if is_whole and start is not BEGINNING else max(at_ms, begin_ms)
            account = ChipAccount(state, begin_ms, end_ms)
        if account is not None:
            account.apply(entry, at_ms)
        elif entry.subject:
            state.apply_fact(entry.subject, entry.sequence, entry.data)
        else:
            state.apply_record(entry.sequence, entry.data)
    account = account or ChipAccount(state, begin_ms, end_ms)
    account.end()
    return begin_ms, account


def result_of(account: ChipAccount, fields: list[str], begin_ms: int, end_ms: int) -> UsageResult:
    """An account as ``--json`` prints it."""
    users = [UserRow(dict(zip(fields, key, strict=True)), *time) for key, time in account.by(fields).items()]
    products = [ProductRow(name, *time) for name, time in sorted(account.products.items())]
    return UsageResult(begin_ms, end_ms, users, products)


def show(found: UsageResult, fields: list[str]) -> None:
    """Print the use by the fields, and the chips by product."""
    print_result(f"chip-hours from {moment(found.from_ms)} to {moment(found.to_ms)}")
    if found.users:
        lost = ("LOST TO FAULTS", "LOST TO EVICTIONS")
        table = Table(*(field.upper() for field in fields), "JOBS", "USED", *lost)
        rows = [(one.used_ms, one.lost_to_faults_ms, one.lost_to_evictions_ms) for one in found.users]
        for one, times in zip(found.users, rows, strict=True):
            table.add_row(
                *(one.of[field] or ("none" if field == "queue" else "unknown") for field in fields),
                f"{one.jobs:,}",
                *map(hours, times),
            )
        table.add_row("all", *[""] * len(fields), *(hours(sum(column)) for column in zip(*rows, strict=True)))
        print_table(table)
    else:
        print_result("no job had chips")
    if found.products:
        table = Table("PRODUCT", "CHIP-HOURS", "USED", "IDLE", "UNHEALTHY", "DRAINED", short={"PRODUCT": 12})
        for each in found.products:
            parts = (each.chips_ms, each.used_ms, each.idle_ms, each.unhealthy_ms, each.drained_ms)
            table.add_row(each.product or "unknown", *map(hours, parts))
        print_table(table)


def hours(chip_ms: int) -> str:
    """Chip-hours with separators of thousands, with a decimal below 100."""
    tenths = round(chip_ms * 10 / _HOUR_MS)
    return f"{tenths // 10}.{tenths % 10}" if tenths < _EXACT_BELOW * 10 else f"{round(tenths / 10):,}"
