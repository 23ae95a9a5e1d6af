"""Shards: one that is dead takes its nodes with it until it returns; any number of them places alike."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from berth.core.cluster.domains import shard_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.schemas.intake import JobRequest
from berth.schemas.refusal import NodeReason
from berth.schemas.status import JobStatus
from berth.services.dispatcher.config import DecisionConfig, DispatcherConfig
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.cells import a_job, a_node
from tests.support.dispatchers import turns
from tests.support.load import give_jobs, give_nodes, status
from tests.support.processes import services
from tests.support.waiting import until_true
from tests.support.watch import Watch, verify

NODES = 48
LEAVES = 6
SHARD_COUNTS = (0, 1, 2, 3, 5)


async def status_when(bus: NatsBus, name: str, condition: Callable[[JobStatus], object], *, what: str) -> JobStatus:
    """Status of a job once a condition holds of it.

    Raises:
        AssertionError: It does not in time; shows the status.
    """
    found: JobStatus | None = None

    async def holds() -> bool:
        nonlocal found
        found = await status(bus, name)
        return found is not None and bool(condition(found))

    try:
        await until_true(holds, deadline_s=10, what=f"{name} {what}")
    except AssertionError as error:
        raise AssertionError(f"{error}, but {found}") from error
    assert found is not None
    return found


def is_placed(found: JobStatus) -> bool:
    return found.phase == "placed"


def waits_for_shard_1(found: JobStatus) -> bool:
    """The other one may be missing from a round as well, if it is slow; the job is soon tried again."""
    return found.phase == "waiting" and found.refusal is not None and found.refusal.missing_shards == [1]


@pytest.mark.timeout(60)
async def test_a_dead_shard_is_named_and_its_nodes_are_used_when_it_returns(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    owners = {f"leaf-{leaf}": shard_of(f"leaf-{leaf}", 2) for leaf in "abcdef"}
    dead = [leaf for leaf, shard in owners.items() if shard == 1]
    alive = [leaf for leaf, shard in owners.items() if shard == 0]
    assert min(len(dead), len(alive)) > 1
    with services(tmp_path, nats_server) as made:
        dispatcher = made.service(
            "dispatcher", cell, shards=2, lease_s=1, tick_s=0.1, gather_timeout_s=1.5, decisions={"shard_retry_ms": 300}
        )
        scorers = [made.service("scorer", cell, label=str(shard), shard=shard, shards=2) for shard in range(2)]
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            await give_nodes(bus, [a_node(f"node-{leaf}", leaf=leaf.removeprefix("leaf-")) for leaf in owners])
            for service in (dispatcher, *scorers):
                service.start()
            await give_jobs(bus, a_job("first"))
            await status_when(bus, "first", is_placed, what="is placed")
            await scorers[1].kill()
            large = a_job("large", chips=8, replicas=len(alive) + 1)
            await give_jobs(bus, large)
            refused = await status_when(bus, "large", waits_for_shard_1, what="waits for shard 1 alone")
            assert refused.refusal is not None
            counts = {entry.reason: entry.nodes for entry in refused.refusal.counts}
            assert counts[NodeReason.SHARD_MISSING] == len(dead)
            assert "belong to a scorer that did not answer" in refused.sentence
            assert dispatcher.is_running
            scorers[1].start()
            late = await status_when(bus, "large", is_placed, what="is placed")
            assert late.placement is not None
            assert set(late.placement.names()) & {f"node-{leaf}" for leaf in dead}
            for service in (dispatcher, *scorers):
                await service.stop()
            await verify(watch, [])


def requests(seed: int) -> list[JobRequest]:
    """Requests of one priority that more than fill the cell."""
    random = Random(seed)  # noqa: S311  # a test's choices
    return [
        a_job(f"job-{number}", chips=random.choice([1, 2, 4, 8]), replicas=random.choice([1, 1, 1, 2, 9]))
        for number in range(80)
    ]


async def outcome(url: str, cell: str, *, shards: int) -> dict[str, object]:
    """What becomes of the requests with a number of shards, each on a connection of its own."""
    async with AsyncExitStack() as stack:

        async def connect(name: str) -> NatsBus:
            return await stack.enter_async_context(await NatsBus.connect(url, cell, name=name))

        user = await connect("user")
        await user.ensure_streams()
        await give_nodes(user, [a_node(f"node-{index:02}", leaf=f"l{index % LEAVES}") for index in range(NODES)])
        jobs = requests(11)
        await give_jobs(user, *jobs)
        for number in range(shards):
            bus = await connect(f"shard-{number}")
            shard = Shard(bus, SystemClock(), shard=number, shards=shards, instruments=Instruments.make(ScorerMetrics))
            await shard.start()
            stack.push_async_callback(shard.feeds.stop)
            await bus.serve(bus.subjects.score(number), shard.answer, queue=f"shard-{number}")
            await bus.serve(bus.subjects.advance, shard.advance)
        config = DispatcherConfig(
            shards=shards, gather_timeout_s=5.0, intake_batch_max=17, decisions=DecisionConfig(round_gangs_max=7)
        )
        dispatcher = Dispatcher(
            await connect("dispatcher"),
            SystemClock(),
            config,
            holder="test",
            instruments=Instruments.make(DispatcherMetrics),
        )
        await dispatcher.start()
        stack.push_async_callback(dispatcher.stop)
        await turns(dispatcher, lambda: len(dispatcher.state.fold.gangs) == len(jobs))
        state = dispatcher.state
        return {
            uid: state.fold.holdings[uid, 1].placement if gang.phase == "placed" else gang.refusal
            for uid, gang in state.fold.gangs.items()
        }


@pytest.mark.timeout(60)
async def test_any_number_of_shards_places_alike(nats_server: str, cell: str) -> None:
    found = {shards: await outcome(nats_server, f"{cell}-{shards}", shards=shards) for shards in SHARD_COUNTS}
    for shards in SHARD_COUNTS[1:]:
        assert found[shards] == found[0], f"{shards} shards"
    assert len(found[0]) == 80
    assert 10 < sum(hasattr(value, "runs") for value in found[0].values()) < 70
