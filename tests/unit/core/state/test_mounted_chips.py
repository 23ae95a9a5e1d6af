"""Pods that have other chips of their nodes than the ledger says: it follows them, as far as nobody else owns these."""

from functools import reduce
from operator import or_

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.errors import LedgerBrokenError
from berth.core.state.holdings.mounted_chips import Claim, settle
from berth.core.state.invariants import check
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.ledger import Correction, Release, Verdict
from berth.schemas.placement import Run, Share, placement_of
from tests.support.cells import a_job
from tests.support.gang_lifecycle import Life

P = PodPhase
RUN = (P.RUNNING, P.RUNNING)
HALF = Share(50, 1024, "elastic")


class Node(Life):
    """Node a with jobs of one pod each beside the gang, and a pod of another scheduler."""

    def __init__(self) -> None:
        super().__init__(corrections=1)
        self.jobs = 1

    def hold(self, name: str, *chips: int, share: Share | None = None) -> None:
        """Accept a job of one pod, and place it."""
        self.jobs += 1
        seq = self.state.intake_seq + 1
        job = JobSeen("default", name, f"uid-{name}", "accepted", seq, 1, request=a_job(name), after_seq=seq - 1)
        self.fact(job, f"job.default.{name}")
        placement = placement_of(["a"], [chips], [Run(1, len(chips))], resource="r", share=share)
        self.round(verdicts=[Verdict("default", name, f"uid-{name}", 1, placement)])

    def says(self, name: str, *chips: int, phase: PodPhase = P.RUNNING, node: str = "a", step: int = 0) -> None:
        """The pod of a job names chips."""
        self._said(name, f"uid-{name}", 1, chips, phase, node=node, steps=pack([step], 4) if step else b"")

    def foreign(self, *chips: int, phase: PodPhase = P.RUNNING) -> None:
        """The pod of another scheduler names chips; none: it is gone."""
        self._said("pod/f", "uid-f", 0, chips, phase, foreign=True)

    def _said(
        self,
        name: str,
        uid: str,
        attempt: int,
        chips: tuple[int, ...],
        phase: PodPhase,
        *,
        node: str = "a",
        steps: bytes = b"",
        foreign: bool = False,
    ) -> None:
        fact = PodsSeen(
            "default", name, uid, attempt, pack([0], 4), pack_names([node]), pack([0], 4), pack([phase], 1),
            pack([sum(1 << chip for chip in chips)], 8), resource="r", foreign=foreign, steps=steps,
        )  # fmt: skip
        if foreign and phase == P.GONE:
            fact = PodsSeen("default", name, uid, 0, foreign=True)
        self.fact(fact, f"pod.default.{name.replace('/', '=2F')}")

    def has(self, name: str, attempt: int = 1) -> tuple[int, ...]:
        """Chips that a job, or the pod of another scheduler, owns."""
        return self.state.fold.holdings[f"uid-{name}", attempt].placement.chips_by_rank()[0]

    def settle(self) -> int:
        """Carry out what is due; returns the number of records."""
        number = 0
        while self.due():
            number += 1
            assert number < 20, "it never ends"
            self.carry_out()
        check(self.state)
        return number


def test_a_rank_gets_the_chips_that_its_pod_has_and_gives_the_others_back() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.says("k", 4, 5)
    due = life.carry_out()
    assert due.corrections == [Correction("uid-k", 1, [0], [[4, 5]])]
    assert due.takes_places
    assert [one.chips_by_rank() for one in due.given] == [[(4, 5)]]
    assert (life.has("k"), life.state.held("a")) == ((4, 5), 0b110001)
    assert life.settle() == 0


def test_ranks_of_one_gang_are_corrected_one_by_one() -> None:
    life = Node()
    life.fact(msgspec.structs.replace(life.pods_fact(*RUN), chips=pack([1, 0b100], 8)), "pod.default.j")
    assert life.carry_out().corrections == [Correction("uid-j", 1, [1], [[2]])]
    assert (life.state.held("a"), life.state.held("b")) == (1, 0b100)


