"""Nodes with their chips drawn."""

from collections.abc import Mapping
from typing import Final

from berth.cli.cluster.node_rows import NodeRow, free_chips, troubles_of
from berth.cli.output import listed, moment, print_legend, print_result, print_table
from berth.cli.tables import Span, Table, shows_unicode
from berth.core.text import numbered

PLAIN: Final = {
    "free": ".", "used": "#", "shared": "%", "releasing": "-", "unhealthy": "x", "used-unhealthy": "X", "network": "~",
    "withheld": "o", "reserved": ":",
}  # fmt: skip
_DRAWN: Final = PLAIN | {
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


def chips_drawn(node: NodeRow) -> list[Span]:
    """The chips of a node with the signs that stdout takes."""
    return drawing(node, _DRAWN if shows_unicode() else PLAIN)


def map_of(nodes: list[NodeRow], glyphs: Mapping[str, str], now_ms: int) -> Table:
    """The nodes as a table with their chips drawn."""
    table = Table("NODE", "PRODUCT", "CHIPS", "FREE", "WHERE", "STATE", short={"NODE": 16, "PRODUCT": 8, "WHERE": 12})
    for node in nodes:
        troubles = troubles_of(node, now_ms)
        if node.drained_ms > now_ms:
            troubles.append(f"drained from {moment(node.drained_ms)} on")
        table.add_row(
            node.name,
            node.product or "unknown",
            drawing(node, glyphs),
            f"{free_chips(node)}/{node.chips}",
            _where(node),
            ", ".join(troubles),
        )
    return table


def _where(node: NodeRow) -> str:
    """SuperPoD and leaf switch of a node; a dash if it has neither: what domain it is in says nothing to people."""
    parts = [f"superpod {node.superpod}"] * bool(node.superpod) + [f"leaf {node.leaf}"] * bool(node.leaf)
    return ", ".join(parts) or "-"


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
            ranks = numbered("rank", one.ranks)
            chips = numbered("chip", one.chips) if one.chips else "room"
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
    glyphs = _DRAWN if shows_unicode() else PLAIN
    print_table(map_of(nodes, glyphs, now_ms))
    print_legend([Span(glyphs[kind], _STYLES[kind]), Span(f" {_WORDS[kind]}")] for kind in _WORDS)
    for line in (*reserved_lines(nodes), *pod_lines(nodes), *reasons_of(nodes)):
        print_result(line)
