"""A client that goes on whatever dies."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Final

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.state.ledger import Holding
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job, a_node
from tests.support.waiting import pause, until
from tests.support.watch import RETRY_S, RUBBISH, Watch, at_rest

_KEPT_FULL: Final = 0.6
"""Part of the chips that may be taken before the oldest gangs are let go."""


async def stored(bus: NatsBus, subject: str, data: bytes) -> int:
    """Store a message, however often it takes."""
    while True:
        try:
            return await bus.publish(subject, data, timeout_s=2.0)
        except TransientError:
            await pause(RETRY_S)


async def give_nodes(bus: NatsBus, nodes: Sequence[NodeDescription]) -> None:
    """Say which nodes there are."""
    by_name = {node.name: node for node in nodes}
    for domain, names in domains(nodes).items():
        await stored(bus, bus.subjects.fact_node(domain), encode(pack_nodes(domain, [by_name[name] for name in names])))


async def give_health(bus: NatsBus, nodes: Sequence[NodeDescription]) -> None:
    """Say that nodes are well."""
    for domain, names in domains(nodes).items():
        fact = pack_health(domain, [NodeCondition(name) for name in names])
        await stored(bus, bus.subjects.fact_health(domain), encode(fact))


async def give_jobs(bus: NatsBus, *jobs: JobRequest) -> None:
    """Ask for jobs."""
    for job in jobs:
        await stored(bus, bus.subjects.intake_request(job.namespace, job.name), encode(job))


async def status(bus: NatsBus, name: str) -> JobStatus | None:
    """Status of a job of the namespace ``default``."""
    found = await bus.last(StreamName.STATUS, bus.subjects.status("default", name))
    return decode(found.data, JobStatus) if found is not None else None


def pods_of(holding: Holding, phase: PodPhase) -> PodsSeen:
    """All pods of a placement in one phase."""
    nodes = holding.placement.names()
    table = sorted(set(nodes))
    return PodsSeen(
        namespace=holding.namespace,
        gang=holding.name,
        uid=holding.uid,
        attempt=holding.attempt,
        rank=pack(range(len(nodes)), 4),
        nodes=pack_names(table),
        node_index=pack([table.index(node) for node in nodes], 4),
        phase=pack([phase] * len(nodes), 1),
        chips=pack([sum(1 << chip for chip in chips) for chips in holding.placement.chips_by_rank()], 8),
        resource=holding.placement.resource,
    )


class Load:
    """Requests, cancels, rubbish and departures without end, some requests ahead of the verdicts.

    Args:
        watch: What is known of the cell.
        seed: Of its choices.
        ahead: Requests that may wait for their verdict.
        pace_s: Pause between two of its acts.
    """

    def __init__(self, watch: Watch, *, seed: int, nodes: int = 6, ahead: int = 24, pace_s: float = 0.004) -> None:
        self.watch = watch
        self.bus = watch.bus
        self.acked: list[tuple[int, JobRequest | JobCancel | None]] = []
        """(sequence, what was stored there) of every request that the client was told is stored."""
        self.count = 0
        self._random = Random(seed)  # noqa: S311  # a test's choices
        self._nodes = nodes
        self._ahead = ahead
        self._pace_s = pace_s
        self._gone: set[tuple[str, int]] = set()
        self._names: deque[str] = deque(maxlen=40)
        self._stopping = False

    async def run(self) -> None:
        """Go on until :meth:`stop`."""
        await give_nodes(self.bus, [a_node(f"node-{index:02}") for index in range(self._nodes)])
        while not self._stopping:
            if (self.acked[-1][0] if self.acked else 0) - self.watch.judged < self._ahead:
                await self._ask()
            await self._depart()
            await pause(self._pace_s)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopping = True

    async def drain(self) -> None:
        """End everything that is placed, until nothing is.

        Raises:
            AssertionError: Something stays.
        """
        for _ in range(2000):
            await self._depart(full=0.0)
            if not self.watch.fold.holdings:
                return
            await pause(0.01)
        raise AssertionError(f"{len(self.watch.fold.holdings)} gangs do not go")

    async def settle(self) -> None:
        """Wait until all that was asked for has a verdict, all that ran has ended, and nothing new is said."""
        last = max(sequence for sequence, message in self.acked if isinstance(message, JobRequest))
        watch = self.watch
        await until(
            lambda: watch.judged >= last, deadline_s=30, what=f"verdicts up to {last} in {self.bus.subjects.cell}"
        )
        await self.drain()
        await at_rest(watch)

    async def _ask(self) -> None:
        self.count += 1
        dice = self._random.random()
        subjects = self.bus.subjects
        if dice < 0.1:
            subject = subjects.intake_request("default", f"rubbish-{self.count}")
            self.acked.append((await stored(self.bus, subject, RUBBISH), None))
            return
        message: Message
        if dice < 0.25 and self._names:
            name = self._random.choice(list(self._names))
            message = JobCancel("default", name)
            subject = subjects.intake_cancel("default", name)
        else:
            # One in six asks for a name that was used before: updates, names in use, names used again.
            again = dice < 0.37 and bool(self._names)
            name = self._random.choice(list(self._names)) if again else f"job-{self.count}"
            self._names.append(name)
            message = a_job(
                name,
                uid=f"uid-{self.count}",
                chips=self._random.choice([1, 2, 4, 8]),
                replicas=self._random.choice([1, 1, 2, 3]),
            )
            subject = subjects.intake_request("default", name)
        self.acked.append((await stored(self.bus, subject, encode(message)), message))

    async def _depart(self, *, full: float = _KEPT_FULL) -> None:
        """Evicted gangs go; when too much is taken, the oldest have run to their end."""
        while self.watch.ending:
            holding = self.watch.ending.popleft()
            if holding.key not in self._gone:
                await self._say(holding, PodPhase.GONE)
        taken = sum(len(holding.placement.chips) for holding in self.watch.fold.holdings.values())
        for holding in list(self.watch.fold.holdings.values()):
            if holding.key in self._gone:
                continue
            if taken <= full * 8 * self._nodes and full:
                break
            taken -= len(holding.placement.chips)
            await self._say(holding, PodPhase.SUCCEEDED)

    async def _say(self, holding: Holding, phase: PodPhase) -> None:
        self._gone.add(holding.key)
        fact = pods_of(holding, phase)
        await stored(self.bus, self.bus.subjects.fact_pod(holding.namespace, holding.name), encode(fact))
