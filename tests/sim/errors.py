"""What ends a simulation."""

import re
from textwrap import shorten
from typing import Final

_WIDTH: Final = 100
"""Characters of an error's text that are kept."""


class SimulationError(Exception):
    """The simulation cannot go on: it is not the product that failed, but what is asked is not possible."""


class StalledError(SimulationError):
    """No event is left, and the goal is not reached."""


class OutOfStepsError(SimulationError):
    """The goal is not reached within the allowed number of callbacks or of virtual time."""


class RealWorldError(SimulationError):
    """Something asked for a thread, a socket or a process."""


class Killed(BaseException):  # like KeyboardInterrupt it is no error of the code that it passes through
    """A simulated process has died in the middle of a function."""


class Failure(Exception):  # noqa: N818  # the word of the checkers
    """A rule does not hold.

    Attributes:
        kind: What is wrong, without the particulars: equal for what fails alike.
        details: The particulars.
    """

    def __init__(self, kind: str, details: str = "") -> None:
        super().__init__(f"{kind}: {details}" if details else kind)
        self.kind = kind
        self.details = details


def kind_of(error: BaseException) -> str:
    """An error in one line without its particulars: numbers are N, and a long text ends at a word.

    Args:
        error: Of a group its first.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {without_numbers(str(error))}"


def without_numbers(text: str) -> str:
    """A text with N for each number, at most 100 characters."""
    return shorten(re.sub(r"\b\d+\b", "N", text), _WIDTH, placeholder=" …")
