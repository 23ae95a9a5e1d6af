"""``berth superpods``: the physical SuperPoDs, with their nodes drawn, the blocks on them, and their free nodes."""

import string
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import (
    CommandError,
    emit,
    listed,
    near_names,
    print_legend,
    print_result,
    print_table,
)
from berth.cli.tables import Drawing, Span, Styled, Table, shows_unicode
from berth.core.explain.node_snapshot import drawn_maps
from berth.core.state.cell import State
from berth.core.text import pluralize
from berth.core.topologies.layouts import SuperpodUser
from berth.core.topologies.maps import NodeKind, NodeRow, SuperpodRow, SuperpodsShown
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now

_PLAIN: Final[dict[NodeKind, str]] = {"free": ".", "reserved": ":", "part": "+", "used": "#", "unusable": "x"}
_DRAWN: Final[dict[NodeKind, str]] = _PLAIN | {"free": "□", "reserved": "◇", "part": "◧", "used": "■"}
_STYLES: Final[dict[NodeKind, str]] = {
    "free": "green",
    "reserved": "yellow",
    "part": "cyan",
    "used": "white",
    "unusable": "red",
}
_WORDS: Final[dict[NodeKind, str]] = {
    "free": "all chips free",
    "reserved": "all chips free, in reserve",
    "part": "some chips free",
    "used": "no chip free",
    "unusable": "takes no new work",
}
_LETTERS: Final = string.ascii_letters
_BLOCK_STYLES: Final = ("blue", "magenta", "bright_blue", "bright_magenta")
_BLOCK_WORDS: Final = "no chip free, a letter for each block"
_JOBS_SHOWN: Final = 4
_LINE_MAX: Final = 72
"""Glyphs per line of a drawing."""

BlockKey = tuple[str, int]
"""Job and block."""


def shown_of(state: State) -> SuperpodsShown:
    """All SuperPoDs in their order."""
    return drawn_maps(state, "superpods").superpods or SuperpodsShown()


def letters_of(superpod: SuperpodRow) -> dict[BlockKey, str]:
    """Letter of each block on a SuperPoD, by job and number; letters repeat after the 52nd."""
    keys = sorted({(place.job, place.block) for place in superpod.places if place.job and place.kind == "used"})
    return {key: _LETTERS[at % len(_LETTERS)] for at, key in enumerate(keys)}


def drawing(superpod: SuperpodRow, glyphs: Mapping[NodeKind, str]) -> list[list[Span]]:
    """One glyph per node, a space between racks; lines end with a rack if possible."""
    letters = letters_of(superpod)
    lines: list[list[Span]] = [[]]
    for rack in _racks(superpod.places):
        lead = 1 if lines[-1] else 0
        if len(lines[-1]) + lead + min(len(rack), _LINE_MAX) > _LINE_MAX:
            lines.append([])
            lead = 0
        lines[-1] += [Span(" ")] * lead
        for place in rack:
            if len(lines[-1]) == _LINE_MAX:
                lines.append([])
            lines[-1].append(_sign(place, letters, glyphs))
    return lines


def _racks(places: Iterable[NodeRow]) -> list[list[NodeRow]]:
    racks: list[list[NodeRow]] = []
    for place in places:
        if racks and racks[-1][0].rack == place.rack:
            racks[-1].append(place)
        else:
            racks.append([place])
    return racks


def _sign(place: NodeRow, letters: Mapping[BlockKey, str], glyphs: Mapping[NodeKind, str]) -> Span:
    sign, style = glyphs[place.kind], _STYLES[place.kind]
    if place.kind == "used" and place.job:
        sign = letters[place.job, place.block]
        style = _BLOCK_STYLES[_LETTERS.index(sign) % len(_BLOCK_STYLES)]
    return Span(sign, style)


def table_of(shown: SuperpodsShown, glyphs: Mapping[NodeKind, str]) -> Table:
    """The SuperPoDs as a table with their nodes drawn."""
    table = Table("SUPERPOD", "NODES", "FREE", "ABOVE RESERVE", "USED", "JOBS")
    for superpod in shown.superpods:
        letters = letters_of(superpod)
        table.add_row(
            superpod.id,
            Drawing(drawing(superpod, glyphs)),
            f"{superpod.free:,}/{superpod.nodes:,}",
            str(superpod.above),
            f"{superpod.used:,}",
            listed([job_words(job, letters) for job in superpod.jobs], _JOBS_SHOWN),
        )
    return table


def job_words(job: SuperpodUser, letters: Mapping[BlockKey, str]) -> str:
    """Name of a job after the letters of its blocks."""
    own = "".join(letters.get((job.job, block), "") for block in job.blocks)
    return f"{own} {job.words()}" if own else job.words()


def heading(shown: SuperpodsShown) -> str:
    """Settings in force, and how many SuperPoDs there are."""
    size = f"of up to {pluralize(shown.super_pod_size, 'node')}"
    return f"{pluralize(shown.total, 'SuperPoD')} {size} (super_pod_size), {shown.reserve_nodes:,} of them in reserve (reserve_nodes)."


def show(shown: SuperpodsShown) -> None:
    """Print the SuperPoDs and the legend."""
    if not shown.total:
        print_result("no SuperPoD is known: no node has a SuperPoD")
        return
    glyphs = _DRAWN if shows_unicode() else _PLAIN
    print_result(heading(shown))
    print_table(table_of(shown, glyphs))
    legend: list[Styled] = [[Span(glyphs[kind], _STYLES[kind]), Span(f" {words}")] for kind, words in _WORDS.items()]
    legend.insert(-1, [Span("ab", _BLOCK_STYLES[0]), Span(f" {_BLOCK_WORDS}")])
    print_legend(legend)
    for superpod in shown.superpods:
        if superpod.warning:
            print_result(f"SuperPoD {superpod.id}: {superpod.warning}.")


def only(shown: SuperpodsShown, superpod: str | None) -> SuperpodsShown:
    """The same with one SuperPoD, or with all if None is given.

    Raises:
        CommandError: No SuperPoD has the id; the error lists similar ids.
    """
    if superpod is None:
        return shown
    found = [row for row in shown.superpods if row.id == superpod]
    if not found:
        near = near_names(superpod, [row.id for row in shown.superpods])
        hint = f"near ids: {', '.join(near)}" if near else f"{pluralize(shown.total, 'SuperPoD')} known"
        raise CommandError(f"no SuperPoD has the id {superpod}; {hint}")
    return msgspec.structs.replace(shown, superpods=found)


def superpods(
    *, superpod: Annotated[str | None, Parameter(name="--superpod")] = None, common: Common | None = None
) -> int:
    """List physical SuperPoDs: their nodes drawn with the blocks on them, the number of free nodes, and the jobs there.

    Args:
        superpod: Only the SuperPoD with this id.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            found = only(shown_of(await state_now(bus, SystemClock())), superpod)
        if options.json:
            emit(found)
        else:
            show(found)

    return run(work)
