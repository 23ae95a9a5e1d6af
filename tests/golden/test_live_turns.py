"""Lines of families come out of a scheduler's turns as they come out of the planners."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Final

import pytest

from berth.core.placement.replacements import NoPlaces
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement
from tests.golden import partial_plans, superpod_moves
from tests.golden.folder import DATA, vectors_folder
from tests.golden.harness import RUNS, Compare, Line, judge, read_lines
from tests.golden.live_plans import Damaged, new_places
from tests.golden.live_recoveries import is_met, places_below_leaves, places_in_superpods
from tests.golden.live_turns import level_differences, rack_differences

each_run = pytest.mark.parametrize(("run", "settings"), RUNS, ids=[name for name, _ in RUNS])


def lines_of(family: str) -> list[Line]:
    """Lines of the small file of a family, and of the reference vectors if they are there."""
    paths = [DATA / f"{family}.jsonl", vectors_folder() / f"{family}.jsonl.gz"]
    return [line for path in paths if path.is_file() for line in read_lines(path)]


RECOVERIES: Final = {
    "superpod_resched": (superpod_moves, superpod_moves.compare_resched, places_in_superpods),
    "switch_partial": (partial_plans, partial_plans.compare_partial, places_below_leaves),
}
FEWEST: Final[Mapping[tuple[str, str], tuple[int, int]]] = {
    ("superpod_resched", "parity"): (2, 1),
    ("superpod_resched", "default"): (6, 3),
    ("switch_partial", "parity"): (9, 4),
    ("switch_partial", "default"): (13, 7),
}
"""Lines with and without places that turns meet at least."""


@each_run
@pytest.mark.parametrize("family", RECOVERIES)
def test_places_of_lost_pods_are_those_of_the_reference(
    family: str, run: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: dict[str, bool] = {}
    for line in lines_of(family):
        if is_met(line, settings):
            differences, found = by_turns(*RECOVERIES[family], line, settings, monkeypatch)
            assert differences == (), line["id"]
            met |= {line["id"]: found[0]} if found else {}
    with_places, without = sum(met.values()), len(met) - sum(met.values())
    fewest = FEWEST[family, run]
    assert with_places >= fewest[0]
    assert without >= fewest[1]


def by_turns(
    module: ModuleType,
    compare: Compare,
    places: Callable[[Line, Damaged], Placement | NoPlaces],
    line: Line,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[object, list[bool]]:
    """Differences of a line whose places turns give, and whether there were any, each time that they were asked.

    What decisions pardon is seen under parity; where turns cannot come to that, a round gives the places.
    """
    found: list[bool] = []

    def live(damaged: Damaged) -> Placement | NoPlaces:
        if not is_met(line, damaged.settings):
            return new_places(damaged)
        given = places(line, damaged)
        found.append(isinstance(given, Placement))
        return given

    monkeypatch.setattr(module, "new_places", live)
    return judge(compare, line, settings).differences, found


@each_run
def test_jobs_in_racks_go_where_the_reference_puts_them(run: str, settings: Settings) -> None:
    found = {line["id"]: rack_differences(line, settings) for line in lines_of("superpod_rack")}
    assert {name: differences for name, differences in found.items() if differences} == {}, run
    assert len(found) > 15


@each_run
def test_jobs_with_levels_go_where_the_reference_puts_them(run: str, settings: Settings) -> None:
    found = {line["id"]: level_differences(line, settings) for line in lines_of("multilevel")}
    assert {name: differences for name, differences in found.items() if differences} == {}, run
    assert len(found) > 12
