"""``berth nodes``: the chips of every node, drawn."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from berth.cli.cell import Common, connected, run
from berth.cli.cluster.drain_list import drains_of, show_drains, since_words
from berth.cli.output import emit, listed, moment, print_legend, print_result, print_table
from berth.cli.tables import Span, Table, shows_unicode
from berth.core.chips.form_selection import choose_form
from berth.core.chips.picking import ids_of
from berth.core.cluster.node_packing import unpack_health
from berth.core.explain.chips_twice import NamedTwice, named_twice
from berth.core.explain.reserved_places import Reserved, reserved_places
from berth.core.explain.text import ranges
from berth.core.state.cell import State
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import StreamName

_PLAIN: Final = {
    "free": ".", "used": "#", "shared": "%", "releasing": "-", "unhealthy": "x", "used-unhealthy": "X", "network": "~",
    "withheld": "o", "reserved": ":",
}  # fmt: skip
_DRAWN: Final = _PLAIN | {
    "free": "□", "used": "■", "shared": "◧", "releasing": "▒", "withheld": "○", "reserved": "◇",
}  # fmt: skip
_STYLES: Final = {
    "free": "green", "used": "blue", "shared": "cyan", "releasing": "magenta", "unhealthy": "red",
    "used-unhealthy": "red", "network": "yellow", "withheld": "magenta",
    "reserved": "yellow",
}  # fmt: skip
_WORDS: Final = {
    "free": "free",
    "used": "used",
    "shared": "shared by quota",
    "releasing": "releasing",
    "unhealthy": "unhealthy",
    "used-unhealthy": "unhealthy and used",
    "network": "network-unhealthy",
    "withheld": "withheld by the node",
    "reserved": "reserved",
}


class NodeRow(msgspec.Struct, frozen=True):
    """A node as ``--json`` prints it. Lists contain chip ids."""

    name: str
    product: str
    resource: str
    domain: str
    leaf: str
    superpod: str
    chips: int
    group_size: int
    """Chips of a ring, pair, mesh or card; 0 if the product has no such groups."""
    free: list[int]
    used: list[int]
    shared: list[int]
    releasing: list[int]
    unhealthy: list[int]
    network_unhealthy: list[int]
    level: str
    ready: bool
    cordoned: bool
    chip_ids: list[int]
    withheld: list[int] = []
    reason: str = ""
    """Reason for its health, with the source of the report; empty if it is healthy."""
    health_source: str = ""
    """Source of its health; empty if there is none."""
    updated_ms: int = 0
    """Time of the last report of that source in milliseconds since 1970; 0 if it is unknown."""
    drained_ms: int = 0
    """From when on it is drained, in milliseconds since 1970; 0 if it is not."""
    reserved: list[Reserved] = []
    """Chips of ``used``, or shared ones, that no pod uses: a job that recovers gets them."""
    unnamed: int = 0
    """Chips that pods of others hold and nobody has named: as many of ``free`` are given to nobody."""
    twice: list[NamedTwice] = []
    """Chips that more than one pod names."""


class Judged(msgspec.Struct, frozen=True):
    """Health of one node according to the health fact of its domain."""

    condition: NodeCondition
    source: str


async def judged_nodes(bus: Bus) -> dict[tuple[str, str], Judged]:
    """Latest health by domain and node; facts that do not decode are skipped."""
    found: dict[tuple[str, str], Judged] = {}
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),)):
        try:
            fact = decode(stored.data, HealthSeen)
            rows = unpack_health(fact)
        except (DecodeError, ValueError, IndexError):
            continue
        found.update({(fact.domain, row.name): Judged(row, fact.source) for row in rows})
    return found


def rows_of(state: State, judged: Mapping[tuple[str, str], Judged] | None = None) -> list[NodeRow]:
    """All nodes by product and name.

    Args:
        state: State of the cell.
        judged: Result of :func:`judged_nodes`; None omits reasons.
    """
    table = state.table
    of_nodes = _OfNodes(judged or {}, reserved_places(state), named_twice(state))
    found = [_row(state, row, of_nodes) for row in range(len(table)) if table.present[row]]
    return sorted(found, key=lambda node: (node.product, node.name))


class _OfNodes(NamedTuple):
    """What is known of nodes beside their columns."""

    judged: Mapping[tuple[str, str], Judged]
    reserved: Mapping[str, list[Reserved]]
    twice: Mapping[str, list[NamedTwice]]


def _row(state: State, row: int, of_nodes: _OfNodes) -> NodeRow:
    table = state.table
    domain = table.domains[int(table.domain[row])]
    health = of_nodes.judged.get((domain, table.names[row]))
    key = table.classes[int(table.node_class[row])]
    shares = state.shares.nodes.get(row)
    leaf, superpod = int(table.leaf[row]), int(table.superpod[row])
    return NodeRow(
        name=table.names[row],
        product=key.product,
        resource=key.resource,
        domain=domain,
        leaf=table.leaves[leaf] if leaf >= 0 else "",
        superpod=table.superpods[superpod] if superpod >= 0 else "",
        chips=int(table.capacity[row]),
        group_size=group_size(key.product),
        free=list(ids_of(int(table.free[row]))),
        used=list(ids_of(int(table.used[row]))),
        shared=list(ids_of(shares.mask)) if shares is not None else [],
        releasing=list(ids_of(int(table.releasing[row]))),
        unhealthy=list(ids_of(int(table.unhealthy[row]) & int(table.chips[row]))),
        network_unhealthy=list(ids_of(int(table.network[row]) & int(table.chips[row]))),
        level=NodeHealth(int(table.level[row])).name.lower().replace("_", "-"),
        ready=key.ready,
        cordoned=key.cordoned,
        chip_ids=list(ids_of(int(table.chips[row]))),
        withheld=list(ids_of(int(table.withheld[row]) & int(table.chips[row]))),
        reason=health.condition.reason if health is not None else "",
        health_source=health.source if health is not None else "",
        updated_ms=health.condition.updated_ms if health is not None else 0,
        drained_ms=table.drained_ms.get(row, 0),
        reserved=of_nodes.reserved.get(table.names[row], []),
        unnamed=int(table.chips_others[row]),
        twice=of_nodes.twice.get(table.names[row], []),
    )


def group_size(product: str) -> int:
    """Chips of a group on a node of a product; 0 for an unknown product or one without groups."""
    known = NODE_PRODUCTS.get(product)
    if known is None:
        return 0
    chosen = choose_form(
        resource=known.resource,
        labels=known.job_labels,
        annotations={ANNOTATION_POLICY: known.policy} if known.policy else {},
        selector=known.selector,
    )
    return 0 if isinstance(chosen, Refusal) else chosen.form.group_size


def states_of_chips(node: NodeRow) -> dict[int, str]:
    """State of each chip of a node: a key of the legend."""
    kinds = (
        ("network", node.network_unhealthy),
        ("withheld", node.withheld),
        ("used", node.used),
        ("reserved", [chip for one in node.reserved for chip in one.chips]),
        ("shared", node.shared),
        ("releasing", node.releasing),
        ("unhealthy", node.unhealthy),
        ("used-unhealthy", [chip for chip in node.unhealthy if chip in node.used]),
    )
    found = dict.fromkeys(node.chip_ids, "free")
    for kind, chips in kinds:  # a later one outranks those before it
        found |= dict.fromkeys(chips, kind)
    return found


def drawing(node: NodeRow, glyphs: Mapping[str, str]) -> list[Span]:
    """One glyph per chip, with a gap between groups."""
    parts: list[Span] = []
    states = states_of_chips(node)
    for index, chip in enumerate(node.chip_ids):
        if index and node.group_size and chip % node.group_size == 0:
            parts.append(Span(" "))
        kind = states[chip]
        parts.append(Span(glyphs[kind], _STYLES[kind]))
    return parts


def map_of(nodes: list[NodeRow], glyphs: Mapping[str, str], now_ms: int) -> Table:
    """The nodes as a table with their chips drawn."""
    table = Table("NODE", "PRODUCT", "CHIPS", "FREE", "WHERE", "STATE")
    for node in nodes:
        troubles = [] if node.level == "ok" else [node.level]
        troubles += ["cordoned"] * node.cordoned + ["not ready"] * (not node.ready)
        if node.drained_ms:
            troubles.append(
                "drained" if node.drained_ms <= now_ms else f"drained {since_words(node.drained_ms, now_ms)}"
            )
        table.add_row(
            node.name,
            node.product or "unknown",
            drawing(node, glyphs),
            f"{max(len(node.free) - node.unnamed, 0)}/{node.chips}",
            _where(node),
            ", ".join(troubles),
        )
    return table


def _where(node: NodeRow) -> str:
    """SuperPoD and leaf switch of a node, or its domain if it has neither."""
    parts = [f"superpod {node.superpod}"] * bool(node.superpod) + [f"leaf {node.leaf}"] * bool(node.leaf)
    return ", ".join(parts) or f"domain {node.domain}"


def reasons_of(nodes: list[NodeRow]) -> list[str]:
    """Reasons for unhealthy nodes, one line per reason, in the order of the nodes."""
    result: dict[str, list[str]] = {}
    for node in nodes:
        if node.reason:
            result.setdefault(node.reason, []).append(node.name)
    return [f"{listed(names)}: {reason}" for reason, names in result.items()]


def reserved_lines(nodes: list[NodeRow]) -> list[str]:
    """Reserved chips, one line per node and job, in the order of the nodes."""
    found: list[str] = []
    for node in nodes:
        for one in node.reserved:
            ranks = f"{'rank' if len(one.ranks) == 1 else 'ranks'} {ranges(one.ranks)}"
            chips = f"{'chip' if len(one.chips) == 1 else 'chips'} {ranges(one.chips)}" if one.chips else "room"
            until = f", until {moment(one.until_ms)} at the latest" if one.until_ms else ""
            found.append(f"{node.name}: {chips} reserved for {ranks} of {one.job}{until}")
    return found


def pod_lines(nodes: list[NodeRow]) -> list[str]:
    """What pods say of their chips that does not fit together, or do not say, in the order of the nodes."""
    found: list[str] = []
    for node in nodes:
        if node.unnamed:
            words = "1 chip is" if node.unnamed == 1 else f"{node.unnamed} chips are"
            found.append(f"{node.name}: {words} in use by pods that do not name them")
        found += [f"{node.name}: chip {one.chip} is named by {listed(one.pods)}" for one in node.twice]
    return found


def show_map(nodes: list[NodeRow], now_ms: int) -> None:
    """Print the nodes, the legend, reserved chips, oddities of pods, and the reasons for unhealthy nodes."""
    glyphs = _DRAWN if shows_unicode() else _PLAIN
    print_table(map_of(nodes, glyphs, now_ms))
    print_legend([Span(glyphs[kind], _STYLES[kind]), Span(f" {_WORDS[kind]}")] for kind in _WORDS)
    for line in (*reserved_lines(nodes), *pod_lines(nodes), *reasons_of(nodes)):
        print_result(line)


def nodes(*, common: Common | None = None) -> int:
    """List nodes with their chips drawn, by ring, pair, mesh or card.

    Args:
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            state = await state_now(bus, SystemClock())
            found = rows_of(state, await judged_nodes(bus))
        if options.json:
            emit(found)
            return
        show_map(found, SystemClock().now_ms())
        show_drains(drains_of(state), SystemClock().now_ms())

    return run(work)