def test_pods_that_have_one_anothers_chips_change_places() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.hold("l", 4, 5)
    life.says("k", 4, 5)
    life.says("l", 4, 5)
    assert (life.settle(), life.has("k")) == (0, (2, 3)), "both sets are in use"
    life.says("l", 2, 3)
    assert [one.uid for one in life.carry_out().corrections] == ["uid-k", "uid-l"]
    assert (life.has("k"), life.has("l"), life.settle()) == ((4, 5), (2, 3), 0)


def test_a_pod_of_another_scheduler_changes_places_with_one_of_berth() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.foreign(4, 5)
    assert life.carry_out().adoptions
    life.foreign(2, 3)
    assert life.settle() == 0
    assert life.has("f", 0) == (4, 5), "it keeps what it owns until it gets the others"
    life.says("k", 4, 5)
    assert (life.settle(), life.has("k"), life.has("f", 0)) == (1, (4, 5), (2, 3))


def test_two_pods_that_name_one_chip_keep_all_until_one_of_them_ends() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.hold("l", 4, 5)
    life.says("k", 4, 6)
    assert life.carry_out().corrections == [Correction("uid-k", 1, [0], [[2, 6]])]
    assert (life.settle(), life.state.held("a")) == (0, 0b1110101)
    life.says("l", 4, 5, phase=P.SUCCEEDED)
    assert life.carry_out().releases == [Release("uid-l", 1, "succeeded")]
    due = life.carry_out()
    assert (due.corrections, due.takes_places) == ([Correction("uid-k", 1, [0], [[4, 6]])], True)
    assert (life.settle(), life.state.held("a")) == (0, 0b1010001)


def test_a_pod_of_others_gets_what_it_names_once_it_is_free() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.foreign(2, 3)
    assert life.carry_out().adoptions
    assert life.has("f", 0) == ()
    life.says("k", 4, 5)
    assert (life.settle(), life.has("k"), life.has("f", 0)) == (2, (4, 5), (2, 3))


def test_a_pod_that_names_fewer_chips_has_those_and_some_of_the_decided_ones() -> None:
    life = Node()
    life.hold("k", 2, 3, 4)
    life.says("k", 4, 7)
    life.carry_out()
    assert life.has("k") == (2, 4, 7)


@pytest.mark.parametrize(
    "said",
    [
        lambda life: life.says("k", 2, 3),
        lambda life: life.says("k", 3),
        lambda life: life.says("k"),
        lambda life: life.says("k", 4, 5, 6),
        lambda life: life.says("k", 4, 5, node="b"),
        lambda life: life.says("k", 4, 5, phase=P.GONE),
    ],
    ids=["decided", "one of them", "none", "too many", "elsewhere", "gone"],
)
def test_pods_that_say_nothing_new_are_left(said: object) -> None:
    life = Node()
    life.hold("k", 2, 3)
    said(life)  # type: ignore[operator]  # it is a function
    assert life.due().corrections == []


def test_a_pod_of_a_step_that_the_ledger_does_not_know_is_not_corrected() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.says("k", 4, 5, step=1)
    due = life.due()
    assert (due.corrections, [one.step for one in due.recoveries]) == ([], [1])


def test_a_rank_with_a_part_of_a_chip_goes_to_the_chip_that_its_pod_has() -> None:
    life = Node()
    life.hold("k", 2, share=HALF)
    life.says("k", 3)
    due = life.carry_out()
    assert due.corrections == [Correction("uid-k", 1, [0], [[3]])]
    assert (life.has("k"), life.settle(), life.state.held("a")) == ((3,), 0, 0b1001)


def test_ranks_with_parts_of_chips_change_places() -> None:
    life = Node()
    most = Share(60, 1024, "elastic")
    life.hold("k", 2, share=most)
    life.hold("l", 3, share=most)
    life.says("k", 3)
    assert (life.settle(), life.has("k")) == (0, (2,)), "there is no room for it beside the other"
    life.says("l", 2)
    assert (life.settle(), life.has("k"), life.has("l")) == (1, (3,), (2,))


@pytest.mark.parametrize(
    "other",
    [Share(51, 1024, "elastic"), Share(10, 1024, "fixed-share"), None],
    ids=["too much", "another policy", "a whole chip"],
)
def test_a_rank_with_a_part_of_a_chip_stays_where_the_other_chip_has_no_room_until_it_has(other: Share | None) -> None:
    life = Node()
    life.hold("k", 2, share=HALF)
    life.hold("l", 3, share=other)
    life.says("k", 3)
    assert (life.settle(), life.has("k")) == (0, (2,))
    life.says("l", 3, phase=P.SUCCEEDED)
    assert (life.settle(), life.has("k")) == (2, (3,))


