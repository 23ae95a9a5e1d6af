"""What becomes of a set of jobs, learned from facts and ledger as they come; the demo's memory."""

from typing import Final

import msgspec

from berth.cli.jobs import RankRow, ranks_of
from berth.core.ledger import Folded
from berth.core.refusals import sentence
from berth.core.state import State
from schemas.facts import JobSeen, PodPhase
from schemas.intake import JobRequest
from schemas.refusal import Refusal

_OVER: Final = frozenset({"succeeded", "failed", "cancelled", "vanished"})


class Tale(msgspec.Struct):
    """What became of one request. Times are milliseconds since 1970, 0 for not yet."""

    name: str
    uid: str
    asks: str
    sent_ms: int
    fate: str = "sent"
    """sent, waiting, placed, running, succeeded, failed, cancelled, vanished, turned away or too large."""
    reason: str = ""
    waited_for: str = ""
    """Why it had to wait at first."""
    placed_ms: int = 0
    over_ms: int = 0
    ranks: list[RankRow] = []

    @property
    def is_done(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.fate in _OVER or self.fate in {"turned away", "too large"}

    @property
    def is_well(self) -> bool:
        """Whether it ended as it should: it has run, was cancelled, or was refused with a reason."""
        return self.fate in {"succeeded", "cancelled"} or (
            self.fate in {"turned away", "too large"} and self.reason != ""
        )


class Story:
    """The tales of all requests that were told of with :meth:`sent`, by uid."""

    def __init__(self) -> None:
        self.tales: dict[str, Tale] = {}
        self.news: list[str] = []
        """Lines about what has changed, until somebody takes them."""

    def sent(self, request: JobRequest, *, at_ms: int) -> None:
        """A request goes out."""
        chips = {f"{task.replicas} x {task.chips}" for task in request.tasks}
        self.tales[request.uid] = Tale(request.name, request.uid, ", ".join(sorted(chips)), at_ms)

    @property
    def is_done(self) -> bool:
        """Whether nothing more will happen."""
        return all(tale.is_done for tale in self.tales.values())

    def fate_of(self, name: str) -> str:
        """Fate of the first request of a name; empty when there was none."""
        return next((tale.fate for tale in self.tales.values() if tale.name == name), "")

    def take_facts(self, state: State) -> None:
        """Learn from the facts that have changed."""
        for key in state.changed:
            job = state.jobs.get(key)
            if job is not None:
                self._take_job(job)
        state.changed.clear()
        for key in state.moved:
            seen = state.pods.get(key)
            if seen is not None and PodPhase.RUNNING in seen.phase:
                self._turn(seen.uid, "running", before=("placed",))
        state.moved.clear()

    def take_record(self, folded: Folded) -> None:
        """Learn from a record."""
        for gang in folded.gangs:
            tale = self.tales.get(gang.uid)
            if tale is None:
                continue
            if gang.phase == "waiting" and gang.refusal is not None:
                self._wait(tale, gang.refusal)
            elif gang.is_over:
                tale.over_ms = gang.at_ms
                self._turn(gang.uid, gang.phase)
        for holding in folded.taken:
            tale = self.tales.get(holding.uid)
            if tale is not None:
                tale.ranks = ranks_of(holding.placement)
                tale.placed_ms = holding.at_ms
                self._turn(holding.uid, "placed", tail=" on " + ", ".join(dict.fromkeys(holding.placement.names())))

    def _take_job(self, job: JobSeen) -> None:
        if job.rejection is not None:
            self._turn_away(job.rejection.uid, job.rejection.refusal)
        if job.state == "rejected" and job.refusal is not None:
            self._turn_away(job.uid, job.refusal)
        elif job.state == "cancelled":
            self._turn(job.uid, "cancelled", before=("sent", "waiting"), tail=f": {job.reason}")

    def _turn_away(self, uid: str, refusal: Refusal) -> None:
        tale = self.tales.get(uid)
        if tale is not None and not tale.is_done:
            tale.reason = sentence(refusal)
            self._turn(uid, "turned away", tail=f": {tale.reason}")

    def _wait(self, tale: Tale, refusal: Refusal) -> None:
        tale.reason = sentence(refusal)
        tale.waited_for = tale.waited_for or tale.reason
        self._turn(
            tale.uid, "too large" if refusal.code == "larger-than-cluster" else "waiting", tail=f": {tale.reason}"
        )

    def _turn(self, uid: str, fate: str, *, before: tuple[str, ...] = (), tail: str = "") -> None:
        tale = self.tales.get(uid)
        if tale is None or tale.fate == fate or (before and tale.fate not in before):
            return
        tale.fate = fate
        if fate not in {"waiting", "turned away", "too large"}:
            tale.reason = ""
        self.news.append(f"{tale.name} {fate}{tail}")
