"""Constraints of pods over whole histories: none is broken, gangs are whole, sleepers wake, shards change nothing."""

import asyncio

import pytest
from hypothesis import given, settings

from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Epoch, Verdict
from berth.schemas.status import SnapshotBody
from tests.support.cells import Cell
from tests.support.constraint_histories import STEPS, History, Step
from tests.support.core_cells import CoreCell

COUNTS = (0, 1, 3, 8)
_TURNS_MAX = 60


class Life:
    """A history in the core, with the oracle behind each record."""

    def __init__(self) -> None:
        self.history = History("cell")
        self.cell = CoreCell([], keeps=True)
        self.history.follow(Epoch(1, 0, 0, 1_000, "test", self.cell.state.fold.settings))
        for subject, message in self.history.begin():
            self.cell.fact(subject, message)

    def decide(self) -> list[Verdict]:
        """Decide until nothing is left to decide; verdicts with a placement.

        Raises:
            AssertionError: That takes too many turns.
        """
        placed: list[Verdict] = []
        for _ in range(_TURNS_MAX):
            opening = self.cell.scheduler.open(self.cell.now_ms).opening
            if opening is None:
                return placed
            found = self.cell.scheduler.decide(opening)
            refusals = [verdict.refusal for verdict in found.round.verdicts if verdict.refusal is not None]
            assert all(refusal.code != "internal" for refusal in refusals), refusals
            self.history.follow(found.round)
            self.cell.scheduler.adopt(found, self.cell.folded(found.round))
            placed += [verdict for verdict in found.round.verdicts if verdict.placement is not None]
        raise AssertionError("the turns never end")

    def live(self, step: Step) -> None:
        match step.verb:
            case "submit":
                self.cell.ask(self.history.request(step))
            case "cancel":
                names = sorted(name for name, job in self.history.jobs.items() if self._waits(job.uid))
                if names:
                    self.cell.take_back(names[step.one % len(names)])
            case "epoch":
                self.epoch()
            case _:
                for subject, message in self.history.facts(step):
                    self.cell.fact(subject, message)

    def _waits(self, uid: str) -> bool:
        gang = self.cell.state.fold.gangs.get(uid)
        return gang is not None and gang.phase == "waiting"

    def epoch(self) -> None:
        fold = self.cell.state.fold
        record = Epoch(
            fold.epoch + 1,
            fold.head,
            self.cell.state.facts_seq,
            self.cell.now_ms,
            "test",
            fold.settings,
            rules=[*fold.rules],
        )
        self.history.follow(record)
        self.cell.scheduler.begin(self.cell.folded(record).changes)


@pytest.mark.timeout(300)
@settings(max_examples=30)
@given(steps=STEPS)
def test_no_placement_breaks_a_constraint_and_nobody_oversleeps(steps: list[Step]) -> None:
    life = Life()
    for step in steps:
        life.live(step)
        life.decide()
    life.epoch()  # tries everybody again
    assert [verdict.name for verdict in life.decide()] == [], "slept although there was room"


@pytest.mark.timeout(300)
@settings(max_examples=20)
@given(steps=STEPS)
def test_a_single_pod_waits_only_where_no_node_with_chips_is_allowed(steps: list[Step]) -> None:
    life = Life()
    for step in steps:
        life.live(step)
        life.decide()
    table = life.cell.state.table
    for job in life.history.jobs.values():
        gang = life.cell.state.fold.gangs.get(job.uid)
        task = job.tasks[0]
        if gang is None or gang.phase != "waiting" or gang.refusal is None or len(job.tasks) > 1 or task.replicas > 1:
            continue
        if job.labels.get("tor-affinity") or job.resource != life.history.nodes["n0"].resource or task.chips != 1:
            continue
        open_nodes = [
            name
            for name in life.history.allowed(job)
            if int(table.free[table.row_of[name]]) and int(table.cpu_free[table.row_of[name]]) >= task.cpu_milli
        ]
        products = {life.history.nodes[name].product for name in open_nodes}
        assert "module910bx8" not in products, (job.name, open_nodes)


@pytest.mark.timeout(300)
@settings(max_examples=20)
@given(steps=STEPS)
def test_a_snapshot_at_any_moment_decides_the_same(steps: list[Step]) -> None:
    life = Life()
    for number, step in enumerate(steps):
        life.live(step)
        if number == len(steps) // 2:
            body = life.cell.state.dump(life.cell.scheduler.dump())
            state = State(keeps=True)
            loaded = state.load(decode(body, SnapshotBody))
            scheduler = Scheduler(state)
            assert loaded.waiting is not None
            scheduler.load(loaded.waiting, loaded.changes)
            assert _rounds(scheduler, state) == _rounds_of(life)
        else:
            life.decide()


def _rounds(scheduler: Scheduler, state: State) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(_TURNS_MAX):
        opening = scheduler.open(1_000).opening
        if opening is None:
            return found
        turn = scheduler.decide(opening)
        found.append(encode(turn.round))
        scheduler.adopt(turn, state.apply_record(state.fold.head + 1, state.fold.encoded(turn.round)))
    raise AssertionError("the turns never end")


def _rounds_of(life: Life) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(_TURNS_MAX):
        opening = life.cell.scheduler.open(1_000).opening
        if opening is None:
            return found
        turn = life.cell.scheduler.decide(opening)
        found.append(encode(turn.round))
        life.history.follow(turn.round)
        life.cell.scheduler.adopt(turn, life.cell.folded(turn.round))
    raise AssertionError("the turns never end")


async def ledger_of(steps: list[Step], *, shards: int) -> list[bytes]:
    """Ledger of a cell that lives through ``steps``."""
    cell = await Cell(shards=shards, round_gangs_max=3).open()
    history = History("cell")
    try:
        for subject, message in history.begin():
            await cell.user.publish(subject, encode(message))
        await cell.turns(1)
        for step in steps:
            if step.verb == "submit":
                await cell.submit(history.request(step))
            elif step.verb == "cancel" and history.jobs:
                await cell.cancel(sorted(history.jobs)[step.one % len(history.jobs)])
            for subject, message in history.facts(step):
                await cell.user.publish(subject, encode(message))
            await cell.turns(2)
            for record in (await cell.ledger())[history.fold.head :]:
                history.follow_stored(record)
        assert await cell.dead() == []
        return await cell.ledger()
    finally:
        await cell.close()


@pytest.mark.timeout(300)
@settings(max_examples=6)
@given(steps=STEPS)
def test_any_number_of_shards_writes_the_same_ledger_to_the_byte(steps: list[Step]) -> None:
    ledgers = [asyncio.run(ledger_of(steps, shards=shards)) for shards in COUNTS]
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])
