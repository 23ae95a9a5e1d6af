"""Numbers of jobs in one stream or recording."""

from typing import Final

JobId = tuple[str, str, str]
"""(namespace, name, uid)"""
HIDDEN: Final = -1
"""Stands for a job that a reader may not see."""


class Numbers:
    """Gives each job a number, which no other gets."""

    def __init__(self) -> None:
        self._last = 0
        self._of: dict[JobId, int] = {}

    def of(self, job: JobId) -> int:
        """Number of a job, given when it is new."""
        number = self._of.get(job)
        if number is None:
            self._last += 1
            number = self._of[job] = self._last
        return number

    def forget(self, job: JobId) -> None:
        """Forget a job; should it come again, it has another number."""
        self._of.pop(job, None)
