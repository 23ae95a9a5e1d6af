"""``tor-share-cm`` on an API server and a bus in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from berth.core.topologies.switches.summary import KEY
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Body, RefusedError
from berth.services.summary.app import write_on
from berth.services.summary.config import SummaryConfig
from berth.services.summary.leaf_share import MANAGED, NAME
from berth.services.summary.metrics import SummaryMetrics
from tests.support.chained_records import append_broken
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.fake_kube import FakeKube
from tests.support.leaf_ledger import RESOURCE, LeafLedger, leaf, switch_placement
from tests.support.waiting import until

MAPS = "/api/v1/namespaces/volcano-system/configmaps"
PODS = "/api/v1/namespaces/team-a/pods"
LEAVES = (
    leaf("198.51.100.2", {"192.0.2.31": "b0", "192.0.2.32": ""}),
    leaf("198.51.100.1", {"192.0.2.21": "a0", "192.0.2.22": "a1"}),
)
Tree = dict[str, Any]


class Desk:
    """An API server and a bus that outlive the service."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self.clock = ManualClock()
        self.kube = FakeKube(clock=self.clock)
        self.bus = FakeBus(FakeServer(self.clock), "c")
        self.ledger = LeafLedger(self.bus)
        self.config = SummaryConfig(**{"settle_s": 0.01, "retry_wait_max_s": 0.02} | settings)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                write_on(self.kube, self.bus, self.clock, self.config, Instruments.make(SummaryMetrics), stop)
            )
            try:
                yield
            finally:
                stop.set()

    async def placed(self) -> None:
        """Two leaves, and a job of two pods of which one is on a shared leaf."""
        await self.bus.ensure_streams()
        await self.ledger.topology(*LEAVES)
        await self.ledger.epoch()
        ranks = [("a0", "198.51.100.1", 2), ("b0", "198.51.100.2", 5)]
        await self.ledger.place("team-a", "vcjob.llm", "u1", switch_placement(ranks))

    def pod(self, name: str, node: str, *, owner: str = "llm", chips: int = 1, phase: str = "Running") -> None:
        owners = [{"kind": "Job", "name": owner, "uid": f"u-{owner}", "controller": True}] if owner else []
        requests = {"requests": {RESOURCE: str(chips)} if chips else {"cpu": "1"}}
        self.kube.put(
            PODS,
            {
                "metadata": {"name": name, "uid": f"uid-{name}", "ownerReferences": owners},
                "spec": {"nodeName": node, "containers": [{"name": "main", "resources": requests}]},
                "status": {"phase": phase},
            },
        )

    def found(self) -> Tree | None:
        """Content of the ConfigMap; None without one."""
        items = [item for item in self.kube.objects(MAPS) if item["metadata"]["name"] == NAME]
        told: Tree | None = json.loads(items[0]["data"][KEY]) if items else None
        return told

    def content(self) -> list[tuple[Tree, Tree]]:
        """Labels and data of the ConfigMap, if it is there."""
        return [(item["metadata"].get("labels", {}), item["data"]) for item in self.kube.objects(MAPS)]

    def states(self) -> dict[str, tuple[int, int]] | None:
        found = self.found()
        return None if found is None else {name: (it["IsSharedTor"], it["IsHealthy"]) for name, it in found.items()}

    def jobs(self) -> dict[str, list[str]]:
        return {node["NodeName"]: node["JobName"] for it in (self.found() or {}).values() for node in it["nodes"]}

    def writes(self) -> list[str]:
        return [call.method for call in self.kube.calls if call.path.startswith(MAPS) and call.method != "GET"]

    def has_seen_pods(self) -> bool:
        return any("job-summary" in str(call.body) for call in self.kube.calls)

    async def until_states(self) -> None:
        await self.until(
            lambda: self.states() == {"198.51.100.1": (2, 0), "198.51.100.2": (1, 1)}, "the states are told"
        )

    async def until(self, condition: Any, what: str) -> None:  # noqa: ANN401 - any condition
        await until(condition, deadline_s=5, what=what)


