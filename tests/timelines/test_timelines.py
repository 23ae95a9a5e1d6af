"""Timelines of Volcano's controllers against a cell: it ends as with Volcano's scheduler, or the table says why not."""

import pytest

from tests.timelines.differences import DIFFERENCES, NOT_OF_NODESIM, unexplained, unseen
from tests.timelines.player import Player
from tests.timelines.recording import read_timeline, timeline_names, timelines_folder

PLAYS = ((1.0, 0), (1.0, 3), (5.0, 0), (5.0, 4), (0.2, 3), (0.2, 4))
"""Speed and seed of each play; make timelines tries more."""


@pytest.mark.parametrize("name", timeline_names() or [""])
def test_a_timeline_ends_as_with_volcanos_scheduler(name: str) -> None:
    if not name:
        pytest.skip(f"no timelines at {timelines_folder()}; the variable BERTH_TIMELINES names the folder")
    timeline = read_timeline(name)
    found = {(speed, seed): Player(timeline, speed=speed, seed=seed).play() for speed, seed in PLAYS}
    assert {play: lines for play, all_lines in found.items() if (lines := unexplained(name, all_lines))} == {}
    # A difference that is no more is taken from the table.
    assert unseen(name, [line for lines in found.values() for line in lines]) == []


@pytest.mark.parametrize("name", sorted({*timeline_names()} - NOT_OF_NODESIM.keys()) or [""])
def test_the_controllers_of_nodesim_do_what_volcanos_do(name: str) -> None:
    if not name:
        pytest.skip(f"no timelines at {timelines_folder()}; the variable BERTH_TIMELINES names the folder")
    player = Player(read_timeline(name), speed=1.0, seed=0, controllers=("volcano", "podgroup"))
    assert unexplained(name, player.play()) == []


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_says_whether_it_is_right(name: str) -> None:
    assert all(one.why.startswith(("right: ", "wrong today: ")) for one in DIFFERENCES[name])
