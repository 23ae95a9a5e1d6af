"""History of what users asked for: each operation with its time and how it ended. Pure."""

from typing import Final, Literal, NamedTuple

Action = Literal["submit", "cancel"]
Outcome = Literal["ok", "failed", "unknown"]
"""``ok``: acknowledged. ``failed``: certainly without effect. ``unknown``: no answer; it may have an effect, or may
still get one."""
OPEN: Final = -1.0


class Operation(NamedTuple):
    """One operation.

    Attributes:
        job: Name of the job that it is about.
        ended_s: When the user knew; :data:`OPEN` while it does not.
        detail: What the user was told.
        sequence: Of the stored request, where the user was told it.
    """

    action: Action
    job: str
    began_s: float
    ended_s: float = OPEN
    outcome: Outcome = "unknown"
    detail: str = ""
    sequence: int = 0


class History:
    """Operations in the order in which they began."""

    def __init__(self) -> None:
        self._all: list[Operation] = []

    def begin(self, action: Action, job: str, now_s: float) -> int:
        """Note that a user asks; returns the number of the operation."""
        self._all.append(Operation(action, job, now_s))
        return len(self._all) - 1

    def end(self, number: int, outcome: Outcome, now_s: float, *, detail: str = "", sequence: int = 0) -> None:
        """Note how it ended.

        Raises:
            ValueError: It has ended before.
        """
        before = self._all[number]
        if before.ended_s != OPEN:
            raise ValueError(f"operation {number} has ended before: {before}")
        self._all[number] = before._replace(ended_s=now_s, outcome=outcome, detail=detail, sequence=sequence)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations; those that are still open are unknown."""
        return tuple(self._all)

    def count(self, action: Action, outcome: Outcome) -> int:
        """How many ended so."""
        return sum(1 for one in self._all if (one.action, one.outcome) == (action, outcome))
