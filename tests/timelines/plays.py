"""Plays of timelines: which recording, how fast, and with which delays."""

from typing import NamedTuple

from tests.timelines.differences import unexplained
from tests.timelines.player import Player
from tests.timelines.recording import read_timeline


class Play(NamedTuple):
    """A timeline, how fast it is played, and the seed of its delays."""

    name: str
    speed: float
    seed: int


def unexplained_in(play: Play) -> list[str]:
    """What a play finds that the table of differences does not name."""
    player = Player(read_timeline(play.name), speed=play.speed, seed=play.seed)
    try:
        return unexplained(play.name, player.play())
    except AssertionError as error:
        return [f"the cell is wrong: {error}"]
