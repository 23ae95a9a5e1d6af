"""Rounds that Berth would never write: each is folded whole, or nothing of it is, and all readers agree."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from berth.core.errors import LedgerBrokenError
from berth.core.state import invariants
from berth.core.state.cell import State
from berth.core.state.holdings.holding import Holding
from berth.core.state.ledger import LedgerFold
from berth.formats.recordings.recording import read
from berth.schemas.ledger import Adoption, Eviction, HeldPlaces, Release, Round, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.recording import Entry
from berth.schemas.recovery import Recovery
from berth.schemas.status import SnapshotBody
from berth.services.binder.work import Work

STORED = Path(__file__).parents[1] / "replay"
STORIES = (
    "v0.5/switches-2.0",
    "v0.5/superpods",
    "v0.5/chips",
    "v0.5/restarts",
    "v0.5/recoveries-below-leaves",
    "v0.5/recoveries-in-racks",
    "v0.5/recoveries-with-silent-shards",
)
_ENTRIES = 400
"""Entries of a recording that are read: enough for recoveries that are not over."""


class Story(NamedTuple):
    """The beginning of a recording."""

    start: SnapshotBody
    entries: list[Entry]


class Readers:
    """A reader with columns, one of a shard, one without columns, and the binder: all at the same record."""

    def __init__(self) -> None:
        self.whole = State(keeps=True)
        self.shard = State(owns=lambda _: False)
        self.fold = LedgerFold()
        self.binder = Work()

    def feed(self, entry: Entry) -> None:
        if entry.subject:
            self.whole.apply_fact(entry.subject, entry.sequence, entry.data)
            self.shard.apply_fact(entry.subject, entry.sequence, entry.data)
        else:
            assert len(set(self.verdicts(entry))) == 1

    def verdicts(self, entry: Entry) -> list[str]:
        """What each reader says of a record: empty if it is folded."""
        return [
            _verdict(lambda: self.whole.apply_record(entry.sequence, entry.data)),
            _verdict(lambda: self.shard.apply_record(entry.sequence, entry.data)),
            _verdict(lambda: self.fold.apply(entry.sequence, entry.data)),
            _verdict(lambda: self.binder.apply_record(entry.sequence, entry.data)),
        ]

    def dumps(self) -> list[bytes]:
        """All that the readers know."""
        return [self.whole.dump(), self.shard.dump(), repr(self.fold.dump()).encode(), repr(self.binder).encode()]


def _verdict(apply: object) -> str:
    try:
        apply()  # type: ignore[operator]  # a call without arguments
    except LedgerBrokenError as error:
        return str(error)
    return ""


def _written(fold: LedgerFold, record: Round) -> bytes:
    return fold.encoded(record)


@cache
def story(name: str) -> Story:
    reading = read([(STORED / f"{name}.berthlog").read_bytes()])
    return Story(reading.head.start, [entry for entry, _ in zip(reading, range(_ENTRIES), strict=False)])


def attempts(state: State) -> st.SearchStrategy[tuple[str, int]]:
    """Attempts, mostly held ones."""
    known = sorted(state.fold.holdings)
    held = [st.sampled_from(known)] * 4 if known else []
    gangs = sorted((uid, gang.attempt) for uid, gang in state.fold.gangs.items())
    others = [st.sampled_from(gangs)] if gangs else []
    return st.one_of(*held, *others, st.tuples(st.sampled_from(["nobody", "uid-0"]), st.integers(0, 2)))


@st.composite
def places(draw: st.DrawFn, state: State) -> Placement:
    """Nodes and chips: new ones, or those of an attempt."""
    holdings = [state.fold.holdings[key] for key in sorted(state.fold.holdings)]
    if draw(st.booleans()) and holdings:
        return draw(st.sampled_from(holdings)).placement
    chips = draw(st.integers(1, 2))
    nodes = draw(st.lists(st.sampled_from(["new-0", "new-1", *state.table.names[:6]]), min_size=1, max_size=3))
    picked = [tuple(draw(st.permutations(range(8)))[:chips]) for _ in nodes]
    resource = draw(st.sampled_from([one.placement.resource for one in holdings] or ["r"]))
    return placement_of(nodes, picked, [Run(len(nodes), chips)], resource=resource)


def ranks_of(holding: Holding | None) -> st.SearchStrategy[list[int]]:
    most = holding.placement.pods() if holding is not None else 1
    return st.lists(st.integers(0, most), min_size=1, max_size=3, unique=True).map(sorted)


@st.composite
def recoveries(draw: st.DrawFn, state: State) -> Recovery:
    uid, attempt = draw(attempts(state))
    holding = state.fold.holdings.get((uid, attempt))
    ranks = draw(ranks_of(holding))
    how = draw(st.sampled_from(["grace", "force", "mark", "place", "backup"]))
    wanted = draw(st.none() | places(state))
    placement = wanted if wanted is not None and wanted.pods() == len(ranks) else None
    if placement is None and holding is not None and draw(st.booleans()) and ranks[-1] < holding.placement.pods():
        chips = [holding.placement.chips_by_rank()[rank] for rank in ranks]
        placement = placement_of(
            [f"new-{rank}" for rank in ranks],
            chips,
            [Run(1, len(one)) for one in chips],
            resource=holding.placement.resource,
        )
    return Recovery(
        "default", uid, uid, attempt, (holding.step if holding is not None else 0) + draw(st.sampled_from([1, 1, 1, 2])),
        "CardUnhealthy", "broken", draw(st.sampled_from(["pod", "pod", "job"])), how,  # type: ignore[arg-type]  # of the texts
        ranks, ranks[:1], 5, placement=placement, backups=[f"b{rank}" for rank in ranks] if how == "backup" else [],
    )  # fmt: skip


@st.composite
def releases(draw: st.DrawFn, state: State) -> Release:
    uid, attempt = draw(attempts(state))
    ranks = draw(st.just([]) | ranks_of(state.fold.holdings.get((uid, attempt))))
    reason = draw(st.sampled_from(["succeeded", "failed", "vanished", "fault", "bind-failed", "backup"]))
    return Release(uid, attempt, reason, draw(st.booleans()), ranks)  # type: ignore[arg-type]  # of the texts


def _verdict_of(key: tuple[str, int], placement: Placement | None) -> Verdict:
    return Verdict("default", key[0], key[0], key[1], placement)


def _adoption_of(key: tuple[str, int], placement: Placement) -> Adoption:
    return Adoption("default", key[0], key[0], placement)


def _held_of(key: tuple[str, int], ranks: list[int]) -> HeldPlaces:
    return HeldPlaces("default", key[0], key[0], key[1], ranks, 99)


def _eviction_of(key: tuple[str, int]) -> Eviction:
    return Eviction(key[0], key[1], "cancelled")


@st.composite
def rounds(draw: st.DrawFn, state: State) -> Round:
    """A round of the leading epoch with one to three entries that may or may not be possible."""
    some = attempts(state)
    verdict = st.builds(_verdict_of, some, st.none() | places(state))
    adoption = st.builds(_adoption_of, some, places(state))
    held = st.builds(_held_of, some, st.lists(st.integers(0, 3), max_size=2, unique=True).map(sorted))
    parts: dict[str, st.SearchStrategy[object]] = {
        "verdicts": verdict,
        "recoveries": recoveries(state),
        "evictions": st.builds(_eviction_of, some),
        "held": held,
        "releases": releases(state),
        "adoptions": adoption,
    }
    chosen = draw(st.lists(st.sampled_from([*parts, "releases", "recoveries"]), min_size=1, max_size=3))
    entries = {name: [draw(parts[name]) for _ in range(chosen.count(name))] for name in parts}
    fold = state.fold
    return Round(fold.epoch, fold.head, fold.facts_seq, fold.at_ms + 1, fold.rounds + 1, **entries)  # type: ignore[arg-type]  # lists of the field's own kind


@pytest.mark.parametrize("name", STORIES)
@given(data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_a_round_is_folded_whole_or_not_at_all(name: str, data: st.DataObject) -> None:
    """One that breaks a rule leaves nothing behind: the history goes on as if it had not been there."""
    entries = story(name).entries
    records = [index for index, entry in enumerate(entries) if not entry.subject]
    tried = set(data.draw(st.lists(st.sampled_from(records[1:]), min_size=1, max_size=5)))
    readers = Readers()
    state = readers.whole
    for index, entry in enumerate(entries[: max(tried) + 1]):
        if index in tried:
            for _ in range(3):
                before = readers.dumps()
                record = data.draw(rounds(state))
                found = readers.verdicts(Entry(state.fold.head + 1, _written(state.fold, record)))
                assert len(set(found)) == 1, found
                if not found[0]:
                    event("folded")
                    invariants.check(state)
                    return
                event("broken")
                assert readers.dumps() == before
                assert "berth repair" in found[0]
        readers.feed(entry)
    invariants.check(state)
