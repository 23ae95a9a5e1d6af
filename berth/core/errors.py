"""Faults of the core: data, not formatted text."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class CoreError(Exception):
    """Base of the core's errors."""


class InvariantError(CoreError):
    """A rule that must always hold does not: a fault of Berth, never of its input.

    Attributes:
        what: Both of what follows, without the sequence or advice that the text of the error may have.
        rule: The rule, in words.
        subject: What breaks it: a node, a gang, a sequence.
    """

    def __init__(self, rule: str, *, subject: str) -> None:
        self.what = f"{subject}: {rule}"
        super().__init__(self.what)
        self.rule = rule
        self.subject = subject


class LedgerBrokenError(InvariantError):
    """A message of the ledger that no reader may pass: a decision of the leading epoch that breaks a rule.

    Nothing of it was folded. Every reader stops there.

    Attributes:
        sequence: Sequence of the message.
        epoch: Its epoch; 0 where that is not known.
    """

    def __init__(self, rule: str, subject: str, *, sequence: int, epoch: int = 0) -> None:
        super().__init__(rule, subject=subject)
        self.sequence = sequence
        self.epoch = epoch
        where = f"record {sequence} of epoch {epoch}" if epoch else f"record {sequence}"
        self.args = (f"{where} breaks the ledger: {self.what}; berth repair reports and repairs it",)


class HistoryError(CoreError):
    """Messages that do not follow one another.

    Attributes:
        wanted: Sequence that should have come.
        got: Sequence that came.
    """

    def __init__(self, *, wanted: int, got: int) -> None:
        super().__init__(f"sequence {got} came, {wanted} was next")
        self.wanted = wanted
        self.got = got


class ReportedError(CoreError):
    """An error of another process, in the words in which it reports it."""


def brief(error: Exception) -> str:
    """What a record contains of an error: the rule that an invariant breaks, of other errors their class alone.

    No name is in it, so a recording without names replays; nor a row, which differs from process to process.
    """
    if isinstance(error, InvariantError):
        return error.rule
    return str(error) if isinstance(error, ReportedError) else type(error).__name__


def guarded(
    step: Callable[[], T], otherwise: Callable[[Exception], T], *, passes: tuple[type[Exception], ...] = ()
) -> T:
    """What a step yields; where it ends with an error, what ``otherwise`` makes of the error.

    For steps on one gang, which must not keep the others from their turn.

    Args:
        step: The step.
        otherwise: What to do with an error.
        passes: Errors that the caller handles.

    Raises:
        MemoryError: There is no memory left: that is no property of the gang.
    """
    try:
        return step()
    except passes:
        raise
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, it concerns this step alone
        return otherwise(error)
