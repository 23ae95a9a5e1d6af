"""Choices that follow from a seed."""

from collections.abc import Iterable
from random import Random
from typing import Any


class Dice:
    """A source of choices; equal seeds make equal choices."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311  # scenarios, no secret

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def pick(self, *choices: Any) -> Any:  # noqa: ANN401 - whatever is offered
        return self._random.choice(choices)

    def some(self, choices: Iterable[Any], most: int) -> list[Any]:
        """One to ``most`` different ones, in their order."""
        listed = list(choices)
        chosen = self._random.sample(range(len(listed)), min(len(listed), self._random.randint(1, most)))
        return [listed[at] for at in sorted(chosen)]

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)
