"""Jobs come and go on a small cell while every service, the API server and NATS die at any moment."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest

from berth.lab.cells.fleet import EXAMPLES
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import body_of, decode, open_envelope
from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi, apply_crds, crds_in
from tests.support.kube_cells import ORDER, KubeCell
from tests.support.kube_history import History, recording
from tests.support.kube_rights import SERVICES
from tests.support.kube_storm import API, NATS, Storm, answered, check_history, jobs_of, phases, strikes_of
from tests.support.processes import services
from tests.support.waiting import until_true
from tests.support.watch import Watch, at_rest, verify

SEED: Final = 3
JOBS: Final = 36
ROUNDS: Final = 3
NAMESPACE: Final = "storm"
GROUPS: Final = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
ENDED: Final = frozenset({"Completed", "Succeeded"})
CHIPS: Final = 4 * 8
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "dispatcher": {"lease_s": 1, "snapshot_records": 20, "tick_s": 0.2, "decisions": {"shard_retry_ms": 100}},
    "inventory": {"retry_wait_max_s": 2, "settle_s": 0.1, "gangs": {"vanished_s": 3, "retry_s": 1, "look_again_s": 2}},
    "health": {"retry_wait_max_s": 2},
    "binder": {"retry_wait_max_s": 2},
    "nodesim": {"retry_wait_max_s": 2},
}


@dataclass(frozen=True)
class StormCell:
    """Where the storm takes place: a cell with an API server and a bus of its own, all of which may be killed."""

    server: KubeServer
    nats: EmbeddedServer
    api: KubeApi
    bus: NatsBus
    watch: Watch
    cell: KubeCell
    history: History


@asynccontextmanager
async def storm_cell(nats: EmbeddedServer, cell: str, folder: Path) -> AsyncIterator[StormCell]:
    """A cell that stands."""
    async with AsyncExitStack() as stack:
        # The controllers of jobs are nodesim's own.
        server = await stack.enter_async_context(
            KubeServer(folder / "kube", users=dict.fromkeys(SERVICES, ()), controllers=())
        )
        api = await stack.enter_async_context(KubeApi(server))
        bus = await stack.enter_async_context(
            await NatsBus.connect(nats.url, cell, name="storm", inbox="_INBOX.person.storm")
        )
        made = stack.enter_context(services(folder, nats.url))
        await apply_crds(api, crds_in(EXAMPLES / "crds"))
        for name in (NAMESPACE, "mindx-dl"):
            await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        await bus.ensure_streams()
        watch = Watch(bus)
        watch.start()
        world = KubeCell(made, folder=folder, cell=cell, bus=bus, api=api, settings=SETTINGS)
        await world.start()
        history = await stack.enter_async_context(recording(api, folder, NAMESPACE))
        yield StormCell(server, nats, api, bus, watch, world, history)
        await watch.stop()


@pytest.mark.processes
@pytest.mark.timeout(240)
async def test_no_job_is_lost_and_no_chip_held_twice_whatever_dies(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    random = Random(SEED)  # noqa: S311 - the same storm every time
    jobs, strikes = jobs_of(random, JOBS), strikes_of(random, ROUNDS)
    async with storm_cell(own_server, cell, tmp_path) as place, asyncio.TaskGroup() as keepers:
        storm = Storm(place.cell, place.server, place.nats, NAMESPACE)
        await storm.run(jobs, strikes, keepers)
        kept = {job.name for job in jobs if job.name not in storm.deleted}
        await until_all_ended(place, kept)
        for job in jobs:
            await storm.delete(job)
        await until_nothing_is_left(place)
        assert await answered(lambda: place.cell.check_chips(NAMESPACE)) == 0
        await storm.end()
        await place.cell.stop()
        await at_rest(place.watch)
        state = await verify(place.watch, await requests(place.bus))
        assert state.fold.holdings == {}
        table = state.table
        free = [int(table.free[row]).bit_count() for row in range(len(table.names)) if table.present[row]]
        assert sum(free) == CHIPS
        assert check_history(place.history) >= len(kept)
        for service in place.cell.services.values():
            assert "Traceback" not in service.whole_log(), service.whole_log().partition("Traceback")[2][:5000]
    assert all(storm.killed[victim] >= ROUNDS for victim in (*ORDER, API, NATS)), storm.killed
    assert storm.looks > ROUNDS * len(ORDER), storm.looks


async def until_all_ended(place: StormCell, kept: set[str]) -> None:
    """Wait until the jobs that were not deleted have ended well, each of them, and until there are no others.

    Raises:
        AssertionError: They have not; shows them and the logs.
    """

    async def all_ended() -> bool:
        found = await phases(place.api, NAMESPACE)
        return set(found) == kept and set(found.values()) <= ENDED

    try:
        await until_true(all_ended, deadline_s=60, what="every job that was not deleted has ended")
    except AssertionError as error:
        raise AssertionError(f"{error}: {await phases(place.api, NAMESPACE)}{place.cell.logs()}") from error


async def until_nothing_is_left(place: StormCell) -> None:
    """Wait until no pod, no group, no request with pods and no chip that somebody holds is left.

    Raises:
        AssertionError: Something is left; shows it and the logs.
    """

    async def none_left() -> bool:
        pods = await answered(lambda: place.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"))
        groups = await answered(lambda: place.api.items(GROUPS))
        return not (pods or groups or place.watch.fold.holdings or await members_told(place.bus))

    try:
        await until_true(none_left, deadline_s=60, what="nothing is left of the jobs")
    except AssertionError as error:
        left = [*await members_told(place.bus), *place.watch.fold.holdings]
        raise AssertionError(f"{error}: {left}{place.cell.logs()}") from error


async def members_told(bus: NatsBus) -> list[str]:
    """Names of requests for which pods are told of."""
    stored = await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("member"),))
    return [seen.job for seen in (decode(one.data, MembersSeen) for one in stored) if seen.rank or seen.hold]


async def requests(bus: NatsBus) -> list[tuple[int, JobRequest | JobCancel | None]]:
    """All that was asked for, with its sequence."""
    found: list[tuple[int, JobRequest | JobCancel | None]] = []
    for one in await bus.read(StreamName.INTAKE):
        envelope = open_envelope(one.data)
        asked = envelope.kind == JobRequest.KIND
        found.append((one.sequence, body_of(envelope, JobRequest) if asked else body_of(envelope, JobCancel)))
    return found
