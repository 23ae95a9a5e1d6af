"""The picture of a cell: its changes, one after another, give what a look at everything gives."""

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from berth.core.overview.derived_statuses import DerivedStatuses
from berth.core.overview.overview import Overview
from berth.core.overview.partial import restricted_change, restricted_view
from berth.core.overview.reading import applied, merged
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.schemas.ledger import Round
from berth.schemas.page.view import Change, Job, NodeRow, View
from berth.schemas.recording import Entry
from tests.fuzz.breakage import breakable
from tests.fuzz.draws import draw_history
from tests.fuzz.world import World
from tests.property.test_recoveries import STEPS, ended, lived, running

Steps = list[tuple[str, int, int, int]]


class Log:
    """Keeps the entries of a world."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def fact(self, entry: Entry) -> None:
        self.entries.append(entry)

    def opened(self, *_: object) -> None:
        pass

    def taken_back(self) -> None:
        pass

    def stored(self, entry: Entry, _: Round | None) -> None:
        self.entries.append(entry)


def fuzzed(seed: int) -> list[Entry]:
    """Entries of a random history: foreign pods, shared and withheld chips, recoveries, names and uids used again."""
    history, log = draw_history(seed), Log()
    world = World(history.way, log, Counter())
    with breakable():
        world.begin()
        for step in history.steps:
            world.act(step)
        world.settle()
    return log.entries


class Follower:
    """A cell, and the picture of it."""

    def __init__(self) -> None:
        self.state = State()
        self.overview = Overview(self.state)
        self.statuses = DerivedStatuses(self.state)
        self.health: dict[str, bytes] = {}

    def take(self, entry: Entry) -> None:
        if entry.subject:
            applied_fact = self.state.apply_fact(entry.subject, entry.sequence, entry.data)
            self.overview.note_fact(entry.data)
            self.statuses.note(applied_fact.changes)
            if ".fact.health." in entry.subject and not applied_fact.error:
                self.health[entry.subject] = entry.data
        else:
            folded = self.state.apply_record(entry.sequence, entry.data)
            self.overview.note_record(folded)
            self.statuses.note_record(folded)

    def change(self, at_ms: int) -> Change | View | None:
        self.statuses.tell(self.overview, at_ms)
        return self.overview.change(at_ms)

    def anew(self, at_ms: int) -> View:
        """The picture by a look at everything."""
        overview = Overview(self.state)
        for data in self.health.values():
            overview.note_fact(data)
        DerivedStatuses(self.state).tell(overview, at_ms)
        found = overview.change(at_ms)
        assert isinstance(found, View)
        return found


def by_name(view: View) -> dict[str, object]:
    """A picture without numbers, versions and begins of faults, which depend on what was before."""
    names = {job.n: f"{job.namespace}/{job.name}/{job.uid}" for job in view.jobs}
    assert len(names) == len(view.jobs)
    assert len(view.nodes) == len(view.layout.nodes)
    names[0], names[-1] = "", "hidden"

    def row(one: NodeRow, slots: int) -> object:
        assert len(one.owners) == slots
        owners: list[object] = [names[number] for number in one.owners]
        for chip, numbers in one.sharers:
            assert one.owners[chip] == min(numbers)
            owners[chip] = sorted(names[number] for number in numbers)
        return msgspec.structs.astuple(msgspec.structs.replace(one, owners=[], sharers=[])), owners

    def job(one: Job) -> object:
        return msgspec.structs.replace(one, n=0)

    return {
        "layout": view.layout,
        "nodes": [row(one, place.chips) for one, place in zip(view.nodes, view.layout.nodes, strict=True)],
        "jobs": {names[one.n]: job(one) for one in view.jobs},
        "queue": [names[number] for number in view.queue],
        "faults": [
            (msgspec.structs.replace(one, jobs=[], since_ms=0), sorted(names[number] for number in one.jobs))
            for one in view.faults
        ],
        "reservations": sorted((names[one.job], one.until_ms, one.nodes) for one in view.reservations),
    }


def without_over(found: dict[str, object], view: View) -> dict[str, object]:
    """Without jobs that are over: a look at everything does not know those whose names are free again."""
    over = {"succeeded", "failed", "cancelled", "rejected"}
    held = {number for row in view.nodes for number in row.owners}
    held |= {number for row in view.nodes for _, numbers in row.sharers for number in numbers}
    names = {f"{job.namespace}/{job.name}/{job.uid}" for job in view.jobs if job.phase in over and job.n not in held}
    jobs = found["jobs"]
    assert isinstance(jobs, dict)
    return found | {"jobs": {name: job for name, job in jobs.items() if name not in names}}


def see_changes_add_up(entries: Sequence[Entry], gaps: Sequence[int]) -> None:
    follower = Follower()
    view: View | None = None
    pending = 0
    for number, entry in enumerate(entries):
        follower.take(entry)
        if pending < gaps[number % len(gaps)] and number + 1 < len(entries):
            pending += 1
            continue
        pending = 0
        change = follower.change(number)
        if change is not None:
            assert view is None or change.version == view.version + 1
            assert view is not None or isinstance(change, View)
            view = applied(view, change) if view is not None else change  # type: ignore[assignment]  # seen above
        assert view is not None
        assert view == follower.overview.view(view.at_ms)
        anew = follower.anew(number)
        assert without_over(by_name(view), view) == without_over(by_name(anew), anew)
        see_owners(view, follower.state)
    check(follower.state)


def see_owners(view: View, state: State) -> None:
    """Chips have owners where the table counts them as used or releasing, and nowhere else."""
    for row, place in zip(view.nodes, view.layout.nodes, strict=True):
        at = state.table.row_of[place.name]
        held = int(state.table.used[at]) | int(state.table.releasing[at])
        assert sum(1 << chip for chip, owner in enumerate(row.owners) if owner) == held
        assert not row.reserved & ~held


@given(steps=STEPS, gaps=st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_changes_add_up_in_histories_of_recoveries(steps: Steps, gaps: list[int]) -> None:
    world = lived(running(), steps)
    ended(world)
    see_changes_add_up(world.entries(), gaps)


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 40), gaps=st.lists(st.integers(0, 5), min_size=1, max_size=8))
@example(seed=100_007, gaps=[3, 0, 2])  # a job ends and its name is freed within one change
@example(seed=100_169, gaps=[1, 0, 2])  # an epoch with other settings
def test_changes_add_up_in_random_histories(seed: int, gaps: list[int]) -> None:
    see_changes_add_up(fuzzed(seed), gaps)


def messages(entries: Iterable[Entry], every: int) -> list[Change | View]:
    follower = Follower()
    found: list[Change | View] = []
    for number, entry in enumerate(entries):
        follower.take(entry)
        if number % every == 0 and (change := follower.change(number)) is not None:
            found.append(change)
    return found


def read(found: Sequence[Change | View]) -> View:
    view = found[0]
    assert isinstance(view, View)
    for one in found[1:]:
        view = applied(view, one)
    return view


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 40), every=st.integers(1, 4))
def test_merged_changes_have_the_effect_of_all_of_them(seed: int, every: int) -> None:
    found = messages(fuzzed(seed), every)
    chance = random.Random(seed)  # noqa: S311  # the same parts for the same seed
    fewer = [found[0]]
    for one in found[1:]:
        if chance.random() < 0.6:
            fewer[-1] = merged(fewer[-1], one)
        else:
            fewer.append(one)
    assert read(fewer) == read(found)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 40), every=st.integers(1, 4))
def test_a_reader_of_some_jobs_learns_no_name_of_the_others(seed: int, every: int) -> None:
    follower, partial = Follower(), None
    for number, entry in enumerate(fuzzed(seed)):
        follower.take(entry)
        change = follower.change(number) if number % every == 0 else None
        if change is None:
            continue
        view = follower.overview.view()
        hidden = {job.n for job in view.jobs if zlib.crc32(job.name.encode()) % 2}
        if isinstance(change, View):
            partial = restricted_view(change, hidden)
        else:
            assert partial is not None
            partial = applied(partial, restricted_change(change, hidden))
        assert partial == restricted_view(view, hidden)
        shown = {job.n for job in partial.jobs}
        assert not shown & hidden
        assert shown | hidden == {job.n for job in view.jobs}
        for row, whole in zip(partial.nodes, view.nodes, strict=True):
            assert row.owners == [-1 if owner in hidden else owner for owner in whole.owners]
