"""Progress and results of the demo's jobs, collected from facts and ledger."""

from typing import Final

import msgspec

from berth.cli.jobs.rows import RankRow, ranks_of
from berth.core.changes import Changes
from berth.core.explain.refusal_text import sentence
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.schemas.facts import JobSeen, PodPhase
from berth.schemas.intake import JobRequest
from berth.schemas.refusal import Refusal

OVER: Final = frozenset({"succeeded", "failed", "cancelled", "vanished"})
"""Final states of accepted requests."""


class Tale(msgspec.Struct):
    """History of one request. Times are milliseconds since 1970, 0 for not yet."""

    name: str
    uid: str
    asks: str
    sent_ms: int
    fate: str = "sent"
    """sent, waiting, placed, running, succeeded, failed, cancelled, vanished, rejected or too large."""
    reason: str = ""
    waited_for: str = ""
    """Why it had to wait at first."""
    placed_ms: int = 0
    over_ms: int = 0
    ranks: list[RankRow] = []
    job: str = ""
    """Its name in the cell; empty if that is the same, or if the cell has no such request."""

    @property
    def is_done(self) -> bool:
        """Whether its state is final."""
        return self.fate in OVER or self.fate in {"rejected", "too large"}

    @property
    def is_well(self) -> bool:
        """Whether it ended as expected: it has run, was cancelled, or was rejected with a reason."""
        return self.fate in {"succeeded", "cancelled"} or (self.fate in {"rejected", "too large"} and self.reason != "")


class Story:
    """The histories of all requests that were added by :meth:`sent`, in that order.

    A request that the inventory makes from pods is identified by its name until its uid is known.
    """

    def __init__(self) -> None:
        self.tales: list[Tale] = []
        self.news: list[str] = []
        """Lines about changes, until they are printed."""
        self._by_uid: dict[str, Tale] = {}
        self._by_job: dict[str, Tale] = {}
        """Newest history of each name, of requests that the inventory makes."""
        self._taken_back: list[Tale] = []

    def sent(self, request: JobRequest, *, at_ms: int, job: str = "") -> Tale:
        """A request is sent.

        Args:
            request: The request.
            at_ms: Now.
            job: Name under which the inventory will make it; its uid is known later.
        """
        chips = {f"{task.replicas} x {task.chips}" for task in request.tasks}
        tale = Tale(request.name, request.uid, ", ".join(sorted(chips)), at_ms, job=job)
        self.tales.append(tale)
        if job:
            self._by_job[job] = tale
        else:
            self._by_uid[request.uid] = tale
        return tale

    def refused(self, request: JobRequest, reason: str, *, at_ms: int) -> None:
        """A request was rejected before it reached the cell."""
        chips = {f"{task.replicas} x {task.chips}" for task in request.tasks}
        tale = Tale(request.name, request.uid, ", ".join(sorted(chips)), at_ms, reason=reason)
        self.tales.append(tale)
        self._turn(tale, "rejected", tail=f": {reason}")

    def held(self, job: str, reason: str) -> None:
        """A request is not made yet, for a reason."""
        tale = self._by_job.get(job)
        if tale is not None and not tale.uid and tale.fate in {"sent", "waiting"}:
            self._wait(tale, "waiting", reason)

    def taken_back(self, name: str) -> Tale | None:
        """The first request of a name is cancelled; any end from now on counts as cancelled.

        Returns:
            Its history; None if there is none, or it has ended.
        """
        tale = next((tale for tale in self.tales if tale.name == name and not tale.is_done), None)
        if tale is not None:
            self._taken_back.append(tale)
        return tale

    def never_made(self, job: str) -> None:
        """A request of a name can no longer be made: if it was cancelled before it was made, it ends as cancelled."""
        tale = self._by_job.get(job)
        if tale is not None and not tale.uid and self._is_taken_back(tale):
            self._turn(tale, "cancelled")

    @property
    def is_done(self) -> bool:
        """Whether all states are final."""
        return all(tale.is_done for tale in self.tales)

    def fate_of(self, name: str) -> str:
        """State of the first request of a name; empty if there was none."""
        return next((tale.fate for tale in self.tales if tale.name == name), "")

    def take_facts(self, state: State, changes: Changes) -> None:
        """Update from facts that were applied to a state, and changed this."""
        for key in changes.jobs_changed:
            job = state.jobs.get(key)
            if job is not None:
                self._take_job(job)
        for key in changes.pods_changed:
            seen = state.pods.get(key)
            tale = self._tale(seen.uid, key[1]) if seen is not None else None
            if seen is not None and tale is not None and PodPhase.RUNNING in seen.phase:
                self._turn(tale, "running", before=("placed",))

    def take_record(self, folded: Folded) -> None:
        """Update from a record."""
        for gang in folded.gangs:
            tale = self._tale(gang.uid, gang.name)
            if tale is None:
                continue
            if gang.phase == "waiting" and gang.refusal is not None:
                too_large = gang.refusal.code == "larger-than-cluster"
                self._wait(tale, "too large" if too_large else "waiting", sentence(gang.refusal))
            elif gang.is_over:
                tale.over_ms = gang.at_ms
                self._turn(tale, "cancelled" if self._is_taken_back(tale) else gang.phase)
        for holding in folded.taken:
            tale = self._tale(holding.uid, holding.name)
            if tale is not None:
                tale.ranks = ranks_of(holding.placement)
                tale.placed_ms = holding.at_ms
                self._turn(tale, "placed", tail=" on " + ", ".join(dict.fromkeys(holding.placement.names())))

    def _tale(self, uid: str, name: str) -> Tale | None:
        """History of a request; an expected name gets the first uid that is observed."""
        tale = self._by_uid.get(uid)
        if tale is None and uid and (tale := self._by_job.get(name)) is not None:
            tale.uid = uid
            self._by_uid[uid] = tale
        return tale

    def _is_taken_back(self, tale: Tale) -> bool:
        return any(tale is other for other in self._taken_back)

    def _take_job(self, job: JobSeen) -> None:
        if job.rejection is not None:
            self._turn_away(self._tale(job.rejection.uid, job.name), job.rejection.refusal)
        tale = self._tale(job.uid, job.name)
        if job.state == "rejected" and job.refusal is not None:
            self._turn_away(tale, job.refusal)
        elif job.state == "cancelled" and tale is not None:
            self._turn(tale, "cancelled", before=("sent", "waiting"), tail=f": {job.reason}")

    def _turn_away(self, tale: Tale | None, refusal: Refusal) -> None:
        if tale is not None and not tale.is_done:
            tale.reason = sentence(refusal)
            self._turn(tale, "rejected", tail=f": {tale.reason}")

    def _wait(self, tale: Tale, fate: str, reason: str) -> None:
        tale.reason = reason
        tale.waited_for = tale.waited_for or reason
        self._turn(tale, fate, tail=f": {reason}")

    def _turn(self, tale: Tale, fate: str, *, before: tuple[str, ...] = (), tail: str = "") -> None:
        if tale.fate == fate or (before and tale.fate not in before):
            return
        tale.fate = fate
        if fate not in {"waiting", "rejected", "too large"}:
            tale.reason = ""
        first = next(other for other in self.tales if other.name == tale.name)
        self.news.append(f"{tale.name}{'' if tale is first else ' (again)'} {fate}{tail}")
