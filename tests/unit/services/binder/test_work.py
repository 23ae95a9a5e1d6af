import pytest

from berth.core.errors import HistoryError, InvariantError, LedgerBrokenError
from berth.schemas.envelope import encode
from berth.schemas.facts import OutcomeSeen, OutcomeState, TimerSeen
from berth.schemas.ledger import Adoption, Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from berth.services.binder.cluster import gang_of
from berth.services.binder.work import Step, Work
from tests.support.chained_records import broken

PLACEMENT = placement_of(["n0", "n1"], [(), ()], [Run(2, 0, 100)], resource="huawei.com/Ascend910")
EPOCH = 3


class History:
    """A ledger that grows, and the work that follows it."""

    def __init__(self) -> None:
        self.work = Work()
        self.sequence = 0
        self.epoch(EPOCH)

    def epoch(self, epoch: int, *, base_seq: int | None = None) -> None:
        base = self.sequence if base_seq is None else base_seq
        self.sequence += 1
        self.work.apply_record(self.sequence, self.work.fold.encoded(Epoch(epoch, base, 0, 0, "me", Settings())))

    def round(
        self,
        *,
        placed: list[tuple[str, int]] | None = None,
        evict: list[tuple[str, int]] | None = None,
        release: list[tuple[str, int]] | None = None,
        adopt: list[str] | None = None,
        freed: list[tuple[str, list[int]]] | None = None,
        epoch: int = EPOCH,
        base_seq: int | None = None,
    ) -> list[tuple[str, int]]:
        base = self.sequence if base_seq is None else base_seq
        self.sequence += 1
        record = Round(
            epoch, base, 0, 0, self.sequence,
            verdicts=[Verdict("ns", f"job-{uid}", uid, attempt, PLACEMENT) for uid, attempt in placed or []],
            evictions=[Eviction(uid, attempt, "cancelled") for uid, attempt in evict or []],
            releases=[Release(uid, attempt, "succeeded") for uid, attempt in release or []]
            + [Release(uid, 1, "succeeded", ranks=ranks) for uid, ranks in freed or []],
            adoptions=[Adoption("ns", f"job-{uid}", uid, PLACEMENT) for uid in adopt or []],
        )  # fmt: skip
        return self.work.apply_record(self.sequence, self.work.fold.encoded(record))

    def step(self, uid: str, attempt: int = 1) -> str | None:
        step = self.work.next_step((uid, attempt))
        return None if step is None else step.verb


def outcome(uid: str, state: OutcomeState, *, attempt: int = 1) -> OutcomeSeen:
    return OutcomeSeen("ns", f"job-{uid}", uid, attempt, state)


def test_a_placement_without_an_outcome_is_to_be_bound() -> None:
    history = History()
    assert history.round(placed=[("a", 1), ("b", 2)]) == [("a", 1), ("b", 2)]
    assert (history.step("a"), history.step("b", 2), history.step("b", 1)) == ("bind", "bind", None)
    assert history.work.pending() == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("state", ["bound", "failed"])
def test_what_has_an_outcome_is_not_bound_again(state: OutcomeState) -> None:
    history = History()
    history.round(placed=[("a", 1)])
    history.work.apply_outcome(outcome("a", state))
    assert history.step("a") is None


def test_an_outcome_may_come_before_its_record() -> None:
    history = History()
    history.work.apply_outcome(outcome("a", "bound"))
    history.round(placed=[("a", 1)])
    assert history.work.pending() == []


def test_the_outcome_of_another_attempt_does_not_count() -> None:
    history = History()
    history.work.apply_outcome(outcome("a", "failed"))
    history.round(placed=[("a", 2)])
    assert history.step("a", 2) == "bind"


def test_an_eviction_outranks_everything_until_it_is_carried_out() -> None:
    history = History()
    history.round(placed=[("a", 1), ("b", 1)])
    history.work.apply_outcome(outcome("a", "bound"))
    history.round(evict=[("a", 1), ("b", 1)])
    assert (history.step("a"), history.step("b")) == ("evict", "evict")
    history.work.apply_outcome(outcome("a", "evicted"))
    assert history.step("a") is None


def test_an_eviction_that_only_a_snapshot_still_knows_is_to_be_carried_out() -> None:
    history = History()
    history.round(placed=[("a", 1), ("b", 1)])
    history.round(evict=[("a", 1)])
    work = Work()
    work.restore(history.work.fold.dump())
    step = work.next_step(("a", 1))
    assert isinstance(step, Step)
    assert (step.verb, step.attempt.evict_seq, step.attempt.evict_reason) == ("evict", history.sequence, "cancelled")
    assert work.pending() == [("a", 1), ("b", 1)]


def test_what_is_to_be_done_is_done_in_the_order_of_the_ledger() -> None:
    history = History()
    history.round(placed=[("b", 1)])
    history.round(placed=[("a", 1)])
    assert history.work.pending() == [("b", 1), ("a", 1)]


def test_an_outcome_that_comes_late_does_not_undo_an_eviction() -> None:
    history = History()
    history.round(placed=[("a", 1)])
    history.round(evict=[("a", 1)])
    history.work.apply_outcome(outcome("a", "evicted"))
    history.work.apply_outcome(outcome("a", "bound"))
    assert history.step("a") is None


def test_what_was_released_is_forgotten() -> None:
    history = History()
    history.round(placed=[("a", 1)])
    history.work.apply_outcome(outcome("a", "bound"))
    history.round(release=[("a", 1)])
    assert history.work.attempts == {}
    assert history.work.named("ns", "job-a") == []
    assert history.work.over == [("a", 1)]
    assert history.step("a") is None
    history.round(placed=[("a", 2)])
    assert history.step("a", 2) == "bind"


