"""Two dispatchers as processes: the leader is killed, stopped or paused, and the other one leads, or does not.

The lease lasts a minute, so none of them leads because it expired.
"""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Epoch, Round
from berth.services.dispatcher.config import DispatcherConfig
from tests.support.cells import a_job, a_node
from tests.support.load import give_jobs, give_nodes
from tests.support.probes import answer
from tests.support.process_state import stop_process
from tests.support.processes import Service, Services, services
from tests.support.waiting import pause, until, until_true
from tests.support.watch import Watch, verify_start

DEADLINE_S: Final = 20.0
DEFAULT_S: Final = DispatcherConfig().heartbeat_answer_s
PATIENT_S: Final = 20.0
"""A leader on a busy machine may answer so late, and leads all the same."""
NODES: Final = 32
CHIPS: Final = 8
"""Of each node."""
JOBS: Final = 4_000
"""Far more than there are chips for."""
JOBS_AT_ONCE: Final = 500
READY: Final = 200


class Pair:
    """Two dispatchers of one cell, and what they write.

    Args:
        made: Maker of processes.
        cell: Of the bus.
        bus: The cell.
        answers_s: How long each waits for the answer of a silent leader.
        settings: Others of both.
    """

    def __init__(
        self,
        made: Services,
        cell: str,
        bus: NatsBus,
        *,
        answers_s: tuple[float, float] = (DEFAULT_S, DEFAULT_S),
        **settings: object,
    ) -> None:
        self.bus = bus
        self.watch = Watch(bus)
        self._ports = free_ports(2)
        self.rivals = [
            made.service(
                "dispatcher",
                cell,
                label=f"-{number}",
                lease_s=60,
                tick_s=0.1,
                snapshot_records=10,
                heartbeat_answer_s=answer_s,
                probes={"port": port},
                **settings,
            )
            for number, (port, answer_s) in enumerate(zip(self._ports, answers_s, strict=True))
        ]
        self._jobs = 0

    async def start(self) -> Service:
        """Start both, the second one when the first leads; returns the first."""
        await self.bus.ensure_streams()
        self.watch.start()
        await give_nodes(self.bus, [a_node(f"node-{index}") for index in range(NODES)])
        first, second = self.rivals
        first.start()
        await self.place()
        second.start()
        await self.stands_by(second)
        return first

    async def stands_by(self, service: Service) -> None:
        """Wait until a process has read what is stored."""
        port = self._ports[self.rivals.index(service)]
        async with aiohttp.ClientSession() as session:

            async def is_ready() -> bool:
                return (await answer(session, port, "readyz"))[0] == READY

            await until_true(is_ready, deadline_s=DEADLINE_S, what=f"readiness of {service.label}")

    async def place(self) -> None:
        """Give a job, and wait until it is placed."""
        name = f"job-{self._jobs}"
        self._jobs += 1
        await give_jobs(self.bus, a_job(name, chips=1))
        uid = f"uid-{name}"
        await until(
            lambda: any(key[0] == uid for key in self.watch.placed), deadline_s=DEADLINE_S, what=f"placement of {name}"
        )

    def leads(self, service: Service) -> bool:
        """Whether a process wrote the last epoch."""
        return f"-{service.pid}-" in self.watch.fold.holder

    async def until_leads(self, service: Service) -> None:
        await until(lambda: self.leads(service), deadline_s=DEADLINE_S, what=f"epoch of {service.label}")

    def resumed(self) -> list[bool]:
        """Whether each epoch resumed."""
        envelopes = [open_envelope(record.data) for record in self.watch.records]
        return [body_of(one, Epoch).resumes for one in envelopes if one.kind == Epoch.KIND]

    def epochs_of_rounds(self) -> list[int]:
        """Epoch of each round, in order."""
        envelopes = [open_envelope(record.data) for record in self.watch.records]
        return [body_of(one, Round).epoch for one in envelopes if one.kind == Round.KIND]

    async def check(self) -> None:
        """One history, whoever wrote it."""
        await self.watch.reach_heads()
        assert set(self.watch.placed.values()) == {1}
        await verify_start(self.bus, self.watch.replay())


