"""Histories of seeds."""

import random
from typing import Final

from tests.fuzz.preemption import with_preemption
from tests.fuzz.queues import with_queues
from tests.fuzz.steps import History, draw_steps, draw_way
from tests.fuzz.waiting import with_waiting

_QUEUED: Final = 4
"""Of so many seeds one has queues."""
_WAITING: Final = 3
"""Of so many seeds with queues one has PodGroups that wait for them."""


def draw_history(seed: int) -> History:
    """The history of a seed, which may be any number."""
    chance = random.Random(seed)  # noqa: S311  # a history of its own for each seed
    way = draw_way(chance)
    history = History(way, draw_steps(way, chance))
    if seed % _QUEUED == _QUEUED - 1:
        history = with_queues(history, chance)
        if seed // _QUEUED % _WAITING == 1:
            history = with_waiting(history, random.Random(seed))  # noqa: S311  # as above
        return with_preemption(history, chance) if chance.random() < 0.5 else history
    return with_preemption(history, chance) if seed % _QUEUED == 1 else history
