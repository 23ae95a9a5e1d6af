"""Pods that the binder has bound and no list or watch has shown: they may have come and gone between two lists. Pure.

A watch that expires is followed by a list, which shows what is there. A pod that is bound and deleted in between is
never seen bound. Then nothing would say that it is gone, and its chips would stay taken. So the API server is asked for
the pods of an attempt that was bound and of which some rank is unknown after a while.
"""

from collections.abc import Callable
from typing import TypeAlias

from berth.schemas.facts import OutcomeSeen
from berth.schemas.units import UnixMs

JobKey: TypeAlias = tuple[str, str]
"""(namespace, name)"""


class Unseen:
    """Outcomes of which not all pods are known.

    Args:
        lacks: Whether no pod is known of some rank that an outcome says was bound.
        wait_ms: How long the watch may take to show them.
    """

    def __init__(self, lacks: Callable[[OutcomeSeen], bool], *, wait_ms: int) -> None:
        self._lacks = lacks
        self._wait_ms = wait_ms
        self._since: dict[JobKey, tuple[OutcomeSeen, UnixMs]] = {}

    def note(self, outcome: OutcomeSeen, now_ms: UnixMs) -> None:
        """Take a result of the binder; it replaces the one before."""
        key = (outcome.namespace, outcome.name)
        self._since.pop(key, None)
        if self._lacks(outcome):
            self._since[key] = (outcome, now_ms)

    def note_again(self, outcome: OutcomeSeen, now_ms: UnixMs) -> None:
        """Wait once more for the pods of an outcome, unless a newer one came meanwhile."""
        if (outcome.namespace, outcome.name) not in self._since:
            self.note(outcome, now_ms)

    def due(self, now_ms: UnixMs) -> list[OutcomeSeen]:
        """Outcomes whose pods are to be asked for now, in the order in which they came; each is named once."""
        found: list[OutcomeSeen] = []
        for key, (outcome, since_ms) in list(self._since.items()):
            if since_ms + self._wait_ms > now_ms:
                break
            del self._since[key]
            if self._lacks(outcome):
                found.append(outcome)
        return found

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`due` may have something; None for never."""
        first = next(iter(self._since.values()), None)
        return first[1] + self._wait_ms if first is not None else None
