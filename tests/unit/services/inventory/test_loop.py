"""The inventory's loop: what has gone while nobody looked, and what could not be stored."""

import msgspec
import pytest

from berth.formats.kubernetes.objects import Node, Pod
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Change
from berth.schemas.envelope import decode, open_envelope
from berth.schemas.facts import JobSeen, MembersSeen, PodsSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.subjects import StreamName
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.outbound_messages import STILL_MS, WINDOW, WINDOW_ALL
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import PickyServer
from tests.support.gang_world import a_group, in_namespace, members
from tests.support.gang_world import a_pod as a_waiting_pod

RESOURCE = "huawei.com/Ascend910"
NODE = msgspec.convert(
    {
        "metadata": {"name": "n1", "annotations": {"baseDeviceInfos": '{"Ascend910-0":{},"Ascend910-1":{}}'}},
        "status": {
            "allocatable": {"cpu": "100", "memory": "100Gi", RESOURCE: "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    Node,
)


def a_pod(name: str, chip: int, *, uid: str = "", phase: str = "Running", claim: dict[str, str] | None = None) -> Pod:
    """A pod with a chip; ``claim`` holds the annotations of a placement, without which it is of another scheduler."""
    containers = [{"name": "main", "resources": {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}}]
    annotations = {RESOURCE: f"Ascend910-{chip}"} | (claim or {})
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "team", "uid": uid or f"uid-{name}", "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": containers},
            "status": {"phase": phase},
        },
        Pod,
    )


class Desk:
    """A loop that has seen a node."""

    def __init__(self) -> None:
        clock = self.clock = ManualClock()
        self.server = PickyServer(clock)
        self.bus = FakeBus(self.server, "cell")
        self.loop = Loop(self.bus, FakeKube(clock=clock), clock, InventoryConfig(), Instruments.make(InventoryMetrics))
        self.loop.replace_nodes([NODE])

    async def pods(self) -> list[str]:
        facts = await self.bus.read(StreamName.FACTS, filters=[self.bus.subjects.facts("pod")])
        return [decode(stored.data, PodsSeen).gang for stored in facts]

    async def intake(self) -> list[JobRequest | JobCancel]:
        """Requests and cancellations, in order."""
        kinds: dict[str, type[JobRequest | JobCancel]] = {JobRequest.KIND: JobRequest, JobCancel.KIND: JobCancel}
        stored = await self.bus.read(StreamName.INTAKE)
        return [decode(one.data, kinds[open_envelope(one.data).kind]) for one in stored]

    async def holds(self) -> list[str]:
        """Why gangs are held, by the last facts."""
        facts = await self.bus.read(StreamName.LATEST, filters=[self.bus.subjects.facts("member")])
        return [seen.hold for seen in (decode(stored.data, MembersSeen) for stored in facts) if seen.hold]

    async def rest(self) -> list[JobRequest | JobCancel]:
        """Take turns until nothing more is stored; returns what is new on INTAKE."""
        before = len(await self.intake())
        stored = -1
        while stored != (stored := len(await self.intake())) or self.loop.gangs.next_due_ms() == 0:
            assert await self.loop.turn()
        return (await self.intake())[before:]


async def test_pods_that_a_list_does_not_hold_are_gone() -> None:
    desk = Desk()
    desk.loop.replace_pods([a_pod("stays", 0), a_pod("goes", 1)])
    assert desk.loop.pods.held("n1") == 0b11
    desk.loop.replace_pods([a_pod("stays", 0)])
    assert desk.loop.pods.held("n1") == 0b1
    assert len(desk.loop.pods) == 1
    await desk.bus.close()


@pytest.mark.parametrize("sight", ["a list", "one change", "two changes"])
async def test_a_podgroup_that_was_created_again_is_another_one_however_it_is_seen(sight: str) -> None:
    """A relist after a gap shows the new object alone, and a watch may show both as one modification."""
    desk = Desk()
    await desk.bus.ensure_streams()
    before, after = a_group("pg", least=2, uid="before"), a_group("pg", least=3, uid="after", version="9")
    desk.loop.replace_groups([before])
    desk.loop.replace_pods(members(2))
    await desk.loop.turn()
    assert [type(message) for message in await desk.intake()] == [JobRequest]
    if sight == "a list":
        desk.loop.replace_groups([after])
    elif sight == "one change":
        desk.loop.change_groups([("MODIFIED", after)])
    else:
        desk.loop.change_groups([("DELETED", before), ("ADDED", after)])
    desk.loop.replace_pods([a_waiting_pod(f"p-{index}", uid=f"again-{index}", group="pg") for index in range(2)])
    await desk.loop.turn()
    assert [type(message) for message in await desk.intake()] == [JobRequest, JobCancel]
    desk.clock.advance(1)  # a gang that lacks pods settles first
    await desk.loop.turn()
    assert await desk.holds() == ["2 of at least 3 pods exist"]
    await desk.bus.close()


async def test_facts_of_pods_that_were_not_stored_are_said_in_the_next_turn() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.replace_pods([a_pod("a", 0), a_pod("b", 1)])
    desk.server.loses = ".pod."
    assert not await desk.loop.turn()
    assert await desk.pods() == []
    desk.server.loses = ""
    assert await desk.loop.turn()
    assert await desk.pods() == ["pod/a", "pod/b"]
    await desk.bus.close()


