"""Queue policies on random jobs: promises and order are kept, and neither shards nor restarts change a decision."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.replay.replay import replayed
from berth.core.scheduling.scheduler import Scheduler
from berth.core.simulation.timeline import Timeline
from berth.core.state.cell import State
from berth.schemas.envelope import body_of, decode, open_envelope
from berth.schemas.ledger import Round, Settings
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotBody
from berth.schemas.workload import PlannedJob
from tests.support.cells import Cell
from tests.support.simulations import a_plan, jobs_of, planned, run_of
from tests.support.worlds import STEPS, Step, World, nodes_of_a_small_cell

POLICIES = ("fifo", "skip", "easy", "conservative")
ROOM = frozenset({"no-room", "no-leaf", "no-rows", "no-leaves", "no-blocks"})


@st.composite
def crowds(draw: st.DrawFn, *, exact: bool = False, priorities: int = 0) -> list[PlannedJob]:
    """Jobs that crowd a few nodes. ``exact``: they say how long they run, and nobody takes one back."""
    jobs = []
    for number in range(draw(st.integers(2, 20))):
        run_s = draw(st.integers(1, 40))
        jobs.append(
            planned(
                f"j{number:02}",
                draw(st.integers(0, 50)),
                run_s,
                draw(st.sampled_from((1, 2, 4, 8, 8))),
                pods=draw(st.sampled_from((1, 1, 2, 3, 4))),
                switch=not exact and draw(st.booleans()),
                priority=draw(st.integers(0, priorities)),
                declared_s=run_s if exact else draw(st.sampled_from((0, run_s, 1, 60))),
            )
        )
    return sorted(jobs, key=lambda job: job.at_ms)


def promises(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Moments that were promised to each job that had the reservation."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        envelope = open_envelope(entry.data)
        if envelope.kind == Round.KIND:
            for verdict in body_of(envelope, Round).verdicts:
                if verdict.refusal is not None and verdict.refusal.code in ROOM and verdict.refusal.start_ms:
                    found.setdefault(verdict.name, []).append(verdict.refusal.start_ms)
    return found


@given(jobs=crowds(exact=True), nodes=st.integers(1, 5))
def test_under_easy_nobody_starts_later_than_promised_when_run_times_are_exact(
    jobs: list[PlannedJob], nodes: int
) -> None:
    plan = a_plan(*jobs, cluster=f"nodes={nodes}", settings=Settings(queue_policy="easy", reserve_chips=1))
    _, timeline, entries = run_of(plan)
    known = jobs_of(timeline)
    for name, moments in promises(entries).items():
        assert 0 <= known[name].placed_ms <= min(moments), name


@given(jobs=crowds(priorities=2), nodes=st.integers(1, 5))
def test_under_fifo_jobs_start_in_the_order_of_the_queue(jobs: list[PlannedJob], nodes: int) -> None:
    plan = a_plan(*jobs, cluster=f"nodes={nodes},leaf=2", settings=Settings(queue_policy="fifo"))
    _, timeline, _ = run_of(plan)
    started = jobs_of(timeline)
    line = sorted(jobs, key=lambda job: -job.request.priority)  # stable: by arrival
    for index, first in enumerate(line):
        before = started[first.request.name]
        for second in line[index + 1 :]:
            after = started[second.request.name]
            if before.placed_ms >= 0 and after.placed_ms >= before.asked_ms:
                assert before.placed_ms <= after.placed_ms, (before, after)


def rounds_in(entries: Sequence[Entry]) -> list[bytes]:
    """Bodies of the rounds: their chain values are over the settings too."""
    envelopes = [open_envelope(entry.data) for entry in entries]
    return [bytes(one.body) for one in envelopes if one.kind == Round.KIND]


def placed(timeline: Timeline) -> dict[str, int]:
    return {job.name: job.placed_ms for job in timeline.jobs}


@given(jobs=crowds(priorities=1), nodes=st.integers(1, 4))
def test_without_large_jobs_backfill_is_skipping_and_skipping_knows_no_reservations(
    jobs: list[PlannedJob], nodes: int
) -> None:
    cluster = f"nodes={nodes},leaf=2"
    plain = run_of(a_plan(*jobs, cluster=cluster))
    told = Settings(queue_policy="skip", reserve_chips=1, reserve_depth=1, unknown_run_ms=1)
    other = run_of(a_plan(*jobs, cluster=cluster, settings=told))
    assert rounds_in(other[2]) == rounds_in(plain[2])
    for policy in ("easy", "conservative"):
        none = Settings(queue_policy=policy, reserve_chips=1_000)
        assert placed(run_of(a_plan(*jobs, cluster=cluster, settings=none))[1]) == placed(plain[1])


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=12)
@given(jobs=crowds(priorities=1), nodes=st.integers(1, 4), every=st.integers(1, 3))
def test_a_restart_from_a_snapshot_at_any_turn_decides_the_same(
    policy: str, jobs: list[PlannedJob], nodes: int, every: int
) -> None:
    chosen = Settings(queue_policy=policy, reserve_chips=16, unknown_run_ms=20_000)
    _, _, entries = run_of(a_plan(*jobs, cluster=f"nodes={nodes},leaf=2", settings=chosen))
    state = State(keeps=True)
    scheduler = Scheduler(state)
    turns = 0
    for index, entry in enumerate(entries):
        if entry.subject:
            applied = state.apply_fact(entry.subject, entry.sequence, entry.data)
            assert not applied.error
            scheduler.note(applied.changes)
            continue
        envelope = open_envelope(entry.data)
        if envelope.kind != Round.KIND:
            scheduler.begin(state.apply_record(entry.sequence, entry.data).changes)
            continue
        opening = scheduler.open(body_of(envelope, Round).at_ms).opening
        scheduler.follow(state.apply_record(entry.sequence, entry.data), opening)
        turns += 1
        if turns % every == 0:
            body = decode(state.dump(scheduler.dump()), SnapshotBody)
            found = replayed(body, entries[index + 1 :])
            assert found.is_identical, (index, found.found)


async def ledger_of(steps: list[Step], policy: str, *, shards: int) -> list[bytes]:
    """Ledger of a cell that lives through ``steps`` under a policy."""
    cell = await Cell(
        shards=shards, round_gangs_max=3, queue_policy=policy, reserve_chips=8, unknown_run_ms=5_000
    ).open()
    try:
        world = World(cell)
        await world.begin(nodes_of_a_small_cell())
        await world.live(steps)
        return await cell.ledger()
    finally:
        await cell.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=8)
@given(steps=STEPS)
def test_any_number_of_shards_writes_the_same_ledger_under_every_policy(policy: str, steps: list[Step]) -> None:
    ledgers = [asyncio.run(ledger_of(steps, policy, shards=shards)) for shards in (0, 1, 2, 3)]
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])
