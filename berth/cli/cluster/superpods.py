"""``berth superpods``: the physical SuperPoDs, with their nodes drawn, the blocks on them, and their free nodes."""

import string
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.cluster.switches import kind_of
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
from berth.core.explain.node_snapshot import jobs_of
from berth.core.state.cell import State
from berth.core.text import pluralize
from berth.core.topologies.blocks.explanation import seats_of, superpods_of, users
from berth.core.topologies.blocks.model import CandidatePool
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.layouts import JobPods, SuperpodUser
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now

Kind = Literal["free", "reserved", "part", "used", "unusable"]
_PLAIN: Final[dict[Kind, str]] = {"free": ".", "reserved": ":", "part": "+", "used": "#", "unusable": "x"}
_DRAWN: Final[dict[Kind, str]] = _PLAIN | {"free": "□", "reserved": "◇", "part": "◧", "used": "■"}
_STYLES: Final[dict[Kind, str]] = {
    "free": "green",
    "reserved": "yellow",
    "part": "cyan",
    "used": "white",
    "unusable": "red",
}
_WORDS: Final[dict[Kind, str]] = {
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


class NodeRow(msgspec.Struct, frozen=True):
    """A node of a SuperPoD."""

    node: str
    rack: str
    """Empty if it is unknown."""
    kind: Kind
    job: str = ""
    """Job with SuperPoD affinity on this node, as ``namespace/name``; empty if there is none."""
    block: int = -1
    """Its block; -1 if there is none."""


class SuperpodRow(msgspec.Struct, frozen=True):
    """A physical SuperPoD as ``--json`` prints it."""

    id: str
    free: int
    """Nodes that accept new work and whose chips are all free."""
    nodes: int
    """Known nodes."""
    above: int
    """Free nodes above the reserve."""
    used: int
    """Nodes with chips in use."""
    warning: str
    """Why its numbers are unreliable; empty if they are reliable."""
    jobs: list[SuperpodUser]
    places: list[NodeRow]
    """Its nodes by rack, leaf, position and name; in a rack, sub-healthy ones last."""


class SuperpodsShown(msgspec.Struct, frozen=True):
    """Result of ``berth superpods --json``."""

    super_pod_size: int
    reserve_nodes: int
    total: int
    """Known SuperPoDs, whether shown or not."""
    superpods: list[SuperpodRow]


def shown_of(state: State) -> SuperpodsShown:
    """All SuperPoDs in their order."""
    settings = state.fold.settings
    superpods = SuperpodMap(state.table)
    pool = superpods.pool(np.ones(len(state.table), np.bool_))
    held = jobs_of(state)
    jobs = users(state.table, superpods_of(state.table, superpods), held)
    blocks = _blocks(held)
    return SuperpodsShown(
        super_pod_size=settings.super_pod_size,
        reserve_nodes=settings.reserve_nodes,
        total=len(pool.ids),
        superpods=[_superpod(state, pool, at, jobs.get(at, []), blocks) for at in range(len(pool.ids))],
    )


def _blocks(jobs: Iterable[JobPods]) -> dict[str, BlockKey]:
    """Job and block on each node with a block; of several jobs the first by name."""
    found: dict[str, BlockKey] = {}
    for taken in jobs:
        for pod, seat in zip(taken.owned, seats_of(taken.placement), strict=True):
            if pod.mask and seat is not None:
                found.setdefault(pod.node, (taken.job, seat.block))
    return found


def _superpod(
    state: State, pool: CandidatePool, at: int, jobs: list[SuperpodUser], blocks: Mapping[str, BlockKey]
) -> SuperpodRow:
    table, settings = state.table, state.fold.settings
    rows = pool.rows[pool.starts[at] : pool.starts[at + 1]].tolist()
    kinds = {row: _kind(state, row) for row in rows}
    free = [row for row in rows if kinds[row] == "free"]
    above = max(len(free) - settings.reserve_nodes, 0)
    kinds |= dict.fromkeys(free[above:], "reserved")  # nodes are selected in this order: the last ones are the reserve
    racks = pool.racks[pool.starts[at] : pool.starts[at + 1]]
    warning = f"it has {pluralize(len(rows), 'node')}, more than the {settings.super_pod_size} of super_pod_size"
    return SuperpodRow(
        id=pool.ids[at],
        free=len(free),
        nodes=len(rows),
        above=above,
        used=int(np.count_nonzero(table.used[rows] | table.releasing[rows])),
        warning=warning if len(rows) > settings.super_pod_size else "",
        jobs=jobs,
        places=[
            NodeRow(
                table.names[row],
                table.racks[table.rack[row]] if table.rack[row] >= 0 else "",
                kinds[row],
                *blocks.get(table.names[row], ("", -1)),
            )
            for row in (rows[place] for place in np.argsort(racks, kind="stable").tolist())
        ],
    )


def _kind(state: State, row: int) -> Kind:
    kind = kind_of(state, state.table.names[row])
    return "unusable" if kind == "none" else kind


def letters_of(superpod: SuperpodRow) -> dict[BlockKey, str]:
    """Letter of each block on a SuperPoD, by job and number; letters repeat after the 52nd."""
    keys = sorted({(place.job, place.block) for place in superpod.places if place.job and place.kind == "used"})
    return {key: _LETTERS[at % len(_LETTERS)] for at, key in enumerate(keys)}


def drawing(superpod: SuperpodRow, glyphs: Mapping[Kind, str]) -> list[list[Span]]:
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


def _sign(place: NodeRow, letters: Mapping[BlockKey, str], glyphs: Mapping[Kind, str]) -> Span:
    sign, style = glyphs[place.kind], _STYLES[place.kind]
    if place.kind == "used" and place.job:
        sign = letters[place.job, place.block]
        style = _BLOCK_STYLES[_LETTERS.index(sign) % len(_BLOCK_STYLES)]
    return Span(sign, style)


def table_of(shown: SuperpodsShown, glyphs: Mapping[Kind, str]) -> Table:
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
