"""The inventory and the ledger: PodGroups are told of, and their phases follow what records decide."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from structlog.testing import capture_logs

from berth.core.state.ledger import LedgerFold
from berth.schemas.chain import chained
from berth.schemas.envelope import encode, sealed
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.ledger import Admission, Epoch, Round, Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, Queue
from berth.schemas.refusal import QueueRefusal
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.podgroups import decision_feed
from tests.unit.services.inventory.test_queue_facts import APPLIED, put
from tests.unit.services.inventory.test_service import CONFIG, RESOURCE, World, a_node

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"


class Decided(World):
    """An inventory, and a ledger that a test writes."""

    def __init__(self) -> None:
        super().__init__()
        self.fold = LedgerFold()
        self.config: InventoryConfig = volcano(APPLIED)

    async def append(self, record: Epoch | Round) -> None:
        data = self.fold.encoded(record)
        self.fold.apply(await self.bus.append(data, expected_seq=self.fold.head), data)

    async def begin(self, queues: int = 2) -> None:
        await self.append(Epoch(self.fold.epoch + 1, self.fold.base_seq, 0, 1, "d", Settings(queues=queues)))

    async def decide(self, name: str, refusal: QueueRefusal | None = None) -> None:
        (fact,) = [fact for fact in self.facts("group", GroupSeen) if fact.name == name][-1:]
        asks = fact.waiting
        assert asks is not None
        one = Admission("team", name, fact.uid, asks.queue, asks.minimum, asks.pods, refusal)
        number = self.fold.rounds + 1
        await self.append(Round(self.fold.epoch, self.fold.base_seq, 0, 1, number, admissions=[one]))

    def group(self, name: str, queue: str = "gold") -> None:
        spec = {"minMember": 1, "queue": queue, "minResources": {RESOURCE: "8"}}
        meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": "2026-11-20T10:00:00Z"}
        self.kube.put(GROUPS, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def is_told(self, name: str) -> bool:
        return any(fact.name == name and fact.waiting is not None for fact in self.facts("group", GroupSeen))

    def phase(self, name: str) -> str:
        return str({one["metadata"]["name"]: one["status"] for one in self.kube.objects(GROUPS)}[name]["phase"])

    def says(self, name: str) -> str:
        status = {one["metadata"]["name"]: one["status"] for one in self.kube.objects(GROUPS)}[name]
        return "; ".join(one["message"] for one in status.get("conditions") or ())


def volcano(config: InventoryConfig) -> InventoryConfig:
    gangs = msgspec.structs.replace(config.gangs, scheduler_names=("volcano",))
    return msgspec.structs.replace(config, gangs=gangs)


@pytest.fixture
async def world() -> AsyncIterator[Decided]:
    found = Decided()
    await found.bus.ensure_streams()
    found.kube.put("/api/v1/nodes", a_node("a"))
    yield found
    await found.bus.close()


async def test_phases_follow_the_records_also_those_of_before_a_restart(world: Decided) -> None:
    put(world, "gold", chips=8)
    for name in ("g0", "g1"):
        world.group(name)
    await world.begin()
    full = QueueRefusal(
        "over-capability", "gold", dimension=RESOURCE, held=8 * CHIP, limit=8 * CHIP, asked=8 * CHIP, is_admission=True
    )
    async with world.inventory(world.config):
        await world.has(lambda: world.is_told("g0") and world.is_told("g1"), "what they ask for")
        await world.decide("g0")
        await world.decide("g1", full)
        await world.has(lambda: world.phase("g0") == "Inqueue", "the admission")
        await world.has(lambda: world.says("g1"), "why the other one waits")
    assert world.says("g1") == f"gangs of queue gold need at least 8 of 8 {RESOURCE}; the job asks for 8"
    assert world.phase("g1") == "Pending"
    world.group("g0")  # its phase is lost
    told = len(world.facts("group", GroupSeen))
    async with world.inventory(world.config):
        await world.has(lambda: world.phase("g0") == "Inqueue", "the admission that was decided before")
    assert len(world.facts("group", GroupSeen)) == told, "what was told of before is told of no more"


async def test_queues_that_persons_declare_decide_too(world: Decided) -> None:
    await world.bus.publish(world.bus.subjects.fact_queue("gold"), encode(QueueSeen(Queue("gold"), by="ops")))
    world.group("g0")
    await world.begin()
    async with world.inventory(volcano(CONFIG)):
        await world.has(lambda: world.is_told("g0"), "what it asks for")
        await world.decide("g0")
        await world.has(lambda: world.phase("g0") == "Inqueue", "the admission")


async def test_a_dispatcher_that_applies_no_queues_leaves_it_to_what_is_free(world: Decided) -> None:
    put(world, "gold", chips=0)
    world.group("g0")
    await world.begin(queues=0)
    async with world.inventory(world.config):
        await world.has(lambda: world.phase("g0") == "Inqueue", "the admission")


async def test_a_record_that_cannot_be_read_does_not_stop_the_inventory(
    world: Decided, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_feed, "_PAUSE_S", 0.01)
    put(world, "gold", chips=8)
    world.group("g0")
    await world.begin()
    async with world.inventory(world.config):
        await world.has(lambda: world.is_told("g0"), "what it asks for")
        record = sealed(Round(world.fold.epoch, world.fold.base_seq, 0, 1, 1))
        newer = msgspec.structs.replace(record, version=99)
        head = world.fold.head
        value = chained(world.fold.chain, head + 1, newer)
        with capture_logs() as logs:
            await world.bus.append(msgspec.structs.replace(newer, chain=value).encode(), expected_seq=head)
            await world.has(lambda: any("cannot be read" in one["event"] for one in logs), "the error")
            world.kube.put("/api/v1/nodes", a_node("b"))
            await world.has(lambda: "b" in world.nodes(), "the new node")
    assert world.phase("g0") == "Pending"