@pytest.fixture
async def made(nats_server: str, tmp_path: Path) -> AsyncIterator[Services]:
    """Maker of processes."""
    with services(tmp_path, nats_server) as found:
        yield found


async def test_a_standby_goes_on_when_the_leader_is_killed(made: Services, real_bus: NatsBus, cell: str) -> None:
    pair = Pair(made, cell, real_bus)
    first = await pair.start()
    await first.kill()
    await pair.place()
    assert pair.leads(pair.rivals[1])
    assert pair.resumed() == [False, True], "the standby knew who waits"
    await pair.check()


async def test_a_leader_that_is_stopped_releases_the_lease(made: Services, real_bus: NatsBus, cell: str) -> None:
    pair = Pair(made, cell, real_bus, heartbeat_lost_s=60)
    first = await pair.start()
    await first.stop()
    await pair.place()
    assert pair.leads(pair.rivals[1])
    await pair.rivals[1].stop()
    await pair.check()


async def test_pauses_of_300_ms_cost_no_leadership(made: Services, real_bus: NatsBus, cell: str) -> None:
    pair = Pair(made, cell, real_bus, answers_s=(PATIENT_S, PATIENT_S))
    first = await pair.start()
    for number in range(10):
        await stop_process(first.pid)
        await pause(0.3)
        os.kill(first.pid, signal.SIGCONT)
        await pause(0.1 + 0.013 * number)  # at another moment between two heartbeats each time
    await pair.place()
    assert pair.leads(first)
    assert pair.watch.fold.epoch == 1
    await pair.check()


async def test_a_leader_with_much_to_decide_keeps_the_lease(made: Services, real_bus: NatsBus, cell: str) -> None:
    """Turns with thousands of jobs delay no heartbeat, and the standby follows all of them."""
    pair = Pair(made, cell, real_bus, answers_s=(PATIENT_S, PATIENT_S))
    first = await pair.start()
    for start in range(0, JOBS, JOBS_AT_ONCE):
        await give_jobs(real_bus, *(a_job(f"load-{start + at}", chips=1) for at in range(JOBS_AT_ONCE)))

    def all_are_decided() -> bool:
        gangs = pair.watch.fold.gangs.values()
        return len(gangs) > JOBS and all(gang.phase != "waiting" or gang.refusal is not None for gang in gangs)

    await until(all_are_decided, deadline_s=3 * DEADLINE_S, what=f"verdicts on {JOBS} jobs")
    assert len(pair.watch.placed) == NODES * CHIPS
    assert pair.leads(first)
    assert pair.watch.fold.epoch == 1
    await pair.check()


async def test_a_leader_that_was_paused_for_long_writes_nothing_more(
    made: Services, real_bus: NatsBus, cell: str
) -> None:
    # The second one takes over from the one that is paused; that one must not take over again while the second works.
    pair = Pair(made, cell, real_bus, answers_s=(PATIENT_S, DEFAULT_S))
    first = await pair.start()
    await stop_process(first.pid)
    await pair.until_leads(pair.rivals[1])
    await give_jobs(real_bus, *(a_job(f"more-{number}", chips=1) for number in range(20)))
    os.kill(first.pid, signal.SIGCONT)
    await pair.place()
    await until(lambda: "fenced" in first.log() or "lease lost" in first.log(), deadline_s=DEADLINE_S, what="its log")
    await pair.place()
    assert pair.watch.fold.epoch == 2
    found = pair.epochs_of_rounds()
    assert found == sorted(found)
    assert pair.watch.fold.voided == 0
    await pair.stands_by(first)
    await pair.rivals[1].kill()
    await pair.place()
    assert pair.leads(first), "it stands by again"
    await pair.check()


async def test_a_dispatcher_that_starts_again_takes_its_own_lease_back(
    made: Services, real_bus: NatsBus, cell: str
) -> None:
    pair = Pair(made, cell, real_bus, heartbeat_lost_s=60, holder="dispatcher-0")
    first, _ = pair.rivals
    await real_bus.ensure_streams()
    pair.watch.start()
    await give_nodes(real_bus, [a_node("node-0")])
    first.start()
    await pair.place()
    await first.kill()
    first.start()
    await pair.place()
    assert pair.watch.fold.epoch == 2
    await pair.check()
