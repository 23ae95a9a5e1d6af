"""Which facts say that something is not there any more: the server keeps them for a time only."""

import pytest

from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import MembersSeen, PodPhase, PodsSeen
from berth.schemas.fault_facts import BackupPod, GroupSeen, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.subjects import StreamName
from berth.schemas.usage_facts import NamespaceSeen
from berth.services.inventory.gangs.members import tombstone
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.publish_queue import OutboundMessage, PublishQueue, is_gone
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer


def pods(*phases: PodPhase) -> PodsSeen:
    return PodsSeen(
        "ns", "job", "u", 1, rank=pack(range(len(phases)), 4), nodes=pack_names(["n0"]), node_index=pack([0] * len(phases), 4),
        phase=bytes(phases), chips=pack([0] * len(phases), 8),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        (pods(), True),
        (pods(PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE), True),
        (pods(PodPhase.SUCCEEDED, PodPhase.RUNNING), False),
        (pods(PodPhase.PENDING), False),
        (tombstone("ns", "job", "u", at_ms=1), True),
        (MembersSeen("ns", "job", "u", pods=["a"]), False),
        (MembersSeen("ns", "job", "u", hold="its pods are not complete"), False),
        (ReplacementsSeen("ns", "job", "u"), True),
        (ReplacementsSeen("ns", "job", "u", ranks=pack([0], 4)), False),
        (ReplacementsSeen("ns", "job", "u", backups=[BackupPod(0, "p", "u")]), False),
        (GroupSeen("ns", "group", gone=True), True),
        (GroupSeen("ns", "group"), False),
        (NamespaceSeen("ns", gone=True), True),
        (NamespaceSeen("ns"), False),
    ],
)
def test_a_fact_about_what_is_gone_is_known(message: Message, *, gone: bool) -> None:
    assert is_gone(message) is gone


async def test_the_server_forgets_what_is_gone_and_nothing_else() -> None:
    server = FakeServer(ManualClock())
    bus = FakeBus(server, "cell")
    await bus.ensure_streams()
    queue = PublishQueue(bus, Instruments.make(InventoryMetrics))
    subjects = bus.subjects
    sent = [
        OutboundMessage(subjects.fact_pod("ns", "over"), pods(PodPhase.SUCCEEDED)),
        OutboundMessage(subjects.fact_pod("ns", "runs"), pods(PodPhase.RUNNING)),
        OutboundMessage(subjects.fact_member("ns", "over"), tombstone("ns", "over", "u", at_ms=1)),
    ]
    assert await queue.store(sent) == 3
    assert len(await bus.read(StreamName.LATEST)) == 3
    server.clock.advance(subjects.gone_s)
    assert [stored.subject for stored in await bus.read(StreamName.LATEST)] == [subjects.fact_pod("ns", "runs")]
    await bus.close()