async def test_what_podgroups_say_of_faults_and_was_not_stored_is_said_in_the_next_turn() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.replace_groups([a_group("pg", labels={"fault-scheduling": "grace"})])
    desk.server.loses = ".group."
    assert not await desk.loop.turn()
    desk.server.loses = ""
    assert await desk.loop.turn()
    facts = await desk.bus.read(StreamName.FACTS, filters=[desk.bus.subjects.facts("group")])
    assert [decode(stored.data, GroupSeen).labels for stored in facts] == [{"fault-scheduling": "grace"}]
    await desk.bus.close()


async def test_chips_of_a_pod_that_has_ended_are_not_held() -> None:
    desk = Desk()
    desk.loop.replace_pods([a_pod("lives", 0), a_pod("ended", 1, phase="Succeeded")])
    assert desk.loop.pods.held("n1") == 0b1
    await desk.bus.close()


async def test_a_rejected_request_owns_no_pods() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.note_job(JobSeen("team", "job", "u", "rejected", 1))
    claim = {"berth/job": "job", "berth/uid": "u", "berth/attempt": "1", "berth/rank": "0"}
    desk.loop.replace_pods([a_pod("p", 0, claim=claim)])
    assert await desk.loop.turn()
    assert await desk.pods() == []
    desk.clock.advance(3_600)
    assert await desk.loop.turn()
    assert await desk.pods() == ["pod/p"], "nobody spoke of its job, so it is of another scheduler"
    await desk.bus.close()


async def test_the_name_of_a_foreign_pod_that_is_gone_rests_for_a_while() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.replace_pods([a_pod("f", 0)])
    await desk.loop.turn()
    desk.loop.replace_pods([])
    await desk.loop.turn()
    desk.clock.advance(599.999)
    desk.loop.replace_pods([a_pod("f", 0, uid="second")])
    await desk.loop.turn()
    assert await desk.pods() == ["pod/f", "pod/f", "pod/f/second"]
    await desk.bus.close()


async def test_an_old_verdict_of_a_dispatcher_that_leads_no_more_counts_for_nothing() -> None:
    desk = Desk()
    first = JobSeen("team", "j", "first", "accepted", 1)
    second = JobSeen("team", "j", "second", "accepted", 3)
    for seen in (first, second, first, msgspec.structs.replace(first, state="tombstone")):
        desk.loop.note_job(seen)
    assert desk.loop.pods._jobs["team", "j"].uid == "second"
    cancelled = JobSeen("team", "j", "second", "cancelled", 5)
    for seen in (cancelled, msgspec.structs.replace(second, state="tombstone"), first):
        desk.loop.note_job(seen)
    assert desk.loop.pods._jobs["team", "j"].uid == "first", "after the end of a job its name may have any verdict"
    await desk.bus.close()


FLOOD: list[tuple[Change, Pod]] = [
    ("ADDED", in_namespace("flood", a_waiting_pod(f"p-{number}"))) for number in range(2 * WINDOW + 1)
]
MINE = in_namespace("bystander", a_waiting_pod("mine"))


async def test_a_job_of_another_namespace_has_few_requests_of_a_flood_before_it() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.change_pods(FLOOD)
    flood = await desk.rest()
    assert len(flood) == WINDOW
    desk.loop.change_pods([("ADDED", MINE)])
    assert await desk.loop.turn()
    assert [one.namespace for one in (await desk.intake())[WINDOW:]] == ["bystander"]
    await desk.bus.close()


async def test_all_requests_of_a_flood_are_stored_as_those_before_them_are_judged() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.change_pods(FLOOD)
    parts: list[int] = []
    while part := await desk.rest():
        parts.append(len(part))
        last = part[-1]
        desk.loop.note_job(JobSeen(last.namespace, last.name, last.uid, "accepted", sum(parts)))
    assert parts == [WINDOW, WINDOW, 1]
    assert {one.name for one in await desk.intake()} == {f"pod.p-{number}" for number in range(2 * WINDOW + 1)}
    await desk.bus.close()


async def test_requests_of_a_flood_are_stored_though_nobody_judges_them() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.change_pods(FLOOD)
    assert len(await desk.rest()) == WINDOW
    desk.clock.advance(STILL_MS / 1000)
    assert len(await desk.rest()) == WINDOW
    await desk.bus.close()


async def test_floods_of_many_namespaces_are_bounded_together() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    for number in range(2 * WINDOW_ALL):
        desk.loop.change_pods([("ADDED", in_namespace(f"flood-{number % 16}", a_waiting_pod(f"p-{number}")))])
    assert len(await desk.rest()) == WINDOW_ALL
    desk.loop.change_pods([("ADDED", MINE)])
    assert await desk.rest() == []
    stored = (await desk.intake())[WINDOW_ALL // 2 - 1]
    desk.loop.note_job(JobSeen(stored.namespace, stored.name, stored.uid, "accepted", WINDOW_ALL // 2))
    part = [one.namespace for one in await desk.rest()]
    assert (len(part), part.index("bystander")) == (WINDOW_ALL // 2, 16)
    await desk.bus.close()


async def test_of_a_flood_that_is_gone_again_only_what_was_stored_is_judged() -> None:
    desk = Desk()
    await desk.bus.ensure_streams()
    desk.loop.change_pods(FLOOD)
    asked = await desk.rest()
    assert len(asked) == WINDOW
    desk.loop.change_pods([("DELETED", pod) for _, pod in FLOOD])
    assert await desk.rest() == []
    desk.loop.note_job(JobSeen("flood", asked[-1].name, asked[-1].uid, "accepted", WINDOW))
    assert [(type(one), one.name) for one in await desk.rest()] == [(JobCancel, one.name) for one in asked]
    assert await desk.holds() == []
    await desk.bus.close()