async def test_leaves_are_told_with_their_nodes_states_and_jobs_as_they_change() -> None:
    desk = Desk()
    await desk.placed()
    desk.pod("llm-0", "a0")
    desk.pod("llm-1", "b0")
    desk.pod("other", "a0", owner="")
    desk.pod("agent", "a1", owner="agents", chips=0)
    desk.pod("done", "a1", owner="old", phase="Succeeded")
    async with desk.running():
        await desk.until_states()
        (item,) = desk.kube.objects(MAPS)
        assert item["metadata"]["labels"] == {MANAGED[0]: MANAGED[1]}
        assert item["data"] == {
            KEY: '{"198.51.100.1":{"IsHealthy":0,"IsSharedTor":2,"nodes":['
            '{"NodeIp":"192.0.2.21","NodeName":"a0","JobName":["llm","other"]},'
            '{"NodeIp":"192.0.2.22","NodeName":"a1","JobName":[]}]},'
            '"198.51.100.2":{"IsHealthy":1,"IsSharedTor":1,"nodes":['
            '{"NodeIp":"192.0.2.31","NodeName":"b0","JobName":["llm"]},'
            '{"NodeIp":"192.0.2.32","NodeName":"","JobName":[]}]}}'
        }
        desk.pod("second", "a1", owner="next")
        await desk.until(lambda: desk.jobs()["a1"] == ["next"], "a pod that came is told")
        desk.kube.confirm(f"{PODS}/second")
        desk.pod("llm-1", "b0", phase="Failed")
        await desk.until(lambda: (desk.jobs()["a1"], desk.jobs()["b0"]) == ([], []), "pods that ended are not told")
        await desk.ledger.release("u1")
        await desk.until(
            lambda: set((desk.states() or {}).values()) == {(0, 0)}, "leaves of a job that is over are free"
        )


class LateAnswers(FakeKube):
    """An API server whose first answers to a write come after the watch has shown what others wrote then."""

    others = 2

    async def create(self, path: str, body: Body) -> bytes:
        return await self._late(await super().create(path, body))

    async def update(self, path: str, body: Body) -> bytes:
        return await self._late(await super().update(path, body))

    async def _late(self, answer: bytes) -> bytes:
        if json.loads(answer)["metadata"]["name"] == NAME and self.others:
            self.others -= 1
            (item,) = (one for one in self.objects(MAPS) if one["metadata"]["name"] == NAME)
            self.put(MAPS, {**item, "data": {KEY: "{}"}})
            for _ in range(100):
                await asyncio.sleep(0)
        return answer


async def test_what_others_wrote_right_after_a_write_is_seen_although_the_answer_comes_later() -> None:
    desk = Desk()
    desk.kube = kube = LateAnswers(clock=desk.clock)
    await desk.placed()
    async with desk.running():
        await desk.until(lambda: not kube.others, "others have written")
        await desk.until_states()


async def test_a_restart_writes_nothing() -> None:
    desk = Desk()
    await desk.placed()
    desk.pod("llm-0", "a0")
    async with desk.running():
        await desk.until_states()
    before = (desk.found(), desk.writes())
    async with desk.running():
        desk.pod("mark", "a1", owner="mark")
        await desk.until(lambda: desk.jobs()["a1"] == ["mark"], "the next run has looked")
    assert len(desk.writes()) == len(before[1]) + 1


@pytest.mark.parametrize("what", ["altered", "deleted", "unlabelled"])
async def test_it_is_written_again_when_somebody_alters_or_removes_it(what: str) -> None:
    desk = Desk()
    await desk.placed()
    async with desk.running():
        await desk.until_states()
        wanted, before = desk.kube.object(f"{MAPS}/{NAME}"), desk.content()
        count = len(desk.writes())
        if what == "deleted":
            desk.kube.confirm(f"{MAPS}/{NAME}")
        elif what == "altered":
            desk.kube.put(MAPS, {**wanted, "data": {KEY: "{}", "more": "x"}})
        else:
            desk.kube.put(MAPS, {**wanted, "metadata": {"name": NAME, "labels": {}}})
        await desk.until(lambda: desk.content() == before, "it is written again")
    assert desk.writes()[count:] == (["POST"] if what == "deleted" else ["PUT"])


async def test_one_that_another_scheduler_left_is_taken_over() -> None:
    desk = Desk()
    desk.kube.put(MAPS, {"metadata": {"name": NAME}, "data": {KEY: "{}"}})
    await desk.placed()
    async with desk.running():
        await desk.until_states()
    assert desk.writes() == ["PUT"]


