"""The life of one gang: facts and records that a test feeds to a state, and what is due then."""

from typing import Any

import msgspec

from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.lifecycle import examine
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, JobState, OutcomeSeen, OutcomeState, PodPhase, PodsSeen
from berth.schemas.ledger import Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.placement import Run, placement_of
from tests.support.cells import a_job

P = PodPhase


class Life:
    """A gang of two pods on nodes a and b, placed for the ``attempt``-th time.

    Args:
        attempt: As above.
        attempts_max: Setting.
        is_placed: Whether it is; otherwise its job waits, and no record knows of it.
    """

    def __init__(
        self,
        *,
        attempt: int = 1,
        attempts_max: int = 3,
        is_placed: bool = True,
    ) -> None:
        self.state = State(keeps=True)
        self.attempt = attempt
        self.at_ms = 50
        """Time of the next record."""
        self.to_examine: dict[str, None] = {}
        """Gangs that the facts and records so far ask to be examined."""
        epoch = Epoch(1, 0, 0, 0, "h", Settings(attempts_max=attempts_max))
        self.to_examine.update(self.state.apply_record(1, self.state.fold.encoded(epoch)).changes.gangs_to_examine)
        self.job("accepted")
        if is_placed:
            self.place(attempt)
        assert not self.due()

    def place(self, attempt: int) -> None:
        self.attempt = attempt
        placement = placement_of(["a", "b"], [(0,), (0,)], [Run(2, 1)], resource="r")
        self.round(verdicts=[Verdict("default", "j", "uid-j", attempt, placement)])

    def fact(self, message: Message, kind: str) -> None:
        applied = self.state.apply_fact(f"berth.c.fact.{kind}", self.state.facts_seq + 1, encode(message))
        assert applied.error == ""
        self.to_examine.update(applied.changes.gangs_to_examine)

    def job(self, state: JobState, uid: str = "uid-j", **changes: Any) -> None:  # noqa: ANN401 - fields of the fact
        seq = self.state.intake_seq + 1
        seen = JobSeen("default", "j", uid, state, seq, 1, request=a_job("j"), after_seq=seq - 1)
        self.fact(msgspec.structs.replace(seen, **changes), "job.default.j")

    def pods(self, *phases: PodPhase, uid: str = "uid-j") -> None:
        self.fact(self.pods_fact(*phases, uid=uid), "pod.default.j")

    def pods_fact(self, *phases: PodPhase, uid: str = "uid-j") -> PodsSeen:
        count = len(phases)
        return PodsSeen(
            "default",
            "j",
            uid,
            self.attempt,
            pack(range(count), 4),
            pack_names(["a", "b"]),
            pack(range(count), 4),
            pack(phases, 1),
            pack([1] * count, 8),
        )

    def outcome(self, state: OutcomeState, *, bound: int = 0, attempt: int = 0, given_back: bool = False) -> None:
        fact = OutcomeSeen("default", "j", "uid-j", attempt or self.attempt, state, bound, given_back=given_back)
        self.fact(fact, "outcome.default.j")

    def round(self, **parts: object) -> None:
        head = self.state.fold.head
        record = Round(1, head, self.state.facts_seq, self.at_ms, head, **parts)  # type: ignore[arg-type]
        self.record(head + 1, record)

    def record(self, sequence: int, record: Round) -> None:
        self.to_examine.update(
            self.state.apply_record(sequence, self.state.fold.encoded(record)).changes.gangs_to_examine
        )

    def due(self) -> Due:
        found = examine(self.state, self.to_examine, at_ms=self.at_ms)
        assert not found.set_aside
        for uid in found.settled:
            del self.to_examine[uid]
        return found.due

    def carry_out(self) -> Due:
        found = self.due()
        self.round(
            verdicts=found.regained,
            evictions=found.evictions,
            releases=found.releases,
            adoptions=found.adoptions,
            recoveries=found.recoveries,
            corrections=found.corrections,
        )
        return found

    def release(self, reason: str, *, again: bool = False) -> Due:
        return Due(releases=[Release("uid-j", self.attempt, reason, again)])  # type: ignore[arg-type]

    def eviction(self, reason: str) -> Due:
        return Due(evictions=[Eviction("uid-j", self.attempt, reason)])
