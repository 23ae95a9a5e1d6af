"""Random jobs: no chip has two owners at a time, every job ends or has a reason, and two runs give the same bytes."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.replay.replay import replayed
from berth.core.simulation.baselines import BASELINES, Baseline
from berth.core.simulation.statistics import OUT, statistics_of
from berth.core.simulation.timeline import Timeline
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Round, Settings
from berth.schemas.placement import Placement
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.workload import PlannedJob
from tests.support.simulations import a_plan, planned, run_of

CLUSTERS = ("nodes=1", "nodes=4,leaf=2", "nodes=6,leaf=3,superpod=6", "nodes=5,leaf=4")


@st.composite
def workloads(draw: st.DrawFn) -> list[PlannedJob]:
    """Jobs that crowd a small cluster; some are too large, wrong, or taken back."""
    jobs = []
    for number in range(draw(st.integers(1, 25))):
        at_s = draw(st.integers(0, 60))
        jobs.append(
            planned(
                f"j{number}",
                at_s,
                draw(st.integers(0, 40)),
                draw(st.sampled_from((1, 2, 3, 4, 6, 8, 8, 8, 9))),
                pods=draw(st.sampled_from((1, 1, 1, 2, 3, 4, 7))),
                switch=draw(st.booleans()),
                priority=draw(st.integers(0, 2)),
                declared_s=draw(st.sampled_from((0, 1, 20, 200))),
                cancel_s=at_s + draw(st.integers(1, 30)) if draw(st.booleans()) and draw(st.booleans()) else 0,
            )
        )
    return jobs


POLICIES = st.sampled_from(("fifo", "skip", "easy", "conservative"))


def chips_of(placement: Placement) -> list[tuple[str, int]]:
    """Node and chip of each chip of a placement."""
    parts = zip(placement.names(), placement.chips_by_rank(), strict=True)
    return [(name, chip) for name, chips in parts for chip in chips]


def see_single_owners(entries: list[Entry]) -> None:
    """Read the ledger by itself: each chip is given once, and given back before it is given again."""
    owned: dict[tuple[str, int], str] = {}
    held: dict[str, list[tuple[str, int]]] = {}
    for entry in entries:
        envelope = open_envelope(entry.data)
        if envelope.kind != Round.KIND:
            continue
        record = body_of(envelope, Round)
        for verdict in record.verdicts:
            if verdict.placement is None:
                continue
            held[verdict.uid] = chips_of(verdict.placement)
            for chip in held[verdict.uid]:
                assert chip not in owned, f"{verdict.uid} gets {chip} of {owned[chip]}"
                owned[chip] = verdict.uid
        for release in record.releases:
            for chip in held.pop(release.uid):
                assert owned.pop(chip) == release.uid
    assert owned == {}


def see_sound(timeline: Timeline, jobs: list[PlannedJob]) -> None:
    """Every job came to an end that fits it, and use never went beyond what there is."""
    run_ms = {job.request.name: job for job in jobs}
    assert sorted(job.name for job in timeline.jobs) == sorted(run_ms)
    for job in timeline.jobs:
        asked = run_ms[job.name]
        assert job.asked_ms == asked.at_ms
        if job.placed_ms < 0:
            assert job.left_ms >= job.asked_ms
            assert job.refused or job.left_ms == asked.cancel_ms
            continue
        assert job.placed_ms >= job.asked_ms
        ended_ms = job.placed_ms + asked.run_ms
        if asked.cancel_ms > job.placed_ms or not asked.cancel_ms:
            assert job.ended_ms == (min(ended_ms, asked.cancel_ms) if asked.cancel_ms else ended_ms)
        assert job.leaves_least <= max(job.leaves, 0)
    assert all(0 <= moment.used <= moment.chips for moment in timeline.moments)
    assert all(sum(moment.blocked.values()) <= moment.chips - moment.used for moment in timeline.moments)
    assert all(used == OUT or used <= 8 for frame in timeline.frames for used in frame.used)
    found = statistics_of(timeline)
    assert (found.waiting, found.running) == (0, 0)


@given(jobs=workloads(), policy=POLICIES, cluster=st.sampled_from(CLUSTERS))
def test_chips_have_one_owner_jobs_end_and_the_history_replays(
    jobs: list[PlannedJob], policy: str, cluster: str
) -> None:
    plan = a_plan(*jobs, cluster=cluster, settings=Settings(queue_policy=policy, reserve_chips=8))
    _, timeline, entries = run_of(plan)
    see_single_owners(entries)
    see_sound(timeline, jobs)
    found = replayed(BEGINNING, entries)
    assert found.is_identical, found.found


@pytest.mark.parametrize("baseline", BASELINES)
@settings(max_examples=25)
@given(jobs=workloads(), policy=POLICIES, seed=st.integers(0, 1 << 40))
def test_rivals_give_no_chip_twice_either(baseline: Baseline, jobs: list[PlannedJob], policy: str, seed: int) -> None:
    settings_ = Settings(queue_policy=policy, reserve_chips=8)
    plan = a_plan(*jobs, cluster="nodes=6,leaf=3", settings=settings_, baseline=baseline, seed=seed)
    _, timeline, entries = run_of(plan)
    see_single_owners(entries)
    see_sound(timeline, jobs)


@settings(max_examples=20)
@given(jobs=workloads(), policy=POLICIES)
def test_two_runs_are_the_same_bytes(jobs: list[PlannedJob], policy: str) -> None:
    plan = a_plan(*jobs, cluster="nodes=4,leaf=2", settings=Settings(queue_policy=policy))
    first, second = run_of(plan), run_of(plan)
    assert msgspec.msgpack.encode(first[1]) == msgspec.msgpack.encode(second[1])
    assert first[2] == second[2]
