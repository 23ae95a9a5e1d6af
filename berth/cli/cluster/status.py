"""``berth status``: who leads a cell, what runs, how far it is, and how NATS does."""

from typing import Annotated, Final, Literal

from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import FAILED, OK, age, complain, emit, listed, print_result, print_table
from berth.cli.tables import Table
from berth.core.text import pluralize, ranges
from berth.runtime.cell_status.gathering import gather_status
from berth.runtime.cell_status.model import CellStatus, Process, StatusResult
from berth.runtime.clock import SystemClock

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


def status(
    *,
    output: Annotated[Literal["text", "json"], Parameter(name=["--output", "-o"])] = "text",
    common: Common | None = None,
) -> int:
    """Show who leads, how far each service is behind, scorers, last decision, dead letters, and NATS.

    Args:
        output: Form of the output; json is the same as --json.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        async with connected(options) as bus:
            found = await gather_status(bus, SystemClock())
        problems = found.problems
        if options.json or output == "json":
            emit(StatusResult(not problems, problems, found))
        else:
            show(found)
            complain(problems)
        return FAILED if problems else OK

    return run(work)


def show(found: CellStatus) -> None:
    """Print the status, with a table of processes and one of streams."""
    for line in head_lines(found):
        print_result(line)
    if found.processes:
        table = Table("SERVICE", "PROCESS", "RELEASE", "BEHIND", "STATE")
        for one in found.processes:
            table.add_row(*_process_cells(one))
        print_table(table)
    table = Table("STREAM", "MESSAGES", "SIZE", "FIRST", "LAST", "REPLICAS")
    for stream in found.nats.streams:
        late = f"late: {', '.join(stream.late)}" if stream.late else ""
        led = f"led by {stream.leader}" if stream.leader else ""
        table.add_row(
            stream.name,
            f"{stream.messages:,}",
            size_text(stream.bytes),
            str(stream.first_seq),
            str(stream.last_seq),
            "; ".join(filter(None, (led, late))) or "one server",
        )
    print_table(table)


def head_lines(found: CellStatus) -> list[str]:
    """Lines above the tables: one for each question that an operator has."""
    leader, scorers, decision, letters, nats = (
        found.leader,
        found.scorers,
        found.decision,
        found.dead_letters,
        found.nats,
    )
    waiting = f", {pluralize(leader.waiting, 'job')} waiting" if leader.process else ""
    renewed = f", lease renewed {age(leader.renewed_ms, found.at_ms)} ago" if leader.renewed_ms else ""
    lines = [f"cell           {found.cell}"]
    lines.append(f"leader         {leader.process or 'none that answers'}{waiting}{renewed}")
    if scorers.expected == 0:
        lines.append("scorers        none: the dispatcher scores in its own process")
    elif scorers.expected is None:
        known = f"shards {ranges(scorers.answering)} answer" if scorers.answering else "none answers"
        lines.append(f"scorers        {known}; how many there should be is not known without a leader")
    else:
        lines.append(f"scorers        {len(scorers.answering):,} of {pluralize(scorers.expected, 'shard')} answer")
    if decision is None:
        lines.append("last decision  none")
    elif decision.problem:
        lines.append(f"last decision  record {decision.sequence} cannot be read")
    else:
        if decision.round:
            what = (
                f"round {decision.round}: {decision.placed:,} placed, {decision.refused:,} refused,"
                f" {decision.released:,} released"
            )
        else:
            what = f"epoch {decision.epoch} began"
        lines.append(f"last decision  {age(decision.at_ms, found.at_ms)} ago, record {decision.sequence}, {what}")
    if letters.open:
        kinds = ", ".join(f"{count:,} {code}" for code, count in letters.reasons.items())
        lines.append(
            f"dead letters   {letters.open:,}, the oldest {age(letters.oldest_ms, found.at_ms)} old: {kinds}; see: berth"
            " dead list"
        )
    else:
        lines.append("dead letters   none")
    doubts = {"too old": found.reports.stale, "missing": found.reports.missing, "refused": found.reports.refused}
    if any(doubts.values()):
        words = "; ".join(f"{len(names):,} {word}: {listed(names)}" for word, names in doubts.items() if names)
        lines.append(f"reports        {words}; see: berth nodes")
    cluster = f", cluster {nats.cluster}" if nats.cluster else ""
    lines.append(
        f"NATS           {' '.join(filter(None, (nats.server, nats.release)))} at {nats.address}{cluster}, round trip"
        f" {nats.round_trip_ms:.1f} ms"
    )
    return lines


def _process_cells(one: Process) -> list[str]:
    shard = f" shard {one.shard}" if one.shard is not None else ""
    behind = ", ".join(f"{stream} {count:,}" for stream, count in one.behind.items())
    state = one.not_ready or ("leads" if one.is_leader else "ready")
    return [one.service + shard, one.id, one.release, behind or "follows none", state]


def size_text(size: int) -> str:
    """Bytes in the largest unit in which they are at least one."""
    amount, unit = float(size), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount /= _STEP
        unit += 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"
