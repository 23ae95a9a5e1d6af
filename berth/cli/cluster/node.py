"""``berth node``: one node with its chips, jobs, faults and labels."""

from collections.abc import Iterator

from msgspec import UNSET

from berth.cli.cell import Common, connected, run
from berth.cli.cluster.cell_lists import lists_of
from berth.cli.cluster.node_map import chips_drawn
from berth.cli.cluster.node_rows import NodeRow, free_chips, row_from, troubles_of
from berth.cli.cluster.nodes import unknown_node
from berth.cli.output import CommandError, clock_time, emit, print_result
from berth.cli.tables import Span, Styled
from berth.core.text import numbered
from berth.runtime.clock import SystemClock
from berth.schemas.programs.replies import FaultOfNode, NodeDetails, NodeState

_GIB: int = 1024
_WIDTH: int = 10


def node(name: str, *, common: Common | None = None) -> int:
    """Show a node: its chips, the jobs there, faults and since when, free cpu and memory, and labels.

    Args:
        name: Its name.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            lists = await lists_of(bus)
            found = await lists.node(name)
            if found is None:
                raise CommandError(unknown_node(name, [one.name for one in await lists.nodes()]))
        if options.json:
            emit(found)
            return
        for line in lines_of(found, SystemClock().now_ms()):
            print_result(line)

    return run(work)


def lines_of(node: NodeState, now_ms: int) -> Iterator[Styled]:
    """A node in lines, each with a word for what it says."""
    row = row_from(node)
    details = node.details if node.details is not UNSET else NodeDetails()
    yield [Span(node.name, "bold"), Span(f"  {_where(row, details)}")]
    yield _line("state", ", ".join(troubles_of(row, now_ms)) or "ok")
    yield [Span(f"{'chips':{_WIDTH}}"), *chips_drawn(row), Span(f"  {free_chips(row)} of {row.chips} free")]
    for words in _chip_lines(row):
        yield _line("", words)
    for at, job in enumerate(details.jobs):
        ranks = numbered("rank", job.ranks) if job.ranks else "places held"
        chips = f", {numbered('chip', job.chips)}" if job.chips else ""
        yield _line("" if at else "jobs", f"{job.namespace}/{job.name} {ranks}{chips}")
    if details.more_jobs or not details.jobs:
        more = f"{details.more_jobs:,} that you may not read" if details.more_jobs else "none"
        yield _line("" if details.jobs else "jobs", more)
    for at, fault in enumerate(details.faults):
        yield _line("" if at else "faults", _fault_words(fault, now_ms))
    if not details.faults:
        yield _line("faults", "none")
    yield _line("cpu", f"{details.cpu_free_milli / 1000:,.4g} of {details.cpu_milli / 1000:,.4g} free")
    memory = f"{details.memory_free_mib // _GIB:,} of {details.memory_mib // _GIB:,} GiB free"
    yield _line("memory", memory)
    for at, (key, value) in enumerate(sorted(details.labels.items())):
        yield _line("" if at else "labels", f"{key}={value}")


def _line(word: str, text: str) -> str:
    return f"{word:{_WIDTH}}{text}"


def _where(row: NodeRow, details: NodeDetails) -> str:
    parts = [row.product or "unknown product"]
    parts += [
        f"{what} {name}"
        for what, name in (("leaf", row.leaf), ("superpod", row.superpod), ("rack", details.rack))
        if name
    ]
    return ", ".join(parts)


def _chip_lines(row: NodeRow) -> Iterator[str]:
    kinds = (("unhealthy", row.unhealthy), ("network-unhealthy", row.network_unhealthy), ("releasing", row.releasing))
    for word, chips in (*kinds, ("withheld by the node", row.withheld), ("shared by quota", row.shared)):
        if chips:
            yield f"{numbered('chip', chips)} {word}"


def _fault_words(fault: FaultOfNode, now_ms: int) -> str:
    chips = f" {numbered('chip', fault.chips)}" if fault.chips else ""
    since = f" since {clock_time(fault.since_ms, now_ms)}" if fault.since_ms else ""
    changed = f", last change {clock_time(fault.changed_ms, now_ms)}" if fault.changed_ms > fault.since_ms else ""
    return f"{fault.kind}{chips}{since}{changed}{f': {fault.reason}' if fault.reason else ''}"
