"""Fold of the ledger: what counts, what is void, and what can never be."""

import msgspec
import pytest

from berth.core.errors import HistoryError, InvariantError
from berth.core.state.ledger import Folded, LedgerDump, LedgerFold, pods_of
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel
from berth.schemas.ledger import Adoption, Epoch, Eviction, Release, ReleaseReason, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.refusal import Refusal


def an_epoch(number: int, base_seq: int, **settings: object) -> Epoch:
    return Epoch(number, base_seq, 0, 10, f"holder{number}", Settings(**settings))  # type: ignore[arg-type]


def placed(node: str = "n", *chips: int) -> Placement:
    return placement_of([node], [chips or (0,)], [Run(1, len(chips) or 1, 100, 7)], resource="r")


class Ledger:
    """A fold that gets record after record."""

    def __init__(self) -> None:
        self.fold = LedgerFold()
        self.append(an_epoch(1, 0))

    def append(self, record: Epoch | Round) -> Folded:
        return self.fold.apply(self.fold.head + 1, self.fold.encoded(record))

    def round(self, **parts: object) -> bool:
        """Fold a round; whether it counted."""
        head = self.fold.head
        record = Round(self.fold.epoch, head, head + 100, head + 1_000, head, **parts)  # type: ignore[arg-type]
        return not self.append(record).void

    def verdict(self, uid: str, placement: Placement | None = None, *, attempt: int = 1, final: bool = False) -> bool:
        refusal = None if placement is not None else Refusal("no-room")
        return self.round(verdicts=[Verdict("ns", f"job-{uid}", uid, attempt, placement, refusal, final)])

    def release(self, uid: str, reason: ReleaseReason, *, attempt: int = 1, again: bool = False) -> bool:
        return self.round(releases=[Release(uid, attempt, reason, again)])


def test_a_placement_is_held_until_it_is_released() -> None:
    ledger = Ledger()
    assert ledger.verdict("u", placed())
    gang = ledger.fold.gangs["u"]
    assert (gang.phase, gang.ledger_seq, gang.facts_seq) == ("placed", 2, 101)
    assert list(ledger.fold.holdings) == [("u", 1)]
    assert ledger.round(evictions=[Eviction("u", 1, "cancelled")])
    assert gang.phase == "ending"
    assert ledger.fold.holdings["u", 1].ending == "cancelled"
    assert ledger.release("u", "cancelled")
    assert (gang.phase, gang.is_over, ledger.fold.holdings) == ("cancelled", True, {})


@pytest.mark.parametrize(
    ("reason", "phase"),
    [
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("vanished", "vanished"),
        ("bind-failed", "failed"),
    ],
)
def test_a_release_ends_a_gang_for_its_reason(reason: ReleaseReason, phase: str) -> None:
    ledger = Ledger()
    ledger.verdict("u", placed())
    ledger.release("u", reason)
    assert ledger.fold.gangs["u"].phase == phase


def test_a_release_for_another_attempt_puts_the_gang_back() -> None:
    ledger = Ledger()
    ledger.verdict("u", placed())
    ledger.release("u", "bind-failed", again=True)
    gang = ledger.fold.gangs["u"]
    assert (gang.phase, gang.attempt, gang.refusal) == ("waiting", 2, None)
    ledger.verdict("u", placed(), attempt=2)
    assert list(ledger.fold.holdings) == [("u", 2)]


def test_a_refusal_lets_a_gang_wait_and_a_final_one_ends_it() -> None:
    ledger = Ledger()
    ledger.verdict("u")
    assert ledger.fold.gangs["u"].phase == "waiting"
    ledger.verdict("u", final=True)
    assert ledger.fold.gangs["u"].phase == "failed"
    assert ledger.fold.gangs["u"].refusal == Refusal("no-room")


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(an_epoch(2, 7), id="epoch that does not follow on the record before it"),
        pytest.param(an_epoch(1, 1), id="epoch that is not new"),
        pytest.param(Round(0, 1, 0, 0, 1, [Verdict("ns", "j", "u", 1, placed())]), id="round of a past epoch"),
        pytest.param(Round(2, 1, 0, 0, 1, [Verdict("ns", "j", "u", 1, placed())]), id="round of no epoch"),
        pytest.param(Round(1, 0, 0, 0, 1, [Verdict("ns", "j", "u", 1, placed())]), id="round with a gap"),
        pytest.param(JobCancel("ns", "j"), id="unknown kind"),
    ],
)
def test_a_void_record_moves_the_head_and_nothing_else(record: Epoch | Round | JobCancel) -> None:
    ledger = Ledger()
    before = msgspec.to_builtins(ledger.fold.dump())
    moved = LedgerDump.__struct_fields__.index("head")
    data = encode(record) if isinstance(record, JobCancel) else ledger.fold.encoded(record)
    folded = ledger.fold.apply(2, data)
    assert folded.void
    assert (ledger.fold.head, ledger.fold.voided) == (2, 1)
    after = msgspec.to_builtins(ledger.fold.dump())
    assert [value for place, value in enumerate(after) if place != moved] == [
        value for place, value in enumerate(before) if place != moved
    ]
    assert ledger.verdict("u", placed())


