"""How full a cell is, by product, leaf switch and SuperPoD."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from berth.cli.output import print_result, print_table
from berth.cli.tables import Span, Styled, Table
from berth.core.text import pluralize
from berth.schemas.programs.lists import PlaceUse

_SHOWN: Final = 16
"""Most places of a kind that are shown; those that are not well come first."""


class Use(NamedTuple):
    """Chips of a cell: all of them, and by place, each by name."""

    total: PlaceUse
    products: Sequence[PlaceUse]
    leaves: Sequence[PlaceUse]
    superpods: Sequence[PlaceUse]


def show_use(use: Use) -> None:
    """Print the chips of the cell by place, and how to list what is not well."""
    print_table(table_of(use))
    total = use.total
    unready = total.nodes - total.nodes_ready
    if unready:
        verb = "takes" if unready == 1 else "take"
        print_result(
            f"{unready:,} of {pluralize(total.nodes, 'node')} {verb} no new work; list with: berth nodes --filter state!=ok"
        )
    print_result("list nodes with: berth nodes --filter FIELD=VALUE, or --sort -free -n 20")


def table_of(use: Use) -> Table:
    """The table: a row for each place."""
    table = Table(
        "PLACE", "NODES", "READY", "ALL FREE", "CHIPS", "IN USE", "FREE", "UNHEALTHY", "DRAINED", short={"PLACE": 12}
    )
    table.add_row(*_cells("all", use.total))
    kinds = (("by product", "product", use.products), ("by leaf switch", "leaf switch", use.leaves))
    for title, noun, places in (*kinds, ("by SuperPoD", "SuperPoD", use.superpods)):
        if not places:
            continue
        table.add_section(title)
        shown = _worst(places)
        for place in shown:
            table.add_row(*_cells(place.name or "unknown", place))
        if len(shown) < len(places):
            left = len(places) - len(shown)
            table.add_section(f"  and {left:,} {noun if left == 1 else f'{noun}s'.replace('switchs', 'switches')} more")
    return table


def _worst(places: Sequence[PlaceUse]) -> list[PlaceUse]:
    """Places that are shown: all if they are few, otherwise those that are not well, and then by name."""
    if len(places) <= _SHOWN:
        return list(places)
    ranked = sorted(places, key=lambda one: (one.nodes_ready - one.nodes, -one.unhealthy, one.name))
    return ranked[:_SHOWN]


def _cells(name: str, place: PlaceUse) -> list[Styled]:
    unready = place.nodes_ready < place.nodes
    numbers = (place.nodes_free, place.chips, place.used, place.free, place.unhealthy, place.drained)
    ready = Span(f"{place.nodes_ready:,}", "red" if unready else "")
    return [name, f"{place.nodes:,}", ready, *(f"{number:,}" for number in numbers)]
