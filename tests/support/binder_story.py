"""A ledger and facts that a test writes for a binder that runs as a process of its own."""

from collections.abc import Mapping
from typing import Any, Final

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import OutcomeSeen, PodPhase
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.recovery import How, Recovery, Scope
from berth.schemas.subjects import StreamName
from berth.services.binder.cluster import Gang
from tests.support.binder_cluster import World
from tests.support.chained_records import append
from tests.support.kube_binder import a_gang, a_placement, a_pod, members_of, pods_of
from tests.support.waiting import until_true

Tree = dict[str, Any]
CAUSE: Final = "pod of rank 1: its chip 0 is unhealthy"
LEFT: Final = (1, 2)
"""Ranks that leave: the first gets a place on another node, the second its own again."""
STAY: Final = (0, 3)


class BinderLedger:
    """A ledger for a binder that runs as a process of its own."""

    def __init__(self, bus: NatsBus, world: World) -> None:
        self.bus = bus
        self.world = world
        self.records = 0

    async def append(self, record: Epoch | Round) -> None:
        self.records = await append(self.bus, record)

    async def place(self, gang: Gang, count: int) -> None:
        rows = []
        for rank in range(count):
            made = await self.world.api.post(self.world.pods, a_pod(f"p{rank}"))
            rows.append((rank, f"p{rank}", str(made["metadata"]["uid"])))
        await self.bus.publish(self.bus.subjects.fact_member(gang.namespace, gang.name), encode(members_of(gang, rows)))
        await self.append(Epoch(1, 0, 0, 0, "me", Settings()))
        verdict = Verdict(gang.namespace, gang.name, gang.uid, 1, gang.placement)
        await self.append(Round(1, self.records, 0, 0, 1, verdicts=[verdict]))

    async def outcome(self, gang: Gang) -> OutcomeSeen | None:
        subject = self.bus.subjects.fact_outcome(gang.namespace, gang.name)
        stored = await self.bus.last(StreamName.FACTS, subject)
        return None if stored is None else decode(stored.data, OutcomeSeen)


class Story:
    """A gang of four pods on three nodes, of which two leave."""

    def __init__(self, bus: NatsBus, world: World) -> None:
        self.cell = BinderLedger(bus, world)
        self.world = world
        nodes = [world.node(0), world.node(1), world.node(2), world.node(2)]
        self.gang = a_gang("job", nodes, [(0,), (0,), (0,), (1,)], namespace=world.namespace)
        self.uids: dict[int, str] = {}
        self.before: dict[int, Tree] = {}

    async def publish_members(self) -> None:
        rows = [(rank, f"p{rank}", uid) for rank, uid in sorted(self.uids.items())]
        subject = self.cell.bus.subjects.fact_member(self.gang.namespace, self.gang.name)
        await self.cell.bus.publish(subject, encode(members_of(self.gang, rows)))

    async def publish_pods(self, phases: Mapping[int, PodPhase]) -> None:
        names = self.gang.placement.names()
        rows = [(rank, names[rank], phases.get(rank, PodPhase.RUNNING), 1, True) for rank in range(len(names))]
        subject = self.cell.bus.subjects.fact_pod(self.gang.namespace, self.gang.name)
        await self.cell.bus.publish(subject, encode(pods_of(self.gang, rows)))

    async def make(self, *ranks: int) -> None:
        for rank in ranks:
            made = await self.world.api.post(self.world.pods, a_pod(f"p{rank}"))
            self.uids[rank] = str(made["metadata"]["uid"])
        await self.publish_members()

    async def record(self, **parts: object) -> None:
        number = self.cell.records
        await self.cell.append(Round(1, number, 0, 0, number, **parts))  # type: ignore[arg-type]  # fields of it

    async def run(self) -> None:
        """The gang runs."""
        await self.make(*range(4))
        gang = self.gang
        await self.cell.append(Epoch(1, 0, 0, 0, "me", Settings()))
        await self.record(verdicts=[Verdict(gang.namespace, gang.name, gang.uid, 1, gang.placement)])
        await self.until_outcome(0, bound=4)
        await self.publish_pods({})
        self.before = {rank: await self.world.pod(f"p{rank}") for rank in range(4)}

    async def recover(self, how: How, *, until_ms: int = 0, scope: Scope = "pod") -> None:
        """Record a step: of the ranks that leave, of all for the whole job; a mark names the faulty one alone."""
        gang = self.gang
        ranks = {"mark": [1], "grace": list(LEFT), "force": list(LEFT)}[how] if scope == "pod" else list(range(4))
        has_places = scope == "pod" and how != "mark"
        placement = a_placement([self.world.node(0), self.world.node(2)], [(1,), (0,)]) if has_places else None
        step = Recovery(
            gang.namespace, gang.name, gang.uid, 1, 1, "CardUnhealthy", CAUSE, scope, how, ranks, [1],
            until_ms or 1, until_ms, placement,
        )  # fmt: skip
        await self.record(recoveries=[step])

    async def until_outcome(self, step: int, *, done: int = 0, bound: int, state: str = "bound") -> None:
        async def is_there() -> bool:
            told = await self.cell.outcome(self.gang)
            return told is not None and (told.step, told.done, told.bound, told.state) == (step, done, bound, state)

        await until_true(is_there, deadline_s=40, what=f"the outcome of step {step}, {done} carried out")
        told = await self.cell.outcome(self.gang)
        assert told is not None
        assert told.failures == []

    async def is_gone(self, rank: int) -> bool:
        pods = await self.world.api.items(self.world.pods)
        return self.before[rank]["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in pods}

    async def until_gone(self, *ranks: int) -> None:
        for rank in ranks:
            await until_true(lambda rank=rank: self.is_gone(rank), deadline_s=30, what=f"the end of pod {rank}")  # type: ignore[misc]  # a rank

    async def succeed(self) -> None:
        """The pods are gone, others have come, and the ledger lets the ranks take their places."""
        await self.publish_pods(dict.fromkeys(LEFT, PodPhase.GONE))
        await self.make(*LEFT)
        await self.record(releases=[Release(self.gang.uid, 1, "fault", ranks=list(LEFT))])

    async def check_end(self) -> None:
        """The new pods are at their places, and nothing has touched the others."""
        for rank in STAY:
            assert await self.world.pod(f"p{rank}") == self.before[rank], "it keeps uid, node, chips and all else"
        pods = {rank: await self.world.pod(f"p{rank}") for rank in LEFT}
        assert {rank: pod["metadata"]["uid"] for rank, pod in pods.items()} == {rank: self.uids[rank] for rank in LEFT}
        assert {rank: pod["spec"]["nodeName"] for rank, pod in pods.items()} == {
            1: self.world.node(0),
            2: self.world.node(2),
        }
        notes = {rank: pod["metadata"]["annotations"] for rank, pod in pods.items()}
        assert {rank: one["huawei.com/Ascend910"] for rank, one in notes.items()} == {
            1: "Ascend910-1",
            2: "Ascend910-0",
        }
        assert {one["berth/step"] for one in notes.values()} == {"1"}
        assert {rank: one.get("reschedule-in-place") for rank, one in notes.items()} == {1: None, 2: "true"}
        assert all("deletionTimestamp" not in pod["metadata"] for pod in pods.values())
