"""Jobs with switch affinity on a real bus, with scorers, binder and a simulated cluster as processes."""

from pathlib import Path
from typing import Final

import pytest

from berth.core.explain.refusal_text import sentence
from berth.core.topologies.switches.occupancy.leaf_bits import EXCLUSIVE, SHARED, STATE
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.history import state_now
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.chains import chain_of, until_is
from tests.support.load import give_jobs, stored
from tests.support.placed_parts import the_switch
from tests.support.waiting import until_true

CLUSTER: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 16, name: "a2-{index:02}", leaf: {size: 4}}
"""
LONG_MS: Final = 600_000


def a_model(name: str, replicas: int) -> JobRequest:
    """A foundation-model job of whole nodes."""
    return a_job(name, chips=8, replicas=replicas, labels={"tor-affinity": "large-model-schema"}, run_ms=LONG_MS)


def part_of(status: JobStatus) -> SwitchPlacement:
    """How a placed job lies below leaves."""
    return the_switch(status.placement)


async def leaf_bits(bus: NatsBus) -> list[int]:
    """States of all leaves, as a reader finds them who starts now."""
    state = await state_now(bus, SystemClock())
    bits: list[int] = leaf_index_of(state.indexes).occupancy.bits().tolist()
    return bits


@pytest.mark.timeout(120)
async def test_later_jobs_respect_earlier_ones_also_when_everything_was_restarted(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    with chain_of(tmp_path, own_server.url, cell, CLUSTER, {"nslb_version": "2.0"}) as chain:
        async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            for service in chain:
                service.start()
            await until_true(lambda: _has_leaves(bus), deadline_s=20, what="leaf switches are known")
            await give_jobs(bus, a_model("one", 6))
            one = part_of(await until_is(bus, "one", "running"))
            assert (one.rule, len(one.leaves)) == ("drained-and-opened", 2)
            await give_jobs(bus, a_model("two", 6))
            two = part_of(await until_is(bus, "two", "running"))
            assert (two.rule, two.leaves[1]) == ("drained-and-shared", one.leaves[1])
            before = await leaf_bits(bus)
            assert sorted(bit & STATE for bit in before) == [0, SHARED, EXCLUSIVE, EXCLUSIVE]

            for service in chain:
                await service.kill()
            await own_server.kill()
            await own_server.start()
            for service in chain:
                service.start()
            await give_jobs(bus, a_model("three", 5))
            three = await until_is(bus, "three", "waiting")
            assert await leaf_bits(bus) == before
            assert three.refusal is not None
            assert three.refusal.switch is not None
            lack = three.refusal.switch
            assert (three.refusal.code, lack.need, lack.idle, lack.shared) == ("no-leaves", 5, 4, 0)
            assert three.sentence == sentence(three.refusal)
            await stored(bus, bus.subjects.intake_cancel("default", "two"), encode(JobCancel("default", "two")))
            found = part_of(await until_is(bus, "three", "placed", "bound", "running"))
            assert found.policy == "2.0"
            assert set(found.leaves).isdisjoint(set(one.leaves[:1]))
            for service in reversed(chain):
                await service.stop()


@pytest.mark.timeout(120)
async def test_under_1_0_a_leaf_takes_one_job_that_is_on_several(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    with chain_of(tmp_path, own_server.url, cell, CLUSTER, {"nslb_version": "1.0"}) as chain:
        async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            for service in chain:
                service.start()
            await until_true(lambda: _has_leaves(bus), deadline_s=20, what="leaf switches are known")
            await give_jobs(bus, a_model("one", 6), a_model("two", 6))
            leaves = [part_of(await until_is(bus, name, "running")).leaves for name in ("one", "two")]
            assert len({*leaves[0], *leaves[1]}) == 4
            await give_jobs(bus, a_model("three", 4), a_model("four", 2))
            assert (await until_is(bus, "three", "waiting")).sentence.startswith("needs ")
            assert len(part_of(await until_is(bus, "four", "running")).leaves) == 1
            for service in reversed(chain):
                await service.stop()


async def _has_leaves(bus: NatsBus) -> bool:
    try:
        return (await bus.last(StreamName.LATEST, bus.subjects.fact_topology("switch"))) is not None
    except TransientError:
        return False
