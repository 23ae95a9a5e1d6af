"""Dispatcher, binder and a simulated cluster as processes: jobs run to their end, whoever is killed meanwhile."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from berth.core.state.cell import State
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.envelope import decode, encode, open_envelope
from berth.schemas.facts import OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.simulation import SimCounts
from tests.support.cells import a_job
from tests.support.load import give_jobs, stored
from tests.support.processes import Service, services
from tests.support.waiting import pause, until
from tests.support.watch import Watch, at_rest, verify

CLUSTER = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "node-{index}"}
"""
CHIPS = 32
JOBS = 60
SEED = 5
VICTIMS = ("binder", "nodesim", "binder", "dispatcher", "nodesim", "binder")


async def counts(bus: NatsBus) -> SimCounts:
    """What the simulated cluster has seen since its last start."""
    while True:
        try:
            return decode(await bus.request(bus.subjects.sim("counts"), b"", timeout_s=5), SimCounts)
        except TransientError:  # it starts
            await pause(0.05)


def requests(seed: int) -> list[JobRequest]:
    """Jobs that fill the cluster several times over."""
    random = Random(seed)  # noqa: S311  # a test's choices
    return [
        a_job(
            f"job-{number}",
            chips=random.choice([1, 2, 4, 8]),
            replicas=random.choice([1, 1, 2, 3]),
            run_ms=random.choice([50, 200, 600]),
        )
        for number in range(JOBS)
    ]


async def strike(chain: dict[str, Service], watch: Watch) -> int:
    """Kill one after the other while jobs run, and cancel some; returns the double allocations of those who forget."""
    bus, doubles = watch.bus, 0
    for turn, name in enumerate(VICTIMS):
        goal = (turn + 1) * JOBS // (len(VICTIMS) + 2)
        await until(lambda goal=goal: len(watch.placed) >= goal, deadline_s=30, what=f"{goal} placements")  # type: ignore[misc]  # bound now
        if name == "nodesim":
            doubles += (await counts(bus)).double_allocations
        await chain[name].kill()
        chain[name].start()
        job = f"job-{turn * 9 + 3}"
        await stored(bus, bus.subjects.intake_cancel("default", job), encode(JobCancel("default", job)))
    return doubles


def lives(watch: Watch) -> dict[tuple[str, int], list[PodsSeen]]:
    """What was said of the pods of each attempt, in order."""
    found: dict[tuple[str, int], list[PodsSeen]] = {}
    for fact in watch.facts:
        if open_envelope(fact.data).kind == PodsSeen.KIND:
            seen = decode(fact.data, PodsSeen)
            found.setdefault((seen.uid, seen.attempt), []).append(seen)
    return found


def live(watch: Watch) -> list[str]:
    """Gangs that hold chips or may still get them."""
    cancelled = {seen.uid for seen in watch.verdicts().values() if seen.state == "cancelled"}
    return [
        gang.uid
        for gang in watch.fold.gangs.values()
        if not gang.is_over and not (gang.phase == "waiting" and gang.uid in cancelled)
    ]


def check_lives(watch: Watch, state: State) -> None:
    """Each gang that ran was bound once, and ran once."""
    bound = Counter[tuple[str, int]]()
    for fact in watch.facts:
        if open_envelope(fact.data).kind == OutcomeSeen.KIND:
            outcome = decode(fact.data, OutcomeSeen)
            assert outcome.state != "failed", outcome
            bound[outcome.uid, outcome.attempt] += outcome.state == "bound"
    ran = lives(watch)
    ended = {uid for uid, gang in state.fold.gangs.items() if gang.phase == "succeeded"}
    assert len(ended) >= JOBS - len(VICTIMS)
    assert set(watch.placed.values()) == {1}
    for uid in ended:
        assert [set(seen.phase) for seen in ran[uid, 1]] == [{PodPhase.RUNNING}, {PodPhase.SUCCEEDED}], uid
    assert [key for key, count in bound.items() if count > 1] == []
    assert sum(len(holding.placement.chips) for holding in watch.history) > CHIPS, "no chip was used again"


@pytest.mark.timeout(120)
async def test_jobs_run_to_their_end_whoever_is_killed(nats_server: str, cell: str, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER)
    with services(tmp_path, nats_server) as made:
        chain = {
            "nodesim": made.service("nodesim", cell, topology_file=cluster, terminating_s=0.05, tick_s=0.05),
            "dispatcher": made.service("dispatcher", cell, lease_s=1, tick_s=0.1, snapshot_records=10),
            "binder": made.service("binder", cell, retry_wait_max_s=0.5, answer_timeout_s=2),
        }
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            for service in chain.values():
                service.start()
            await give_jobs(bus, *requests(SEED))
            doubles = await strike(chain, watch)
            await until(lambda: len(watch.fold.gangs) == JOBS, deadline_s=30, what="words on all jobs")
            await until(lambda: not live(watch), deadline_s=40, what="the end of all that runs")
            await at_rest(watch)
            end = await counts(bus)
            assert (doubles + end.double_allocations, end.overcommits) == (0, 0)
            assert (end.gangs_live, end.pods_live, end.chips_held) == (0, 0, 0)
            for service in chain.values():
                await service.stop()
            check_lives(watch, await verify(watch, []))
            await watch.stop()
