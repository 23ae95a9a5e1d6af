"""One job of two pods: messages about it, and the events of each."""

import msgspec

from berth.core.events.job_events import JobEvents
from berth.core.state.cell import State
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.placement import Run, placement_of
from berth.schemas.programs.events import JobEvent
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job

P = PodPhase
PLACEMENT = placement_of(["a", "b"], [(0, 2), (1, 3)], [Run(2, 2)], resource="r")
NO_ROOM = Refusal(code="no-room", task="worker", chips=2)


class OneJob:
    """The job ``team/j`` of two pods, and the events of each message about it."""

    def __init__(self) -> None:
        self.state = State(keeps=True)
        self.source = JobEvents(self.state)
        self.settings = Settings(corrections=1)
        self.record(Epoch(1, 0, 0, 0, "h", self.settings))

    def fact(self, kind: str, message: Message, *, name: str = "j") -> list[JobEvent]:
        subject = f"berth.c.fact.{kind}.team.{name}"
        applied, found = self.source.apply_fact(subject, self.state.facts_seq + 1, encode(message))
        assert not applied.error
        return found

    def job(self, state: str = "accepted", uid: str = "u", **changes: object) -> list[JobEvent]:
        seq = self.state.intake_seq + 1
        request = msgspec.structs.replace(a_job("j"), namespace="team", uid=uid, created_at_ms=20)
        seen = JobSeen("team", "j", uid, state, seq, seq, 70, request, after_seq=seq - 1)  # type: ignore[arg-type]  # a literal
        return self.fact("job", msgspec.structs.replace(seen, **changes))

    def pods(self, *phases: PodPhase, steps: tuple[int, ...] = (), foreign: bool = False) -> list[JobEvent]:
        count = len(phases)
        fact = PodsSeen(
            "team", "j", "u", 1, pack(range(count), 4), pack_names(["a", "b"]), pack(range(count), 4), pack(phases, 1),
            pack([1] * count, 8), foreign=foreign, at_ms=90, steps=pack(steps, 4),
        )  # fmt: skip
        return self.fact("pod", fact)

    def bound(self, done: int = 0, attempt: int = 1) -> list[JobEvent]:
        return self.fact("outcome", OutcomeSeen("team", "j", "u", attempt, "bound", 2, at_ms=80, step=done, done=done))

    def record(self, message: Epoch | Round) -> list[JobEvent]:
        data = self.state.fold.encoded(message)
        _, found = self.source.apply_link(self.state.fold.link(self.state.fold.head + 1, data))
        return found

    def round(self, **parts: object) -> list[JobEvent]:
        head = self.state.fold.head
        return self.record(Round(1, head, self.state.facts_seq, 50, head, **parts))  # type: ignore[arg-type]  # fields

    def placed(self) -> list[JobEvent]:
        self.job()
        return self.round(verdicts=[Verdict("team", "j", "u", 1, PLACEMENT)])
