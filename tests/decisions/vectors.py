"""Decisions of turns on lines of the reference's vectors: what cells that the golden tests build decide."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Final

import pytest

from berth.core.placement.replacements import NoPlaces
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeDescription
from berth.schemas.placement import Placement
from tests.decisions.text import lines_of
from tests.golden import live_recoveries, live_turns, partial_plans, superpod_moves
from tests.golden.folder import DATA, vectors_folder
from tests.golden.harness import RUNS, Compare, Line, judge, read_lines
from tests.golden.live_plans import Damaged, new_places
from tests.support.fault_cells import FaultCell

_PLACED: Final[Mapping[str, Callable[[Line, Settings], object]]] = {
    "superpod_rack": live_turns.rack_differences,
    "multilevel": live_turns.level_differences,
}
_RECOVERED: Final[Mapping[str, tuple[ModuleType, Compare, Callable[[Line, Damaged], Placement | NoPlaces]]]] = {
    "superpod_resched": (superpod_moves, superpod_moves.compare_resched, live_recoveries.places_in_superpods),
    "switch_partial": (partial_plans, partial_plans.compare_partial, live_recoveries.places_below_leaves),
}
_POLICIES: Final = ("skip", "easy")


def histories(*, reference: bool) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of each line, with and without parity, under ``skip`` and ``easy``.

    Args:
        reference: Whether the large vectors take part, if they are there, beside those in the tree.
    """
    for family in (*_PLACED, *_RECOVERED):
        paths = [DATA / f"{family}.jsonl"] + [vectors_folder() / f"{family}.jsonl.gz"] * reference
        for number, line in enumerate(line for path in paths if path.is_file() for line in read_lines(path)):
            for run, settings in RUNS:
                for policy in _POLICIES:
                    name = f"{family} {number} {line.get('id', '')} {run} {policy}"
                    yield name, _lines(family, line, settings, policy)


def _lines(family: str, line: Line, settings: Settings, policy: str) -> list[str]:
    cells: list[FaultCell] = []

    class Kept(FaultCell):
        """A cell that is looked at later."""

        def __init__(self, nodes: Iterable[NodeDescription], **named: object) -> None:
            super().__init__(nodes, **{"queue_policy": policy, **named})
            cells.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_turns, "FaultCell", Kept)
        patch.setattr(live_recoveries, "FaultCell", Kept)
        if family in _PLACED:
            _PLACED[family](line, settings)
        elif live_recoveries.is_met(line, settings):
            module, compare, places = _RECOVERED[family]

            def live(damaged: Damaged) -> Placement | NoPlaces:
                return places(line, damaged) if live_recoveries.is_met(line, damaged.settings) else new_places(damaged)

            patch.setattr(module, "new_places", live)
            judge(compare, line, settings)
    return [text for cell in cells for record in cell.records for text in lines_of(record)]
