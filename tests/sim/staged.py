"""Seeds whose world and events a test chooses."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.sim import run
from tests.sim.cell import CellSettings
from tests.sim.story import Event, Story
from tests.sim.world import World

W = TypeVar("W", bound=World)


def staged(monkeypatch: pytest.MonkeyPatch, kind: type[W], draw: Callable[[int], tuple[int, Event]]) -> list[W]:
    """The worlds that are lived through from now on.

    Args:
        monkeypatch: Ends it with the test.
        kind: Of the worlds.
        draw: Number of the cluster, and the one event, of a seed.
    """
    made: list[W] = []

    def world(*args: object) -> W:
        made.append(kind(*args))  # type: ignore[arg-type]  # as run.live calls it
        return made[-1]

    def story(seed: int) -> Story:
        cluster, event = draw(seed)
        return Story(cluster, CellSettings(dispatchers=1), (event,))

    monkeypatch.setattr(run, "World", world)
    monkeypatch.setattr(run, "draw", story)
    return made
