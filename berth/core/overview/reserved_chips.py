"""Chips that are reserved for jobs and that no pod has yet, of the whole cell and by place."""

from collections import Counter
from typing import Final, NamedTuple

from berth.core.state.cell import State

_NONE: Final = -1


class Reserved(NamedTuple):
    """Chips by the name of the place; what is reserved on nodes without such a place is in none."""

    products: Counter[str]
    leaves: Counter[str]
    superpods: Counter[str]


def reserved_chips(state: State) -> Reserved:
    """Chips of present nodes that are held for the next attempt of a job, or for ranks that have not left yet.

    They are part of those that :func:`~berth.core.overview.chip_use.cell_use` counts as used. Places in shares of chips
    are not among them: a pod may use the same chip.
    """
    fold, table = state.fold, state.table
    places = [one.places() for one in fold.held.values() if one.placement.share is None]
    places += [one.reserved() for one in fold.holdings.values() if one.moves and one.placement.share is None]
    found = Reserved(Counter(), Counter(), Counter())
    for pods in places:
        for pod in pods.values():
            row = table.row_of.get(pod.node, _NONE)
            if row == _NONE or not table.present[row]:
                continue
            chips = (pod.mask & table.chips.item(row)).bit_count()
            found.products[table.product(row)] += chips
            leaf, superpod = table.leaf.item(row), table.superpod.item(row)
            if leaf != _NONE:
                found.leaves[table.leaves[leaf]] += chips
            if superpod != _NONE:
                found.superpods[table.superpods[superpod]] += chips
    return found