def test_what_breaks_a_rule_of_the_ledger_is_an_error() -> None:
    history = History()
    with pytest.raises(InvariantError):
        history.round(evict=[("unknown", 1)])


def test_released_ranks_are_nobodys_business() -> None:
    history = History()
    history.round(placed=[("a", 1)])
    assert history.round(freed=[("a", [1])]) == [("a", 1)]
    assert history.work.attempts["a", 1].gone == [1]
    assert history.step("a") == "bind"
    assert history.work.over == []


def test_the_attempts_of_a_job_are_found_by_its_name() -> None:
    history = History()
    history.round(placed=[("a", 1), ("b", 1)])
    assert history.work.named("ns", "job-a") == [("a", 1)]


def test_gangs_that_hold_nothing_are_forgotten() -> None:
    history = History()
    history.round(placed=[("a", 1)])
    assert list(history.work.fold.gangs) == ["a"]
    history.round(release=[("a", 1)])
    assert history.work.fold.gangs == {}


def test_a_refusal_asks_for_nothing() -> None:
    history = History()
    history.sequence += 1
    record = Round(EPOCH, 1, 0, 0, 1, verdicts=[Verdict("ns", "a", "a", 1, refusal=Refusal("no-room"))])
    assert history.work.apply_record(2, history.work.fold.encoded(record)) == []
    assert history.work.pending() == []


def test_foreign_pods_are_never_bound_but_may_be_evicted() -> None:
    history = History()
    assert history.round(adopt=["f"]) == []
    assert history.step("f", 0) is None
    history.round(evict=[("f", 0)])
    assert history.step("f", 0) == "evict"


def test_records_of_a_past_reign_are_void() -> None:
    history = History()
    history.epoch(4)
    history.round(placed=[("a", 1)], epoch=3)
    history.round(placed=[("b", 1)], epoch=4)
    history.epoch(4)
    assert history.work.pending() == [("b", 1)]
    assert history.work.voided == 2


def test_records_that_do_not_follow_on_the_one_before_are_void() -> None:
    history = History()
    history.round(placed=[("a", 1)], base_seq=0)
    history.epoch(9, base_seq=0)
    history.round(placed=[("b", 1)])
    assert history.work.pending() == [("b", 1)]


def test_a_record_of_a_reign_that_never_began_is_void() -> None:
    history = History()
    history.round(placed=[("a", 1)], epoch=4)
    assert history.work.pending() == []


def test_a_ledger_without_its_oldest_records_cannot_be_folded() -> None:
    history = History()
    history.work = Work()
    history.sequence = 40
    with pytest.raises(HistoryError):
        history.round(placed=[("old", 1)], epoch=2)


def test_unknown_kinds_are_void() -> None:
    history = History()
    history.sequence += 1
    assert history.work.apply_record(history.sequence, encode(TimerSeen(0))) == []
    history.round(placed=[("a", 1)])
    assert (history.work.voided, history.step("a")) == (1, "bind")


def test_an_unreadable_record_is_an_error_and_changes_nothing() -> None:
    history = History()
    data = broken(history.sequence + 1, history.work.fold.chain)
    with pytest.raises(LedgerBrokenError):
        history.work.apply_record(history.sequence + 1, data)
    assert history.work.head == history.sequence


def test_outcomes_of_what_is_over_are_dropped_once_the_ledger_is_folded() -> None:
    history = History()
    history.work.apply_outcome(outcome("gone", "bound"))
    history.work.apply_outcome(outcome("a", "bound"))
    history.round(placed=[("a", 1)])
    history.work.settle()
    history.work.apply_outcome(outcome("gone", "bound"))
    assert history.step("a") is None
    assert list(history.work._outcomes) == [("ns", "job-a")]


def test_an_attempt_knows_the_record_that_placed_it_as_its_pods_name_it() -> None:
    history = History()
    history.work.stream = "made at noon"
    history.round(placed=[("u", 1)])
    placed = history.sequence
    history.round()
    assert history.work.attempts["u", 1].ledger == f"made at noon/{EPOCH}/{placed}"
    assert gang_of(history.work.attempts["u", 1]).ledger == f"made at noon/{EPOCH}/{placed}"
    again = Work(stream="made at noon")
    again.restore(history.work.fold.dump())
    assert again.attempts["u", 1].ledger == f"made at noon/{EPOCH}/{placed}"


def test_a_recovery_names_its_own_record() -> None:
    history = History()
    history.work.stream = "s"
    history.epoch(EPOCH + 1)
    history.round(placed=[("u", 1)], epoch=EPOCH + 1)
    recovery = Recovery("ns", "job-u", "u", 1, 1, "CardUnhealthy", "broken", "pod", "force", [0], [0], since_ms=1)
    history.sequence += 1
    record = Round(EPOCH + 1, history.sequence - 1, 0, 0, history.sequence, recoveries=[recovery])
    history.work.apply_record(history.sequence, history.work.fold.encoded(record))
    assert history.work.attempts["u", 1].ledger == f"s/{EPOCH + 1}/{history.sequence}"
    again = Work(stream="s")
    again.restore(history.work.fold.dump())
    assert again.attempts["u", 1].ledger == f"s/{EPOCH + 1}/{history.sequence}"


def test_without_the_stream_nothing_is_written() -> None:
    history = History()
    history.round(placed=[("u", 1)])
    assert history.work.attempts["u", 1].ledger == ""