def test_of_ranks_that_name_one_chip_as_many_go_there_as_fit() -> None:
    life = Node()
    for name, chip in (("k", 2), ("l", 3), ("m", 4)):
        life.hold(name, chip, share=HALF)
        life.says(name, 5)
    assert life.settle() == 1
    assert [life.has(name) for name in "klm"] == [(5,), (5,), (4,)]


def test_a_part_and_a_whole_chip_are_not_given_of_one_chip_by_one_record() -> None:
    life = Node()
    life.hold("k", 2)
    life.hold("l", 3, share=HALF)
    life.says("k", 5)
    life.says("l", 5)
    assert (life.settle(), life.has("k"), life.has("l")) == (1, (5,), (3,))


def test_chips_of_a_pod_that_ends_are_marked_where_it_has_them() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.says("k", 2, 3, phase=P.TERMINATING)
    life.says("k", 4, 5, phase=P.TERMINATING)
    life.carry_out()
    row = life.state.table.row_of["a"]
    assert (int(life.state.table.releasing[row]), int(life.state.table.used[row])) == (0b110000, 1)
    check(life.state)


def test_places_of_others_in_the_same_record_are_apart() -> None:
    life = Node()
    life.hold("k", 2, 3)
    life.says("k", 4, 5)
    life.foreign(5, 6)
    due = life.carry_out()
    assert (len(due.corrections), life.has("k"), life.has("f", 0)) == (1, (4, 5), (6,))


@pytest.mark.parametrize(
    "correction",
    [
        Correction("uid-k", 1, [0], [[4]]),
        Correction("uid-k", 1, [1], [[4, 5]]),
        Correction("uid-k", 2, [0], [[4, 5]]),
        Correction("uid-k", 1, [0], [[0, 5]]),
    ],
    ids=["another number", "no rank", "no attempt", "owned"],
)
def test_a_record_with_a_correction_that_does_not_follow_is_refused(correction: Correction) -> None:
    life = Node()
    life.hold("k", 2, 3)
    with pytest.raises(LedgerBrokenError):
        life.round(corrections=[correction])
    assert life.has("k") == (2, 3)


@pytest.mark.parametrize(
    ("ranks", "chips"), [([], []), ([1, 0], [[1], [2]]), ([0], []), ([0], [[2, 1]]), ([-1], [[1]])]
)
def test_ranks_and_chips_of_a_correction_agree(ranks: list[int], chips: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Correction("u", 1, ranks, chips)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Claim], int]:
    """Ranks of one node that own some of its eight chips, apart from one another, and what they name."""
    chips = draw(st.permutations(range(8)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 8))
    claims, others = [], list(chips)
    for rank, size in enumerate(sizes):
        owned, others = others[:size], others[size:]
        named = draw(st.lists(st.integers(0, 7), unique=True, max_size=size))
        claims.append(Claim("u", 1, rank, "a", mask_of(named), mask_of(owned)))
    held = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
    return claims, mask_of(held)


def mask_of(chips: list[int]) -> int:
    return sum(1 << chip for chip in chips)


@given(crowds())
def test_no_chip_is_given_twice_and_each_rank_keeps_its_number(crowd: tuple[list[Claim], int]) -> None:
    claims, others = crowd
    held = others | reduce(or_, (claim.owned for claim in claims))
    found = settle(claims, lambda _: held)
    after = [found.chips.get(claim, claim.owned) for claim in claims]
    assert sum(after) == reduce(or_, after)
    assert not reduce(or_, after) & others
    assert [mask.bit_count() for mask in after] == [claim.owned.bit_count() for claim in claims]
    short = [claim for claim, mask in zip(claims, after, strict=True) if claim.named & ~mask]
    assert found.short == short
    named = [claim.named for claim in claims]
    if sum(named) == reduce(or_, named) and not reduce(or_, named) & others:
        assert found.short == [], "each gets what it names where nobody else names or owns it"
