"""Drains under any history: no placement meets one, and no gang that could start sleeps on.

Jobs with and without declared run times come and end, drains of nodes and of places come, move and go, time passes. The
oracle knows drains and run times, and no column and no class.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.core.scheduling.reservations import run_ms_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.envelope import decode, encode
from berth.schemas.fault_facts import DrainKind, DrainSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Release, Verdict
from berth.schemas.nodes import NodeDescription
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell

NODES = 5
TURNS_MAX = 60
UNKNOWN_MS = 700
TARGETS: tuple[tuple[DrainKind, str], ...] = (
    *(("node", f"n{number}") for number in range(NODES)),
    ("leaf", "leaf0"),
    ("leaf", "leaf1"),
    ("superpod", "0"),
    ("superpod", "n1"),  # the name of a node as well
)


def described(number: int, place: int) -> NodeDescription:
    return a_node(f"n{number}", leaf=f"leaf{place % 2}", superpod="0" if place < 2 else "n1")  # half


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("drain"), st.sampled_from(TARGETS), st.integers(-500, 3_000)),
        st.tuples(st.just("undrain"), st.sampled_from(TARGETS)),
        st.tuples(
            st.just("job"),
            st.sampled_from([1, 2, 4, 8]),
            st.integers(1, 3),
            st.sampled_from([0, 1, 300, 900, 1_500, 5_000]),
            st.integers(0, 2),
        ),
        st.tuples(st.just("plain"), st.sampled_from([0, 300, 1_500])),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("time"), st.integers(1, 800)),
        st.tuples(st.just("move"), st.integers(0, NODES - 1), st.integers(0, 3)),
        st.tuples(st.just("node"), st.integers(0, NODES - 1)),
    ),
    max_size=30,
)


class History:
    """A cell, and what the oracle knows of it."""

    def __init__(self, policy: str) -> None:
        self.ground = CoreCell(
            [described(number, number % 4) for number in range(NODES - 1)],
            keeps=True,
            queue_policy=policy,
            unknown_run_ms=UNKNOWN_MS,
            reserve_chips=8,
        )
        self.drains: dict[tuple[DrainKind, str], int] = {}
        self.jobs = 0

    def step(self, what: tuple[Any, ...]) -> None:  # noqa: C901  # one case for each thing that happens
        match what:
            case ("drain", (kind, name), after):
                since_ms = max(1, self.ground.now_ms + after)
                self.drains[kind, name] = since_ms
                self.ground.fact(SUBJECTS.fact_drain(kind, name), DrainSeen(kind, name, since_ms))
            case ("undrain", (kind, name)):
                self.undrain(kind, name)
            case ("job", chips, pods, run_ms, priority):
                self.ask(chips=chips, replicas=pods, run_ms=run_ms, priority=priority)
            case ("plain", run_ms):
                self.ask(chips=0, run_ms=run_ms, resource="", node_selector={}, labels={}, annotations={})
            case ("end", number):
                running = sorted(self.ground.state.fold.holdings)
                if running:
                    uid, attempt = running[number % len(running)]
                    self.ground.release(Release(uid, attempt, "succeeded"))
            case ("time", duration_ms):
                self.ground.now_ms += duration_ms
            case ("move", number, place):
                self.ground.nodes[f"n{number}"] = described(number, place)
                self.ground.publish()
            case ("node", number):
                if self.ground.nodes.pop(f"n{number}", None) is None:
                    self.ground.nodes[f"n{number}"] = described(number, 0)
                self.ground.publish()
            case _:
                raise AssertionError(what)

    def undrain(self, kind: DrainKind, name: str) -> None:
        self.drains.pop((kind, name), None)
        self.ground.fact(SUBJECTS.fact_drain(kind, name), DrainSeen(kind, name, gone=True))

    def ask(self, **fields: object) -> None:
        self.jobs += 1
        self.ground.ask(a_job(f"job{self.jobs:02}", **fields))  # type: ignore[arg-type]  # fields of a job

    def settle(self) -> None:
        """Turns until there is nothing to decide; each placement keeps the drains.

        Raises:
            AssertionError: A placement does not, or turns do not end.
        """
        for _ in range(TURNS_MAX):
            verdicts = self.ground.decide()
            for verdict in verdicts:
                self.see_undrained(verdict)
            if not verdicts:
                return
        raise AssertionError("turns do not end")

    def see_undrained(self, verdict: Verdict) -> None:
        """No node of a placement is drained before the job is expected to end."""
        if verdict.placement is None:
            return
        state = self.ground.state
        request = self.request(verdict.name)
        # A release in the same record may change what is expected; there is none here, releases have records of
        # their own.
        run_ms = run_ms_of(state, "default", verdict.placement.runs, request.run_ms)
        for name in verdict.placement.names():
            node = self.ground.nodes[name]
            targets: tuple[tuple[DrainKind, str], ...] = (
                ("node", name),
                ("leaf", node.leaf),
                ("superpod", node.superpod),
            )
            for target in targets:
                since_ms = self.drains.get(target)
                assert since_ms is None or since_ms >= self.ground.now_ms + run_ms, (verdict.name, name, target)

    def request(self, name: str) -> JobRequest:
        request = self.ground.state.jobs["default", name].request
        assert request is not None
        return request

    def copied(self) -> tuple[State, Scheduler]:
        """State and scheduler from a snapshot."""
        ground = self.ground
        data = ground.state.dump(ground.scheduler.dump())
        state = State(keeps=True)
        loaded = state.load(decode(data, SnapshotBody))
        scheduler = Scheduler(state)
        assert loaded.waiting is not None
        scheduler.load(loaded.waiting, loaded.changes)
        assert state.dump(scheduler.dump()) == data
        names = ground.state.table.names
        own = {names[row]: since_ms for row, since_ms in ground.state.table.drained_ms.items()}
        assert {state.table.names[row]: since_ms for row, since_ms in state.table.drained_ms.items()} == own
        return state, scheduler

    def see_nothing_slept(self) -> None:
        """If all waiting gangs were tried anew, none with a declared run time would start.

        Raises:
            AssertionError: One would, or turns do not end.
        """
        state, scheduler = self.copied()
        fold = state.fold
        epoch = Epoch(
            fold.epoch + 1, fold.head, state.facts_seq, self.ground.now_ms, "test", fold.settings, rules=[*fold.rules]
        )
        scheduler.begin(state.apply_record(fold.head + 1, state.fold.encoded(epoch)).changes)
        for _ in range(TURNS_MAX):
            opening = scheduler.open(self.ground.now_ms).opening
            if opening is None:
                return
            recorded = scheduler.decide(opening)
            started = [one.name for one in recorded.round.verdicts if one.placement is not None]
            assert not [name for name in started if self.request(name).run_ms]
            if started:
                return  # others may have less room for it
            scheduler.adopt(recorded, state.apply_record(state.fold.head + 1, state.fold.encoded(recorded.round)))
        raise AssertionError("turns do not end")


@given(STEPS, st.sampled_from(["skip", "skip", "fifo", "easy", "conservative"]))
def test_no_placement_meets_a_drain_and_what_could_start_does_not_sleep(
    steps: list[tuple[Any, ...]], policy: str
) -> None:
    history = History(policy)
    for what in steps:
        history.step(what)
        history.settle()
        if policy == "skip":
            history.see_nothing_slept()
    for kind, name in sorted(history.drains):
        history.undrain(kind, name)
    history.settle()
    assert not history.ground.state.table.drained_ms
    if policy == "skip":
        history.see_nothing_slept()


@given(STEPS)
def test_shards_and_the_whole_know_the_same_drains(steps: list[tuple[Any, ...]]) -> None:
    history = History("skip")
    facts: list[tuple[str, DrainSeen]] = []
    for what in steps:
        history.step(what)
        if what[0] == "drain":
            kind, name = what[1]
            facts.append((SUBJECTS.fact_drain(kind, name), DrainSeen(kind, name, history.drains[kind, name])))
        elif what[0] == "undrain":
            kind, name = what[1]
            facts.append((SUBJECTS.fact_drain(kind, name), DrainSeen(kind, name, gone=True)))
    whole = history.ground.state
    body = decode(whole.dump(), SnapshotBody)
    before = State(owns=lambda _: True)
    for number, (subject, fact) in enumerate(facts, 1):
        assert not before.apply_fact(subject, number, encode(fact)).error
    for number, kept in enumerate((fact for fact in body.facts if ".fact.node." in fact.subject), len(facts) + 1):
        assert not before.apply_fact(kept.subject, number, kept.data).error
    other = State(owns=lambda _: False)
    for subject, fact in facts:
        other.apply_fact(subject, 1, encode(fact))
    assert not other.table.drained_ms
    own = {whole.table.names[row]: since_ms for row, since_ms in whole.table.drained_ms.items()}
    assert {before.table.names[row]: since_ms for row, since_ms in before.table.drained_ms.items()} == own
    for row in range(len(whole.table)):
        assert (row in whole.table.drained_rows(1_000)) == (0 < whole.table.drained_ms.get(row, 0) <= 1_000)  # a moment