def test_a_new_epoch_voids_what_the_old_one_still_sends() -> None:
    ledger = Ledger()
    old = Round(1, 2, 0, 0, 1, [Verdict("ns", "j", "u", 1, placed())])
    assert ledger.append(an_epoch(2, 1, attempts_max=9)).epoch
    assert ledger.fold.settings.attempts_max == 9
    assert ledger.append(old).void
    assert ledger.fold.holder == "holder2"


def test_records_must_follow_one_another() -> None:
    with pytest.raises(HistoryError, match="sequence 3 came, 2 was next"):
        Ledger().fold.apply(3, encode(an_epoch(2, 2)))


def test_a_gang_that_is_placed_gets_no_verdict() -> None:
    ledger = Ledger()
    ledger.verdict("u", placed())
    with pytest.raises(InvariantError, match="gang u: gets a verdict while it is placed"):
        ledger.verdict("u", placed("m"))


def test_nothing_is_taken_twice_or_given_back_by_who_does_not_hold_it() -> None:
    ledger = Ledger()
    for parts in ({"releases": [Release("u", 1, "failed")]}, {"evictions": [Eviction("u", 1, "cancelled")]}):
        with pytest.raises(InvariantError, match="gang u attempt 1: gives back what it does not hold"):
            ledger.round(**parts)
    adoption = Adoption("ns", "alien", "a", placed())
    ledger.round(adoptions=[adoption])
    assert ledger.fold.holdings["a", 0].foreign
    with pytest.raises(InvariantError, match="gang a attempt 0: is placed twice"):
        ledger.round(adoptions=[adoption])


def test_adopted_pods_are_released_without_a_gang() -> None:
    ledger = Ledger()
    ledger.round(adoptions=[Adoption("ns", "alien", "a", placed())])
    ledger.release("a", "vanished", attempt=0)
    assert ledger.fold.holdings == {}
    assert ledger.fold.gangs == {}


def test_a_dump_is_loaded_to_the_same_dump() -> None:
    ledger = Ledger()
    for uid in ("b", "a", "c"):
        ledger.verdict(uid, placed(f"n{uid}") if uid != "c" else None)
    raw = msgspec.msgpack.encode(ledger.fold.dump())
    other = LedgerFold()
    other.load(msgspec.msgpack.decode(raw, type=type(ledger.fold.dump())))
    assert msgspec.msgpack.encode(other.dump()) == raw
    assert other.holdings == ledger.fold.holdings


def test_the_name_of_a_gang_that_is_over_is_forgotten_now_and_of_one_that_runs_when_it_is_over() -> None:
    ledger = Ledger()
    ledger.verdict("over", final=True)
    ledger.verdict("runs", placed())
    ledger.verdict("waits")
    for uid in ("over", "runs", "waits"):
        ledger.fold.forget(uid, facts_seq=10_000)
    assert set(ledger.fold.gangs) == {"runs", "waits"}
    ledger.release("runs", "cancelled")
    assert set(ledger.fold.gangs) == {"waits"}
    ledger.append(Round(1, ledger.fold.head, 10_000, 0, 9))
    assert ledger.fold.gangs == {}


def test_each_rank_owns_what_its_run_says() -> None:
    placement = placement_of(["b", "a", "b"], [(3, 1), (0, 2), ()], [Run(2, 2, 100, 5), Run(1, 0)], resource="r")
    one, two, three = pods_of(placement)
    assert (one.node, one.mask, one.chips, one.cpu_milli, one.memory_mib) == ("b", 0b1010, (3, 1), 100, 5)
    assert (two.node, two.mask) == ("a", 0b101)
    assert (three.node, three.mask, three.cpu_milli) == ("b", 0, 0)
