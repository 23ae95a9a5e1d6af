"""Rounds that break a rule of the ledger: which rule, and that nothing of them is folded."""

import pytest

from berth.core.errors import LedgerBrokenError
from berth.core.state.ledger import LedgerFold
from berth.schemas.ledger import Adoption, Epoch, Eviction, HeldPlaces, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of


def placed(node: str, *chips: int) -> Placement:
    return placement_of([node, node], [(chip,) for chip in chips], [Run(2, 1)], resource="r")


RELEASED = Release("a", 1, "succeeded")
IN_PART = Release("a", 1, "succeeded", ranks=[0])
GHOST = Release("ghost", 1, "failed")
NEW = Verdict("ns", "b", "b", 1, placed("m", 0, 1))
HELD = HeldPlaces("ns", "a", "a", 1, [0], 99)


@pytest.fixture
def fold() -> LedgerFold:
    """Gang ``a`` owns chips 0 and 1 of node ``n``; chips 2 and 3 are held for gang ``h``."""
    found = LedgerFold()
    found.apply(1, found.encoded(Epoch(1, 0, 0, 10, "a", Settings())))
    _fold(
        found, verdicts=[Verdict("ns", "a", "a", 1, placed("n", 0, 1)), Verdict("ns", "h", "h", 1, placed("n", 2, 3))]
    )
    held = HeldPlaces("ns", "h", "h", 1, [0, 1], 99)
    _fold(found, held=[held], releases=[Release("h", 1, "fault", again=True)])
    return found


def _fold(fold: LedgerFold, **parts: object) -> None:
    record = Round(1, fold.base_seq, 7, 20, fold.rounds + 1, **parts)  # type: ignore[arg-type]  # fields of it
    fold.apply(fold.head + 1, fold.encoded(record))


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ({"releases": [IN_PART, GHOST]}, "gang ghost attempt 1: gives back what it does not hold"),
        ({"evictions": [Eviction("a", 1, "x"), Eviction("ghost", 1, "x")]}, "gang ghost attempt 1: gives back what"),
        ({"verdicts": [NEW], "releases": [Release("b", 1, "failed")]}, "gang b attempt 1: changes in the round that"),
        ({"verdicts": [NEW], "evictions": [Eviction("b", 1, "x")]}, "gang b attempt 1: changes in the round that"),
        ({"releases": [IN_PART, RELEASED]}, "gang a attempt 1: is released in part and whole at once"),
        ({"held": [HELD]}, "gang a: holds places of an attempt that goes on"),
        (
            {"held": [HELD, HeldPlaces("ns", "a", "a", 1)], "releases": [RELEASED]},
            "gang a: holds places and frees them",
        ),
        ({"verdicts": [Verdict("ns", "b", "b", 1, placed("n", 1, 4))]}, "node n: a chip would have two owners"),
        ({"verdicts": [Verdict("ns", "b", "b", 1, placed("n", 3, 4))]}, "node n: a chip would have two owners"),
        ({"verdicts": [Verdict("ns", "b", "b", 1, placed("m", 4, 4))]}, "node m: a chip would have two owners"),
        ({"verdicts": [NEW], "adoptions": [Adoption("ns", "x", "x", placed("m", 1, 2))]}, "node m: a chip would have"),
        ({"verdicts": [Verdict("ns", "a", "a", 2, placed("m", 0, 1))]}, "gang a: gets a verdict while it is placed"),
        ({"verdicts": [Verdict("ns", "b", "b", 0)]}, "gang b: gets a verdict on attempt 0"),
    ],
)
def test_a_round_that_breaks_a_rule_changes_nothing(fold: LedgerFold, parts: dict[str, object], rule: str) -> None:
    before = repr(fold.dump())
    with pytest.raises(LedgerBrokenError, match=f"record 4 of epoch 1 breaks the ledger: {rule}"):
        _fold(fold, **parts)
    assert repr(fold.dump()) == before
    _fold(fold, releases=[RELEASED], verdicts=[Verdict("ns", "b", "b", 1, placed("n", 0, 1))])
    assert fold.head == 4


def test_what_a_round_gives_back_is_free_for_what_it_gives(fold: LedgerFold) -> None:
    _fold(fold, releases=[RELEASED], held=[HELD], verdicts=[Verdict("ns", "h", "h", 2, placed("n", 2, 1))])
    assert set(fold.holdings) == {("h", 2)}
    assert set(fold.held) == {"a"}
    before = repr(fold.dump())
    with pytest.raises(LedgerBrokenError, match="node n: a chip would have two owners"):
        _fold(fold, verdicts=[Verdict("ns", "b", "b", 1, placed("n", 0, 3))])
    assert repr(fold.dump()) == before


def test_a_snapshot_in_which_a_chip_has_two_owners_is_not_loaded(fold: LedgerFold) -> None:
    dump = fold.dump()
    dump.holdings.append(fold.holdings["a", 1])
    dump.holdings[-1] = type(dump.holdings[-1])("ns", "b", "b", 1, placed("n", 0, 4), 2, 10)
    other = LedgerFold()
    with pytest.raises(LedgerBrokenError, match="record 3 of epoch 1 breaks the ledger: node n: a chip would have two"):
        other.load(dump)
    assert other.holdings == {}
