"""The inventory on a bus and an API server in memory.

Longer than 400 lines because all cases share one world.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import pytest
from structlog.testing import capture_logs

from berth.core.cluster.node_packing import pack_health, unpack_nodes
from berth.formats.ascend.report_error import SUSPECT
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import (
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodPhase,
    PodsSeen,
    TopologySeen,
)
from berth.schemas.intake import JobCancel, JobRequest, Task
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition
from berth.schemas.status import JobStatus, Phase
from berth.schemas.subjects import StreamName
from berth.services.inventory.app import serve_on
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics
from tests.support.busy_bus import BusyBus
from tests.support.clock import ManualClock
from tests.support.deaf_bus import DeafBus
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer
from tests.support.waiting import pause, until

M = TypeVar("M", bound=Message)
Tree = dict[str, Any]
RESOURCE = "huawei.com/Ascend910"
CONFIG = InventoryConfig(
    settle_s=0,
    retry_wait_max_s=0.01,
    kinds_retry_s=0.02,
    event_apart_s=60,
    gangs=GangSettings(scheduler_names=("berth",)),
)


def a_node(name: str, chips: int = 8, **changes: Any) -> Tree:  # noqa: ANN401  # a builder for tests
    infos: Tree = {f"Ascend910-{chip}": {} for chip in range(chips)}
    return {
        "metadata": {
            "name": name,
            "labels": {"accelerator-type": "module-910b-8", "accelerator": "huawei-Ascend910"},
            "annotations": changes.get("annotations", {"baseDeviceInfos": msgspec.json.encode(infos).decode()}),
        },
        "status": {
            "capacity": {RESOURCE: str(chips)},
            "allocatable": {"cpu": "100", "memory": "100Gi", RESOURCE: str(chips)},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": changes.get("address", f"ip-{name}")}],
        },
    }


def a_pod(name: str, *, node: str = "", group: str = "", phase: str = "Pending", scheduler: str = "berth", **annotations: str) -> Tree:  # fmt: skip
    found = {key.replace("__", "/"): value for key, value in annotations.items()}
    if group:
        found["scheduling.k8s.io/group-name"] = group
    return {
        "metadata": {"name": name, "namespace": "team", "annotations": found},
        "spec": {
            "schedulerName": scheduler,
            "nodeName": node,
            "containers": [
                {
                    "name": "main",
                    "resources": {"requests": {"cpu": "1", RESOURCE: "2"}, "limits": {RESOURCE: "2"}},
                }
            ],
        },
        "status": {"phase": phase},
    }


class World:
    """A bus, an API server, and an inventory between them."""

    def __init__(self, *, unserved: tuple[str, ...] = ()) -> None:
        self.clock = ManualClock()
        self.server = FakeServer(self.clock)
        self.bus = FakeBus(self.server, "test")
        self.kube = FakeKube(clock=self.clock, unserved=unserved)

    @asynccontextmanager
    async def inventory(
        self, config: InventoryConfig | None = None, bus: FakeBus | None = None
    ) -> AsyncIterator[asyncio.Task[None]]:
        stop = asyncio.Event()
        bus = bus or FakeBus(self.server, "test")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                serve_on(bus, self.kube, self.clock, config or CONFIG, Instruments.make(InventoryMetrics), stop),
                name="inventory",
            )
            try:
                yield task
            finally:
                stop.set()
                await asyncio.wait([task], timeout=5)
                assert task.done()
        await bus.close()

    def history(self, stream: StreamName, part: str, kind: type[M]) -> list[M]:
        found = self.server.stream(self.bus.subjects.stream(stream))
        return [decode(stored.data, kind) for _, stored in sorted(found.messages.items()) if part in stored.subject]

    def facts(self, part: str, kind: type[M]) -> list[M]:
        return self.history(StreamName.FACTS, f".fact.{part}.", kind)

    def ledgers(self) -> list[LedgerSeen]:
        return self.history(StreamName.FACTS, ".fact.ledger", LedgerSeen)

    def nodes(self) -> dict[str, int]:
        """cpu of each node, as last said."""
        last = {fact.domain: fact for fact in self.facts("node", NodesSeen)}
        return {node.name: node.cpu_milli for fact in last.values() for node in unpack_nodes(fact)}

    def phases(self) -> list[tuple[str, list[str]]]:
        return [(fact.gang, [PodPhase(phase).name for phase in fact.phase]) for fact in self.facts("pod", PodsSeen)]

    def requests(self) -> list[JobRequest]:
        return self.history(StreamName.INTAKE, ".intake.request.", JobRequest)

    async def has(self, condition: Any, what: str) -> None:  # noqa: ANN401  # any callable
        await until(condition, deadline_s=5, what=what)

    async def quiet(self) -> None:
        """Let everything that is on its way arrive: wait until nothing more is said for a while."""
        streams = [self.server.stream(self.bus.subjects.stream(name)) for name in (StreamName.FACTS, StreamName.INTAKE)]
        before = [-1]
        while before != (now := [stream.last_seq for stream in streams]):
            before = now
            await pause(0.05)
            for _ in range(100):  # a process that stood still ends the pause at once, and not the work
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    yield found
    await found.bus.close()


async def test_nodes_and_switches_become_facts(world: World) -> None:
    for name in ("a", "b"):
        world.kube.put("/api/v1/nodes", a_node(name))
    info = '{"server_list": [{"tor_ip": "sw", "server": [{"server_ip": "ip-b"}]}]}'
    path = "/api/v1/namespaces/kube-system/configmaps"
    world.kube.put(path, {"metadata": {"name": "basic-tor-node-cm"}, "data": {"tor_info": info}})
    world.kube.put(path, {"metadata": {"name": "another"}, "data": {"tor_info": "{"}})
    async with world.inventory():
        await world.has(lambda: world.facts("topology", TopologySeen), "switches")
        assert sorted(fact.domain for fact in world.facts("node", NodesSeen)) == ["bucket-all", "leaf-sw"]
        (switches,) = world.facts("topology", TopologySeen)
        assert [(leaf.name, leaf.nodes) for leaf in switches.leaves] == [("sw", ["b"])]
        broken = {"metadata": {"name": "basic-tor-node-cm"}, "data": {"tor_info": info[:-3]}}
        with capture_logs() as logs:
            world.kube.put(path, broken)
            await world.has(lambda: any("the last valid value" in str(log) for log in logs), "a complaint")
        await world.quiet()
        await world.has(lambda: world.kube.objects("/api/v1/namespaces/kube-system/events"), "an Event")
        first, second = world.facts("topology", TopologySeen)
        assert (first.reason, second.leaves) == ("", first.leaves)
        assert "tor_info is " in second.reason
    events = world.kube.objects("/api/v1/namespaces/kube-system/events")
    assert [(event["reason"], event["involvedObject"]["name"]) for event in events] == [
        ("SwitchesInvalid", "basic-tor-node-cm")
    ]


async def test_a_leaf_goes_when_the_last_pod_below_it_has_gone_also_across_a_restart(world: World) -> None:
    for name in ("a", "b"):
        world.kube.put("/api/v1/nodes", a_node(name))
    path = "/api/v1/namespaces/kube-system/configmaps"

    def put(leaf: str, node: str) -> None:
        info = f'{{"server_list": [{{"tor_ip": "{leaf}", "server": [{{"server_ip": "ip-{node}"}}]}}]}}'
        world.kube.put(path, {"metadata": {"name": "basic-tor-node-cm"}, "data": {"tor_info": info}})

    def told() -> tuple[list[str], bool]:
        facts = world.facts("topology", TopologySeen)
        return ([leaf.name for leaf in facts[-1].leaves], "without leaf 'sw1'" in facts[-1].reason) if facts else ([], False)  # fmt: skip

    put("sw1", "a")
    world.kube.put("/api/v1/namespaces/team/pods", a_pod("f", node="a", phase="Running", scheduler="volcano"))
    async with world.inventory():
        await world.has(lambda: told() == (["sw1"], False), "the first leaf")
        put("sw2", "b")
        await world.has(lambda: told() == (["sw1"], True), "the reason")
        await world.has(lambda: world.kube.objects("/api/v1/namespaces/kube-system/events"), "an event")
        (event,) = world.kube.objects("/api/v1/namespaces/kube-system/events")
        assert "without leaf 'sw1'" in event["message"]
        assert "team/f on node a" in event["message"]
    async with world.inventory():
        await world.quiet()
        assert told() == (["sw1"], True)
        assert len(world.facts("topology", TopologySeen)) == 2
        world.kube.confirm("/api/v1/namespaces/team/pods/f")
        await world.has(lambda: told() == (["sw2"], False), "the other leaf")
        assert world.nodes().keys() == {"a", "b"}


async def test_heartbeats_and_relists_say_nothing(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory():
        await world.has(lambda: world.nodes() == {"a": 100_000}, "the node")
        for _ in range(3):
            world.kube.put("/api/v1/nodes", a_node("a"))
        world.kube.relist()
        await world.quiet()
        assert len(world.facts("node", NodesSeen)) == 1


async def test_a_node_with_something_wrong_is_told_of_once_on_the_node(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a", annotations={"baseDeviceInfos": "{"}))
    path = "/api/v1/namespaces/default/events"
    with capture_logs() as logs:
        async with world.inventory():
            await world.has(lambda: world.kube.objects(path), "an event")
            world.kube.put("/api/v1/nodes", a_node("a", annotations={"baseDeviceInfos": "{"}))
            await world.quiet()
    assert len([log for log in logs if log["event"] == "object invalid"]) == 1
    (event,) = world.kube.objects(path)
    assert (event["involvedObject"]["kind"], event["count"], event["type"]) == ("Node", 1, "Warning")
    assert event["message"].startswith("node a: annotation baseDeviceInfos is '{': expected a JSON map")
    async with world.inventory():
        await world.has(lambda: world.kube.objects(path)[0]["count"] == 2, "the event counted once more")


async def test_a_bound_pod_of_another_scheduler_is_foreign_until_it_is_gone(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    pod = a_pod("f", node="a", phase="Running", scheduler="volcano", huawei_com="")
    pod["metadata"]["annotations"] = {RESOURCE: "Ascend910-0,Ascend910-1"}
    world.kube.put("/api/v1/namespaces/team/pods", pod)
    async with world.inventory():
        await world.has(lambda: world.phases() == [("pod/f", ["RUNNING"])], "the pod")
        world.kube.confirm("/api/v1/namespaces/team/pods/f")
        await world.has(lambda: world.phases()[1:] == [("pod/f", [])], "its end")
    assert [fact.foreign for fact in world.facts("pod", PodsSeen)] == [True, True]
    assert world.requests() == []


async def test_a_bare_pod_becomes_a_request_and_its_placement_a_fact(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    made = world.kube.put("/api/v1/namespaces/team/pods", a_pod("p"))
    async with world.inventory():
        await world.has(world.requests, "a request")
        (request,) = world.requests()
        (members,) = world.facts("member", MembersSeen)
        assert (members.job, members.uid, members.pods) == (request.name, request.uid, ["p"])
        assert members.pod_uids == [made["metadata"]["uid"]]
        job = JobSeen("team", request.name, request.uid, "accepted", 1, request=request)
        await world.bus.publish(world.bus.subjects.fact_job("team", request.name), encode(job))
        bound = a_pod(
            "p",
            node="a",
            phase="Running",
            berth__job=request.name,
            berth__uid=request.uid,
            berth__attempt="1",
            berth__rank="0",
            huawei_com="",
        )
        bound["metadata"]["annotations"][RESOURCE] = "Ascend910-0,Ascend910-1"
        world.kube.put("/api/v1/namespaces/team/pods", bound)
        await world.has(lambda: world.phases() == [(request.name, ["RUNNING"])], "the pod")
    facts = len(world.facts("pod", PodsSeen))
    async with world.inventory():
        await world.quiet()
    assert len(world.facts("pod", PodsSeen)) == facts
    assert len(world.requests()) == 1
    assert len(world.facts("member", MembersSeen)) == 1


@pytest.mark.parametrize("by_owner", [False, True])
async def test_a_name_in_a_pod_reaches_no_other_object(world: World, *, by_owner: bool) -> None:
    name = "../../../../../../api/v1/pods"
    world.kube.put("/api/v1/nodes", a_node("a"))
    pods = "/api/v1/namespaces/ns/pods"
    bad = a_pod("bad", **({} if by_owner else {"jobset.sigs.k8s.io/jobset-name": name}))
    if by_owner:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": True}
        bad["metadata"]["ownerReferences"] = [owner]
    world.kube.put(pods, bad)
    async with world.inventory():
        await world.has(lambda: world.facts("node", NodesSeen), "the node")
        await world.quiet()
        world.kube.put(pods, a_pod("solo"))
        await world.has(lambda: any("solo" in one.name for one in world.requests()), "the request of the other pod")
    assert [call.path for call in world.kube.calls if ".." in call.path or call.path == "/api/v1/pods"] == []


async def test_a_group_becomes_one_request_once_it_is_let_in(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    group = {
        "metadata": {"name": "g", "namespace": "team"},
        "spec": {"minMember": 4, "queue": "q", "minResources": {RESOURCE: "8"}},
        "status": {"phase": "Pending"},
    }
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"
    world.kube.put(path, group)
    for index in range(4):
        world.kube.put("/api/v1/namespaces/team/pods", a_pod(f"p{index}", group="g"))
    async with world.inventory():
        await world.has(world.requests, "a request")
        (request,) = world.requests()
        assert (request.name, request.queue) == ("podgroup.g", "q")
        assert sum(task.replicas for task in request.tasks) == 4
        await world.has(
            lambda: world.kube.object(f"{path}/g")["status"]["phase"] == "Inqueue", "the group in the queue"
        )


async def test_a_clock_that_is_set_neither_ends_nor_lengthens_the_time_that_a_group_has_to_start(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"
    world.kube.put(path, {"metadata": {"name": "g", "namespace": "team"}, "spec": {"minMember": 1}})
    world.kube.put("/api/v1/namespaces/team/pods", a_pod("p", group="g"))

    def is_(phase: str) -> bool:
        found: bool = world.kube.object(f"{path}/g")["status"]["phase"] == phase
        return found

    async def look() -> None:
        world.kube.put("/api/v1/nodes", a_node("other"))
        await world.quiet()
        world.kube.confirm("/api/v1/nodes/other")
        await world.quiet()

    async with world.inventory():
        await world.has(world.requests, "a request")
        await world.has(lambda: is_("Inqueue"), "the group in the queue")
        for ahead_s in (3_600, -3_600, 0):
            world.clock.set(ahead_s)
            world.clock.advance(5)
            await look()
            assert is_("Inqueue")
        world.clock.set(3_600)
        world.clock.advance(400)
        await look()
        await world.has(lambda: is_("Pending"), "the group without its claim")
        world.clock.set(0)
        world.clock.advance(80)
        await look()
        await world.has(lambda: is_("Inqueue"), "the group in the queue again")


@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
async def test_facts_have_the_times_of_the_host_also_after_its_clock_was_set(world: World, ahead_s: int) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory():
        await world.has(lambda: len(world.facts("node", NodesSeen)) == 1, "the node")
        await world.quiet()
        world.clock.set(ahead_s)
        world.clock.advance(5)
        world.kube.put("/api/v1/nodes", a_node("b"))
        await world.has(lambda: len(world.facts("node", NodesSeen)) == 2, "the other node")
        stored = await world.bus.read(StreamName.FACTS, filters=[f"{world.bus.subjects.root}fact.node.>"])
        found = [decode(one.data, NodesSeen).at_ms for one in stored]
        assert found[-1] == world.clock.now_ms()
        assert found[0] == world.clock.now_ms() - (ahead_s + 5) * 1_000


async def test_pods_that_are_gone_take_their_request_back(world: World) -> None:
    world.kube.put("/api/v1/namespaces/team/pods", a_pod("p"))
    async with world.inventory():
        await world.has(world.requests, "a request")
        (request,) = world.requests()
        job = JobSeen("team", request.name, request.uid, "accepted", 1, request=request)
        await world.bus.publish(world.bus.subjects.fact_job("team", request.name), encode(job))
        waiting = JobStatus("team", request.name, request.uid, "waiting", 0, 0)
        await world.bus.publish(world.bus.subjects.status("team", request.name), encode(waiting))
        await world.quiet()
        world.kube.confirm("/api/v1/namespaces/team/pods/p")
        await world.quiet()
        world.clock.advance(60)
        world.kube.relist()
        await world.has(lambda: world.history(StreamName.INTAKE, ".cancel.", JobCancel), "the cancelling")
    (cancel,) = world.history(StreamName.INTAKE, ".cancel.", JobCancel)
    assert (cancel.name, cancel.uid) == (request.name, request.uid)


async def test_statuses_that_a_killed_server_lost_are_read_again_and_older_ones_change_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[str, str, int]] = []
    monkeypatch.setattr(Loop, "note_status", lambda _, one: taken.append((one.name, one.phase, one.at_ms)))

    async def write(name: str, phase: Phase, at_ms: int) -> None:
        status = JobStatus("team", name, "u", phase, 0, at_ms)
        await world.bus.publish(world.bus.subjects.status("team", name), encode(status))

    stream = world.bus.subjects.stream(StreamName.STATUS)
    await write("a", "waiting", 1)
    async with world.inventory() as running:
        await world.has(lambda: taken == [("a", "waiting", 1)], "what there is")
        await write("b", "waiting", 2)
        await world.has(lambda: len(taken) == 2, "what comes")
        kept = dict(world.server.stream(stream).messages)
        await write("a", "placed", 3)
        await world.has(lambda: taken[2:] == [("a", "placed", 3)], "what will be lost")
        world.server.rewind(stream, max(kept))
        world.server.stream(stream).messages = kept
        await world.has(lambda: taken[3:] == [("b", "waiting", 2)], "what is left, without what is older")
        await write("a", "waiting", 2)
        await world.has(lambda: taken[4:] == [("a", "waiting", 2)], "what is written then, by whatever clock")
        assert not running.done()


async def test_each_verdict_is_taken_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(Loop, "note_job", lambda _, one: taken.append(one.name))

    async def write(name: str) -> None:
        seen = JobSeen("team", name, "u", "accepted", 1, at_ms=1)
        await world.bus.publish(world.bus.subjects.fact_job("team", name), encode(seen))

    await write("a")
    await write("b")
    async with world.inventory():
        await world.has(lambda: taken == ["a", "b"], "what there is")
        await write("c")
        await world.has(lambda: "c" in taken, "what comes")
    assert taken == ["a", "b", "c"]


@pytest.mark.parametrize("stream", [StreamName.LATEST, StreamName.STATUS])
async def test_messages_that_come_between_the_first_read_and_the_follow_after_it_count(
    world: World, monkeypatch: pytest.MonkeyPatch, stream: StreamName
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(Loop, "note_job", lambda _, one: taken.append(f"verdict on {one.name}"))
    monkeypatch.setattr(Loop, "note_status", lambda _, one: taken.append(f"status of {one.name}"))

    async def comes() -> None:
        seen = JobSeen("team", "a", "u", "accepted", 1, at_ms=1)
        await world.bus.publish(world.bus.subjects.fact_job("team", "a"), encode(seen))
        status = JobStatus("team", "b", "v", "waiting", 0, 1)
        await world.bus.publish(world.bus.subjects.status("team", "b"), encode(status))

    async with world.inventory(bus=BusyBus(world.server, stream, comes)):
        await world.has(lambda: {"verdict on a", "status of b"} <= set(taken), "both")


async def test_a_history_of_facts_that_went_backwards_ends_it(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))

    async def broken() -> None:
        async with world.inventory() as running:
            await world.has(world.nodes, "a fact")
            await world.quiet()
            world.server.rewind(world.bus.subjects.stream(StreamName.FACTS), 0)
            await asyncio.wait([running], timeout=5)

    with pytest.raises(ExceptionGroup, match="unhandled errors") as ended:
        await broken()
    assert "history went backwards" in repr(ended.value)


async def test_a_server_that_refuses_to_say_which_kinds_it_has_is_asked_again(world: World) -> None:
    for part in ("csistoragecapacities", "podgroups"):
        world.kube.fail(RefusedError("may not", status=403, cause="Forbidden"), method="GET", part=part)
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory():
        await world.has(lambda: world.facts("node", NodesSeen), "the node")


async def test_it_works_on_a_server_without_podgroups() -> None:
    bare = World(unserved=("podgroups",))
    await bare.bus.ensure_streams()
    bare.kube.put("/api/v1/namespaces/team/pods", a_pod("p"))
    async with bare.inventory():
        await bare.has(bare.requests, "a request")
    await bare.bus.close()


async def test_nothing_is_said_to_be_gone_before_all_is_listed(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    pod = a_pod("f", node="a", phase="Running", scheduler="volcano")
    pod["metadata"]["annotations"] = {RESOURCE: "Ascend910-0"}
    world.kube.put("/api/v1/namespaces/team/pods", pod)
    async with world.inventory():
        await world.has(lambda: world.phases() and world.nodes(), "pod and node")
    count = len(world.facts("pod", PodsSeen)) + len(world.facts("node", NodesSeen))
    world.kube.watching.clear()
    async with world.inventory():
        await world.quiet()
        assert len(world.facts("pod", PodsSeen)) + len(world.facts("node", NodesSeen)) == count
        world.kube.watching.set()
        await world.quiet()
    assert len(world.facts("pod", PodsSeen)) + len(world.facts("node", NodesSeen)) == count


async def test_a_bus_that_is_away_for_a_while_loses_nothing(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory():
        await world.has(world.nodes, "the node")
        world.server.is_down = True
        world.kube.put("/api/v1/nodes", a_node("b"))
        world.kube.put("/api/v1/namespaces/team/pods", a_pod("p"))
        await pause(0.05)
        world.server.is_down = False
        await world.has(lambda: sorted(world.nodes()) == ["a", "b"], "both nodes")
        await world.has(world.requests, "the request")


async def test_a_pod_whose_fact_got_no_answer_is_said_to_be_gone(world: World) -> None:
    bus = DeafBus(world.server, "test")
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory(bus=bus):
        await world.has(world.nodes, "the node")
        bus.unanswered = 2
        chips = {"huawei.com__Ascend910": "Ascend910-0,Ascend910-1"}
        world.kube.put(
            "/api/v1/namespaces/team/pods", a_pod("p", node="a", phase="Running", scheduler="other", **chips)
        )
        await world.has(lambda: world.phases() and bus.unanswered < 2, "a fact without an answer")
        world.kube.confirm("/api/v1/namespaces/team/pods/p")
        await world.has(lambda: world.phases()[-1][1] == [], "its end")


async def test_what_is_as_before_is_said_again_after_a_fact_without_an_answer(world: World) -> None:
    bus = DeafBus(world.server, "test")
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory(bus=bus):
        await world.has(lambda: world.nodes() == {"a": 100_000}, "the node")
        bus.unanswered = 1
        smaller = a_node("a")
        smaller["status"]["allocatable"]["cpu"] = "50"
        world.kube.put("/api/v1/nodes", smaller)
        await world.has(lambda: world.nodes() == {"a": 50_000}, "a fact without an answer")
        world.kube.put("/api/v1/nodes", a_node("a"))
        await world.has(lambda: world.nodes() == {"a": 100_000}, "the node as before")


async def test_a_request_that_was_told_of_and_not_stored_is_stored_by_the_next_run(world: World) -> None:
    world.kube.put("/api/v1/namespaces/team/pods", a_pod("p"))
    async with world.inventory():
        await world.has(world.requests, "a request")
    (request,) = world.requests()
    (members,) = world.facts("member", MembersSeen)
    again = World()
    again.kube = world.kube
    await again.bus.ensure_streams()
    await again.bus.publish(again.bus.subjects.fact_member("team", request.name), encode(members))
    async with again.inventory():
        await again.has(again.requests, "the request")
        await again.quiet()
    assert [one.uid for one in again.requests()] == [request.uid]
    assert len(again.facts("member", MembersSeen)) == 1
    await again.bus.close()


async def test_an_error_of_a_handler_ends_the_service(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Loop, _nodes: object) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr(Loop, "replace_nodes", fail)
    with pytest.raises(ExceptionGroup) as caught:
        async with world.inventory() as task:
            await world.has(task.done, "the end")
    assert caught.group_contains(ValueError, match="unforeseen")


def a_bound_pod(name: str, rank: int, sequence: int, *, stream: str = "creation 4") -> Tree:
    """A pod that a record of the ledger has bound; ``creation 4`` is the ledger's stream of this file's bus."""
    marks = {"berth__job": "job", "berth__uid": "u", "berth__attempt": "1", "berth__rank": str(rank)}
    return a_pod(name, node="a", phase="Running", berth__ledger=f"{stream}/3/{sequence}", **marks)


async def test_the_newest_record_that_a_pod_names_is_published_after_the_pods(world: World) -> None:
    stream = (await world.bus.state(StreamName.LEDGER)).created
    world.kube.put("/api/v1/nodes", a_node("a"))
    path = "/api/v1/namespaces/team/pods"
    for rank, sequence in enumerate((7, 12, 9)):
        world.kube.put(path, a_bound_pod(f"p{rank}", rank, sequence, stream=stream))
    world.kube.put(path, a_bound_pod("older", 3, 99, stream="another"))
    world.kube.put(path, a_pod("waits", berth__ledger=f"{stream}/3/77", berth__uid="u"))
    await world.bus.publish(
        world.bus.subjects.fact_job("team", "job"), encode(JobSeen("team", "job", "u", "accepted", 1))
    )
    async with world.inventory():
        await world.has(world.ledgers, "what pods say of the ledger")
        assert [(one.stream, one.epoch, one.sequence) for one in world.ledgers()] == [(stream, 3, 12)]
        subjects = [stored.subject for _, stored in sorted(world.server.stream("FACTS_test").messages.items())]
        assert max(n for n, one in enumerate(subjects) if ".fact.pod." in one) < subjects.index(
            world.bus.subjects.fact_ledger
        )
        world.clock.advance(1)
        world.kube.put(path, a_bound_pod("late", 4, 20, stream=stream))
        await world.has(lambda: [one.sequence for one in world.ledgers()] == [12, 20], "the newer record")
    async with world.inventory():
        await world.quiet()
    assert [one.sequence for one in world.ledgers()] == [12, 20]


async def test_the_ledger_is_not_confirmed_while_a_pod_waits_for_its_job(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    world.kube.put("/api/v1/namespaces/team/pods", a_bound_pod("p", 0, 7))
    async with world.inventory():
        await world.has(world.nodes, "the node")
        await world.quiet()
        assert world.ledgers() == []
        world.clock.advance(CONFIG.stranger_s + 1)
        world.kube.put("/api/v1/namespaces/team/pods", a_pod("other"))  # the clock alone wakes nobody
        await world.has(world.ledgers, "the fact")
        subjects = [stored.subject for _, stored in sorted(world.server.stream("FACTS_test").messages.items())]
        kinds = [kind for kind in (subject.split(".")[3] for subject in subjects) if kind in {"node", "ledger"}]
        assert kinds[0] == "node", "it has the resources of the pod from the first on"
        assert kinds[1:] == ["node", "ledger"], "and says when its chips will not be named any more"


async def test_without_bound_pods_the_stream_of_the_ledger_is_confirmed(world: World) -> None:
    stream = (await world.bus.state(StreamName.LEDGER)).created
    await world.bus.publish(world.bus.subjects.fact_ledger, encode(LedgerSeen("another", 1, 5)))
    async with world.inventory():
        await world.has(lambda: len(world.ledgers()) == 2, "the new stream")
    assert (world.ledgers()[-1].stream, world.ledgers()[-1].sequence) == (stream, 0)


async def test_a_pod_that_was_bound_and_came_and_went_unseen_is_gone_for_the_next_run(world: World) -> None:
    stream = (await world.bus.state(StreamName.LEDGER)).created
    subjects = world.bus.subjects
    request = JobRequest("team", "job", "u", RESOURCE, [Task("t", 2, 2)])
    await world.bus.publish(
        subjects.fact_job("team", "job"), encode(JobSeen("team", "job", "u", "accepted", 1, request=request))
    )
    await world.bus.publish(
        subjects.fact_outcome("team", "job"), encode(OutcomeSeen("team", "job", "u", 1, "bound", bound=2))
    )
    world.kube.put("/api/v1/nodes", a_node("a"))
    world.kube.put("/api/v1/namespaces/team/pods", a_bound_pod("p0", 0, 7, stream=stream))
    async with world.inventory():
        await world.has(lambda: world.phases() == [("job", ["RUNNING", "GONE"])], "the rank without a pod is gone")


async def test_a_map_of_leaf_switches_that_is_deleted_takes_the_switches_with_it(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    path = "/api/v1/namespaces/kube-system/configmaps"
    info = '{"server_list": [{"tor_ip": "sw", "server": [{"server_ip": "ip-a"}]}]}'
    world.kube.put(path, {"metadata": {"name": "basic-tor-node-cm"}, "data": {"tor_info": info}})

    def leaves() -> list[list[str]]:
        return [[leaf.name for leaf in fact.leaves] for fact in world.facts("topology", TopologySeen)]

    async with world.inventory():
        await world.has(lambda: leaves() == [["sw"]], "the switch")
        world.kube.confirm(f"{path}/basic-tor-node-cm")
        await world.has(lambda: leaves() == [["sw"], []], "no switch")


async def test_a_report_that_cannot_be_read_is_an_event_on_its_node(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    async with world.inventory():
        await world.has(world.nodes, "the node")
        row = NodeCondition("a", reason=f"device plug-in: {SUSPECT}: DeviceInfoCfg is not JSON")
        await world.bus.publish(world.bus.subjects.fact_health("bucket-all"), encode(pack_health("bucket-all", [row])))
        await world.has(lambda: world.kube.objects("/api/v1/events"), "an event")
    (event,) = world.kube.objects("/api/v1/events")
    assert (event["reason"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (
        "HealthSuspect", "Node", "a",
    )  # fmt: skip
    assert "DeviceInfoCfg is not JSON" in event["message"]