@pytest.mark.parametrize("how", ["policy", "topology", "single layer"])
async def test_it_goes_when_the_policy_or_the_switches_go_and_comes_again(how: str) -> None:
    desk = Desk()
    await desk.placed()
    async with desk.running():
        await desk.until_states()
        if how == "policy":
            await desk.ledger.epoch("1.0")
        elif how == "topology":
            await desk.ledger.topology()
        else:
            await desk.ledger.topology(*LEAVES, level="single_layer")
        await desk.until(lambda: desk.found() is None, "it is removed")
        await desk.ledger.topology(*LEAVES)
        await desk.ledger.epoch()
        await desk.until_states()


async def test_nothing_is_written_without_policy_2_and_what_is_not_ours_is_not_removed() -> None:
    desk = Desk()
    desk.kube.put(MAPS, {"metadata": {"name": NAME}, "data": {KEY: "{}"}})
    await desk.placed()
    await desk.ledger.epoch("1.0")
    async with desk.running():
        desk.pod("llm-0", "a0")
        await desk.until(desk.has_seen_pods, "pods are seen")
        await desk.ledger.topology()
        await desk.ledger.epoch("2.0")
        assert desk.writes() == []
        await desk.ledger.topology(*LEAVES)
        await desk.until_states()
    assert desk.writes() == ["PUT"]


async def test_before_the_first_epoch_what_is_there_stays() -> None:
    desk = Desk()
    desk.kube.put(MAPS, {"metadata": {"name": NAME, "labels": dict([MANAGED])}, "data": {KEY: "{}"}})
    await desk.bus.ensure_streams()
    await desk.ledger.topology()
    async with desk.running():
        desk.pod("llm-0", "a0")
        await desk.until(desk.has_seen_pods, "pods are seen")
        assert desk.writes() == []
        await desk.ledger.epoch()
        await desk.until(lambda: desk.found() is None, "without switches it is removed")


async def test_with_decisions_that_follow_the_reference_jobs_count_from_the_decision_on_all_the_same() -> None:
    desk = Desk()
    await desk.placed()
    await desk.ledger.epoch(reference_parity=True)
    async with desk.running():
        await desk.until_states()


async def test_a_missing_namespace_is_said_once_and_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk()
    await desk.placed()
    absent = RefusedError('namespaces "volcano-system" not found', status=404, cause="NotFound")
    desk.kube.fail(absent, method="POST", part="volcano-system", times=5)
    async with desk.running():
        await desk.until_states()
    assert desk.writes() == ["POST"] * 6
    assert capsys.readouterr().out.count("leaf switch facts not written") == 1


@pytest.mark.parametrize("error", [TransientError("busy"), AmbiguousError("no answer")])
async def test_failures_are_tried_again(error: Exception) -> None:
    desk = Desk()
    await desk.placed()
    desk.kube.fail(error, method="POST", part="volcano-system", landed=isinstance(error, AmbiguousError))
    async with desk.running():
        await desk.until_states()


async def test_more_than_a_config_map_holds_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.services.summary.leaf_share._BYTES_MAX", 100)
    desk = Desk()
    await desk.placed()
    desk.kube.put(MAPS, {"metadata": {"name": NAME, "labels": dict([MANAGED])}, "data": {KEY: "{}"}})
    async with desk.running():
        await desk.until(lambda: desk.found() is None, "what is old is removed")
    assert desk.writes() == ["DELETE"]


async def test_a_ledger_that_cannot_be_read_leaves_summaries_and_what_was_told_alone() -> None:
    desk = Desk()
    await desk.placed()
    async with desk.running():
        await desk.until_states()
        told = desk.writes()
        await append_broken(desk.bus)
        desk.pod("llm-0", "a0")
        await desk.until(desk.has_seen_pods, "summaries go on")
        await desk.ledger.epoch("1.0")
    assert desk.writes() == told


async def test_an_empty_namespace_switches_it_off() -> None:
    desk = Desk(tor_share_namespace="")
    await desk.placed()
    desk.pod("llm-0", "a0")
    async with desk.running():
        await desk.until(desk.has_seen_pods, "pods are seen")
    assert not [call for call in desk.kube.calls if NAME in str(call)]
