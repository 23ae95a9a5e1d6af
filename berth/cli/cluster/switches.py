"""``berth switches``: the leaf switches (ToR), with their nodes drawn, their state, and the jobs below them."""

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
from berth.cli.tables import Span, Table, shows_unicode
from berth.core.explain.node_snapshot import drawn_maps
from berth.core.state.cell import State
from berth.core.text import pluralize
from berth.core.topologies.maps import LeafRow, PlaceKind, SwitchesShown
from berth.core.topologies.registry import lack_words
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.refusal import Refusal

_PLAIN: Final[dict[PlaceKind, str]] = {"free": ".", "part": "+", "used": "#", "unusable": "x", "none": "_"}
_DRAWN: Final[dict[PlaceKind, str]] = _PLAIN | {"free": "□", "part": "◧", "used": "■", "none": "·"}
_STYLES: Final[dict[PlaceKind, str]] = {
    "free": "green",
    "part": "cyan",
    "used": "blue",
    "unusable": "red",
    "none": "dim",
}
_WORDS: Final[dict[PlaceKind, str]] = {
    "free": "all chips free",
    "part": "some chips free",
    "used": "no chip free",
    "unusable": "takes no new work",
    "none": "no node known",
}
_JOBS_SHOWN: Final = 4


def switches_of(state: State) -> SwitchesShown:
    """All leaves in the order of their source."""
    return drawn_maps(state, "switches").switches or SwitchesShown()


def drawing(leaf: LeafRow, glyphs: dict[PlaceKind, str]) -> list[Span]:
    """One glyph per place."""
    return [Span(glyphs[place.kind], _STYLES[place.kind]) for place in leaf.places]


def table_of(shown: SwitchesShown, glyphs: dict[PlaceKind, str]) -> Table:
    """The leaves as a table with their nodes drawn."""
    table = Table("LEAF", "NODES", "FREE", "KNOWN", "STATE", "JOBS")
    for leaf in shown.leaves:
        table.add_row(
            leaf.name,
            drawing(leaf, glyphs),
            f"{leaf.free:,}",
            f"{leaf.nodes:,}/{shown.places:,}",
            leaf.words,
            listed([job.words() for job in leaf.jobs], _JOBS_SHOWN),
        )
    return table


def heading(shown: SwitchesShown) -> str:
    """Policy, number of leaves, and places per leaf."""
    policy = "of a single layer" if shown.policy == "single-layer" else shown.policy
    shared = f", at most {pluralize(shown.shared_max, 'shared leaf')} a job" if shown.shared_max else ""
    return f"Switch affinity {policy}{shared}; {pluralize(shown.total, 'leaf')} of {pluralize(shown.places, 'place')}."


def show(shown: SwitchesShown) -> None:
    """Print the leaves and the legend."""
    if not shown.total:
        print_result(f"no leaf is known: {shown.reason}" if shown.reason else lack_words(Refusal(code="no-topology")))
        return
    print_result(heading(shown))
    if shown.reason:
        print_result(f"The previous topology remains in force: {shown.reason}")
    glyphs = _DRAWN if shows_unicode() else _PLAIN
    print_table(table_of(shown, glyphs))
    print_legend([Span(glyphs[kind], _STYLES[kind]), Span(f" {words}")] for kind, words in _WORDS.items())


def only(shown: SwitchesShown, leaf: str | None) -> SwitchesShown:
    """The same with one leaf, or with all if None is given.

    Raises:
        CommandError: No leaf has the name; the error lists similar names.
    """
    if leaf is None:
        return shown
    found = [row for row in shown.leaves if row.name == leaf]
    if not found:
        near = near_names(leaf, [row.name for row in shown.leaves])
        hint = f"near names: {', '.join(near)}" if near else f"{pluralize(shown.total, 'leaf')} known"
        raise CommandError(f"no leaf is named {leaf}; {hint}")
    return msgspec.structs.replace(shown, leaves=found)


def switches(*, leaf: Annotated[str | None, Parameter(name="--leaf")] = None, common: Common | None = None) -> int:
    """List leaf switches (ToR): their nodes drawn, the number of free nodes, their state, and the jobs there.

    Args:
        leaf: Only the leaf of this name.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            found = only(switches_of(await state_now(bus, SystemClock())), leaf)
        if options.json:
            emit(found)
        else:
            show(found)

    return run(work)
