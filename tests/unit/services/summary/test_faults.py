"""ConfigMaps about faults on an API server and a bus in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_health
from berth.runtime.errors import AmbiguousError, FatalError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus, Phase
from berth.schemas.subjects import StreamName
from berth.services.summary.app import write_on
from berth.services.summary.config import FaultObjectsConfig, SummaryConfig
from berth.services.summary.faults import book as book_module
from berth.services.summary.faults import bus_facts
from berth.services.summary.metrics import SummaryMetrics
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.fake_kube import FakeKube
from tests.support.waiting import until

COUNTERS = "/api/v1/namespaces/volcano-system/configmaps"
REASONS = "/api/v1/namespaces/mindx-dl/configmaps"
MAPS = "/api/v1/namespaces/team-a/configmaps"
PODS = "/api/v1/namespaces/team-a/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team-a/podgroups"
GROUP = "llm-5f2c"
KEY = f"team-a/{GROUP}"
SINCE_MS = 1_763_640_001_000
Tree = dict[str, Any]


def recovery(**changes: Any) -> RecoveryStatus:  # noqa: ANN401 - fields of the status
    made = RecoveryStatus(
        step=1,
        scope="pod",
        how="force",
        kind="CardUnhealthy",
        cause="pod of rank 3: its chip 2 on node n3 is unhealthy",
        ranks=[3],
        faulty=[3],
        since_ms=SINCE_MS,
        attempt=1,
        nodes=["n3"],
        open=[3],
    )
    return msgspec.structs.replace(made, **changes)


class Desk:
    """An API server and a bus that outlive the service."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - fields of the settings
        self.clock = ManualClock()
        self.clock.advance(SINCE_MS / 1000 + 60 - self.clock.now_ms() / 1000)
        self.kube = FakeKube(clock=self.clock)
        self.bus = FakeBus(FakeServer(self.clock), "c")
        self.config = SummaryConfig(
            settle_s=0.01,
            retry_wait_s=0.01,
            retry_wait_max_s=0.02,
            kept_s=60,
            tor_share_namespace="",
            fault_objects=FaultObjectsConfig(**{"written_by": "berth"} | settings),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        await self.bus.ensure_streams()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                write_on(self.kube, self.bus, self.clock, self.config, Instruments.make(SummaryMetrics), stop)
            )
            try:
                yield
            finally:
                stop.set()

    def group(self, *, phase: str = "Running", owner: str = "5f2c", **labels: str) -> None:
        owners = [{"kind": "AscendJob", "name": "llm", "uid": owner, "controller": True}]
        self.kube.put(
            GROUPS,
            {
                "metadata": {"name": GROUP, "ownerReferences": owners, "labels": labels},
                "spec": {"minMember": 1},
                "status": {"phase": phase},
            },
        )

    def pod(
        self, name: str, rank: int, node: str, *, step: int = 0, labels: dict[str, str] | None = None, uid: str = "u1"
    ) -> None:
        annotations = {
            "scheduling.k8s.io/group-name": GROUP,
            "hccl/rankIndex": str(rank + 1),
            "berth/job": "acjob.llm",
            "berth/uid": uid,
            "berth/attempt": "1",
            "berth/rank": str(rank),
            **({"berth/step": str(step)} if step else {}),
        }
        owners = [{"kind": "AscendJob", "name": "llm", "uid": "5f2c", "controller": True}]
        metadata = {"name": name, "uid": f"uid-{name}-{step}", "ownerReferences": owners}
        self.kube.put(
            PODS,
            {
                "metadata": {**metadata, "annotations": annotations, "labels": labels or {}},
                "spec": {"nodeName": node, "containers": [{"name": "main"}]},
                "status": {"phase": "Running"},
            },
        )

    async def status(
        self, found: RecoveryStatus | None, *, phase: Phase = "running", attempt: int = 1, uid: str = "u1"
    ) -> None:
        status = JobStatus("team-a", "acjob.llm", uid, phase, 1, 1, attempt=attempt, recovery=found)
        await self.bus.publish(self.bus.subjects.status("team-a", "acjob.llm"), encode(status))

    def data(self, path: str, name: str) -> Tree:
        found = [item for item in self.kube.objects(path) if item["metadata"]["name"] == name]
        data: Tree = found[0].get("data", {}) if found else {}
        return data

    def retries(self) -> Tree | None:
        """Counters; None before they are written."""
        text = self.data(COUNTERS, "vcjob-fault-npu-cm").get("remain-retry-times")
        found: Tree | None = None if text is None else json.loads(text or "{}")
        return found

    def restarts(self) -> Tree | None:
        text = self.data(REASONS, "job-reschedule-reason").get("recent-reschedule-records")
        found: Tree | None = None if text is None else json.loads(text or "{}")
        return found

    def reset(self) -> Tree:
        found: Tree = json.loads(self.data(MAPS, "reset-config-llm")["reset.json"])
        return found

    def put_reset(self, text: str, **data: str) -> None:
        self.kube.put(MAPS, {"metadata": {"name": "reset-config-llm"}, "data": {"reset.json": text, **data}})

    def writes(self, part: str) -> list[str]:
        return [call.method for call in self.kube.calls if part in call.path + str(call.body) and call.method != "GET"]

    async def until_retries(self, times: int | None) -> None:
        wanted = {} if times is None else {KEY: {"UUID": "5f2c", "Times": times}}
        await until(lambda: self.retries() == wanted, deadline_s=5, what=f"{times} retries are left")

    async def until_restarts(self, count: int) -> Tree:
        def listed() -> int:
            return len((self.restarts() or {}).get(KEY, {}).get("RescheduleRecords", []))

        await until(lambda: listed() == count, deadline_s=5, what=f"{count} restarts are told")
        found: Tree = (self.restarts() or {}).get(KEY, {})
        return found


def managed(manager: str, time: str, *keys: str) -> Tree:
    fields: Tree = {"f:data": {".": {}, **{f"f:{key}": {} for key in keys}}}
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}


async def test_nothing_is_written_while_another_scheduler_writes() -> None:
    desk = Desk(written_by="other")
    desk.group(**{"fault-retry-times": "3"})
    async with desk.running():
        await until(lambda: bool(desk.writes("job-summary-llm")), deadline_s=5, what="the summary is written")
    assert not desk.writes("vcjob-fault-npu-cm")
    assert not desk.writes("job-reschedule-reason")


async def test_without_faults_both_are_there_with_empty_values() -> None:
    desk = Desk()
    async with desk.running():
        await until(lambda: desk.restarts() is not None, deadline_s=5, what="both are written")
    assert desk.data(COUNTERS, "vcjob-fault-npu-cm") == {"fault-node": "", "remain-retry-times": ""}
    assert desk.data(REASONS, "job-reschedule-reason") == {"recent-reschedule-records": ""}
    assert desk.writes("vcjob-fault-npu-cm") == ["POST"]


async def test_the_counter_exists_from_when_the_job_runs_and_goes_with_it() -> None:
    desk = Desk()
    desk.group(phase="Inqueue", **{"fault-retry-times": "3"})
    async with desk.running():
        await desk.until_retries(None)
        desk.group(**{"fault-retry-times": "3"})
        await desk.until_retries(3)
        desk.group(phase="Unknown", **{"fault-retry-times": "9"})
        desk.group(phase="Unknown", owner="6a00", **{"fault-retry-times": "2"})
        await desk.until_retries(None)
        desk.group(owner="6a00", **{"fault-retry-times": "2"})
        await until(
            lambda: desk.retries() == {KEY: {"UUID": "6a00", "Times": 2}}, deadline_s=5, what="the next job counts"
        )
        desk.kube.confirm(f"{GROUPS}/{GROUP}")
        await desk.until_retries(None)
    assert desk.data(COUNTERS, "vcjob-fault-npu-cm")["remain-retry-times"] == ""


async def test_labels_of_pods_count_as_those_of_the_group_and_contradictions_count_for_nothing() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-0", 0, "n0", labels={"fault-retry-times": "2"})
    desk.pod("llm-1", 1, "n1", labels={"fault-retry-times": "2"})
    async with desk.running():
        await desk.until_retries(2)
    other = Desk()
    other.group(**{"fault-retry-times": "3"})
    other.pod("llm-0", 0, "n0", labels={"fault-retry-times": "2"})
    async with other.running():
        await other.until_retries(None)


async def test_a_restart_of_failed_pods_lowers_the_counter_and_a_restart_of_the_service_does_not_raise_it() -> None:
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    desk.pod("llm-3", 3, "n3")
    async with desk.running():
        await desk.until_retries(3)
        await desk.status(recovery(kind="pod-failed", retries_left=2))
        await desk.until_retries(2)
        await desk.status(recovery(step=2, since_ms=SINCE_MS + 9_000))
        await desk.until_restarts(2)
        assert desk.retries() == {KEY: {"UUID": "5f2c", "Times": 2}}
    wrote = desk.writes("vcjob-fault-npu-cm")
    async with desk.running():
        desk.pod("llm-4", 4, "n4")
        await desk.status(recovery(step=3, since_ms=SINCE_MS + 20_000))
        await desk.until_restarts(3)
    assert desk.retries() == {KEY: {"UUID": "5f2c", "Times": 2}}
    assert desk.writes("vcjob-fault-npu-cm") == wrote


async def test_counters_of_another_job_of_the_name_are_not_restored() -> None:
    desk = Desk()
    stored = {KEY: {"UUID": "old", "Times": 9}, "team-a/gone-1": {"UUID": "1", "Times": 1}}
    desk.kube.put(
        COUNTERS,
        {
            "metadata": {"name": "vcjob-fault-npu-cm"},
            "data": {"remain-retry-times": json.dumps(stored), "more": "x"},
        },
    )
    desk.group(**{"fault-retry-times": "3"})
    async with desk.running():
        await desk.until_retries(3)
    assert desk.data(COUNTERS, "vcjob-fault-npu-cm")["more"] == "x"
    assert desk.writes("vcjob-fault-npu-cm") == ["PATCH"]


async def test_a_restart_is_told_with_the_pods_that_caused_it() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    async with desk.running():
        await desk.status(recovery(how="mark"))
        await desk.status(recovery(faulty=[3, 5], ranks=[3, 5]))
        found = await desk.until_restarts(1)
        assert found == {
            "JobID": KEY,
            "TotalRescheduleTimes": 1,
            "RescheduleRecords": [
                {
                    "LogFileFormatTime": "I1120 12:00:01",
                    "RescheduleTimeStamp": SINCE_MS // 1000,
                    "ReasonOfTask": [
                        {
                            "RescheduleReason": "CardUnhealthy",
                            "PodName": "llm-3",
                            "NodeName": "n3",
                            "NodeRankIndex": "4",
                        },
                        {
                            "RescheduleReason": "CardUnhealthy",
                            "PodName": "",
                            "NodeName": "n3",
                            "NodeRankIndex": "5",
                        },
                    ],
                }
            ],
        }


async def test_a_later_step_of_a_recovery_is_no_other_restart_but_its_new_pods_are_told() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    desk.pod("llm-5", 5, "n5")
    async with desk.running():
        await desk.status(recovery())
        await desk.until_restarts(1)
        desk.pod("llm-3", 3, "n8", step=1)
        await desk.status(recovery(step=2, scope="job", ranks=[0, 3, 5], faulty=[3, 5]))
        await until(lambda: "'llm-5'" in str(desk.restarts()), deadline_s=5, what="the pod of the later step is told")
        found = await desk.until_restarts(1)
        told = [(pod["PodName"], pod["NodeName"]) for pod in found["RescheduleRecords"][0]["ReasonOfTask"]]
        assert told == [("llm-3", "n3"), ("llm-5", "n5")]
        assert found["TotalRescheduleTimes"] == 1
    wrote = desk.writes("job-reschedule-reason")
    async with desk.running():  # a restart recognises it
        desk.pod("llm-3", 3, "n8", step=1)
        await desk.status(recovery(step=3, since_ms=SINCE_MS + 1_000))
        found = await desk.until_restarts(2)
    assert found["RescheduleRecords"][0]["ReasonOfTask"][0]["NodeName"] == "n8"
    assert found["TotalRescheduleTimes"] == 2
    assert len(desk.writes("job-reschedule-reason")) == len(wrote) + 1


async def test_restarts_of_a_job_go_some_time_after_it() -> None:
    desk = Desk()
    desk.group()
    async with desk.running():
        await desk.bus.publish(
            desk.bus.subjects.fact_group("team-a", GROUP), encode(GroupSeen("team-a", GROUP, jobs=["acjob.llm"]))
        )
        await desk.status(recovery())
        await desk.until_restarts(1)
        desk.kube.confirm(f"{GROUPS}/{GROUP}")
        await desk.status(None, phase="cancelled")
        await until(lambda: desk.data(MAPS, "job-summary-llm")["operator"] == "delete", deadline_s=5, what="it is over")
        await desk.until_restarts(1)
        desk.clock.advance(61)
        desk.pod("other", 0, "n0")  # wakes the writer
        desk.kube.confirm(f"{PODS}/other")
        await desk.until_restarts(0)


async def test_a_partial_restart_is_told_to_the_agents_once_and_foreign_keys_stay() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    desk.put_reset('{"RankList":[{"RankId":1}],"RetryTime":1,"status":"x"}', mine="y")
    async with desk.running():
        await desk.status(recovery())
        await desk.until_restarts(1)
        assert desk.reset()["RetryTime"] == 1
        await desk.status(recovery(open=[], placed=True), phase="bound")
        await until(lambda: desk.reset()["RetryTime"] == 2, deadline_s=5, what="the restart is told")
    item = desk.kube.object(f"{MAPS}/reset-config-llm")
    assert item["metadata"]["labels"] == {"reset": "true"}
    assert (item["data"]["restartType"], item["data"]["mine"]) == ("podReschedule", "y")
    assert desk.reset() == {
        "RankList": [],
        "UpdateTime": SINCE_MS // 1000 + 60,
        "RetryTime": 2,
        "FaultFlushing": False,
        "GracefulExit": 0,
        "RestartFaultProcess": False,
        "status": "x",
    }
    async with desk.running():
        await desk.status(recovery(open=[], placed=True))
        await desk.status(recovery(step=2, since_ms=SINCE_MS + 5_000, open=[], placed=True))
        await until(lambda: desk.reset()["RetryTime"] == 3, deadline_s=5, what="the next restart is told")
    assert len(desk.writes("reset-config-llm")) == 2


async def test_a_restart_of_the_whole_job_counts_anew_once_the_next_attempt_is_bound() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    desk.put_reset('{"RetryTime":4}')
    whole = recovery(scope="job", open=[], placed=True)
    async with desk.running():
        await desk.status(whole, phase="running")
        await desk.until_restarts(1)
        await desk.status(whole, phase="placed", attempt=2)
        assert desk.reset()["RetryTime"] == 4
        await desk.status(whole, phase="bound", attempt=2)
        await until(lambda: desk.reset()["RetryTime"] == 0, deadline_s=5, what="the restart is told")
    assert len(desk.writes("reset-config-llm")) == 1


@pytest.mark.parametrize(("label", "is_told"), [("on", False), ("pause", True)])
async def test_agents_of_process_recovery_are_not_told_unless_it_pauses(label: str, *, is_told: bool) -> None:
    desk = Desk()
    desk.group(**{"process-recover-enable": label})
    desk.pod("llm-3", 3, "n3")
    desk.put_reset('{"RetryTime":4}')
    async with desk.running():
        await desk.status(recovery(open=[], placed=True))
        await desk.until_restarts(1)
        await until(lambda: desk.reset()["RetryTime"] == 4 + is_told, deadline_s=5, what="it is told, or not")
    assert bool(desk.writes("reset-config-llm")) is is_told


async def test_before_a_graceful_exit_agents_are_told_to_save_and_after_it_no_longer() -> None:
    desk = Desk()
    desk.group(subHealthyStrategy="graceExit")
    desk.pod("llm-3", 3, "n3")
    desk.put_reset('{"RankList":[{"RankId":1}]}')
    sick = recovery(kind="SubHealthFault", how="grace")
    async with desk.running():
        await desk.status(sick)
        await until(lambda: desk.reset().get("GracefulExit") == 1, deadline_s=5, what="agents are told to save")
        assert desk.reset()["RankList"] != []
        await desk.status(msgspec.structs.replace(sick, open=[], placed=True))
        await until(lambda: desk.reset()["GracefulExit"] == 0, deadline_s=5, what="agents need not save any more")
        assert desk.reset()["RetryTime"] == 1
    assert len(desk.writes("reset-config-llm")) == 2


async def test_what_others_write_in_between_is_read_again() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    desk.put_reset('{"RetryTime":1}')
    conflict = RefusedError("modified", status=409, cause="Conflict")
    desk.kube.fail(conflict, method="PATCH", part="reset-config-llm", times=4)
    async with desk.running():
        await desk.status(recovery(open=[], placed=True))
        await until(lambda: desk.reset()["RetryTime"] == 2, deadline_s=5, what="the restart is told")
    patches = [call for call in desk.kube.calls if call.method == "PATCH" and "reset-config" in call.path]
    assert len(patches) == 5
    assert all(call.body["metadata"]["resourceVersion"] for call in patches)


async def test_a_reset_config_that_is_missing_unreadable_or_refused_holds_up_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    async with desk.running():
        await desk.status(recovery(open=[], placed=True))
        await desk.until_restarts(1)
        desk.put_reset("{")
        await desk.status(recovery(step=2, since_ms=SINCE_MS + 1_000, open=[], placed=True))
        await desk.until_restarts(2)
        desk.kube.fail(RefusedError("no", status=403, cause="Forbidden"), part="reset-config-llm")
        await desk.status(recovery(step=3, since_ms=SINCE_MS + 2_000, open=[], placed=True))
        await desk.until_restarts(3)
        desk.put_reset("{}")
        desk.kube.fail(TransientError("busy"), part="reset-config-llm")
        await desk.status(recovery(step=4, since_ms=SINCE_MS + 3_000, open=[], placed=True))
        await until(lambda: desk.reset().get("RetryTime") == 1, deadline_s=5, what="the last restart is told")
    said = capsys.readouterr().out
    assert "reset-config is left as it is" in said
    assert "bind the role berth-summary-resets in this namespace" in said


async def test_faulty_nodes_are_told_by_what_is_worst_and_a_newer_report_alone_writes_nothing() -> None:
    desk = Desk()
    desk.kube.put("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {"huawei.com/Ascend910": "8"}}})
    subject = desk.bus.subjects.fact_health("d")

    def conditions(at_ms: int) -> bytes:
        return encode(
            pack_health(
                "d",
                [
                    NodeCondition(name="n1", unhealthy=0b1100, network_unhealthy=0b1, updated_ms=at_ms),
                    NodeCondition(name="n2", level=NodeHealth.EVICT, updated_ms=at_ms),
                    NodeCondition(name="n3", level=NodeHealth.SUB_HEALTHY, sub_healthy=1),
                    NodeCondition(name="n4", network_unhealthy=0b10, updated_ms=at_ms),
                ],
            )
        )

    def told() -> list[Tree]:
        found: list[Tree] = json.loads(desk.data(COUNTERS, "vcjob-fault-npu-cm").get("fault-node") or "[]")
        return found

    async with desk.running():
        await desk.bus.publish(subject, conditions(5_000))
        await until(lambda: len(told()) == 3, deadline_s=5, what="faulty nodes are told")
        first, second, third = told()
        assert (first["NodeName"], first["NodeHealthState"], first["UpdateTime"]) == ("n1", "CardUnhealthy", 5)
        assert first["UnhealthyNPU"] == ["Ascend910-2", "Ascend910-3"]
        assert first["NetworkUnhealthyNPU"] == ["Ascend910-0"]
        assert [(row["fault_type"], row["npu_name"]) for row in first["FaultDeviceList"]] == [
            ("CardUnhealthy", "Ascend910-2"),
            ("CardUnhealthy", "Ascend910-3"),
            ("CardNetworkUnhealthy", "Ascend910-0"),
        ]
        assert (second["NodeName"], second["NodeHealthState"]) == ("n2", "NodeUnhealthy")
        assert (third["NodeName"], third["NodeHealthState"]) == ("n4", "CardNetworkUnhealthy")
        assert third["NetworkUnhealthyNPU"] == ["npu-1"]
        wrote = desk.writes("vcjob-fault-npu-cm")
        await desk.bus.publish(subject, conditions(9_000))
        await desk.status(recovery())
        desk.group()
        desk.pod("llm-3", 3, "n3")
        await desk.until_restarts(1)
        assert desk.writes("vcjob-fault-npu-cm") == wrote
        await desk.bus.publish(subject, encode(pack_health("d", [])))
        await until(lambda: told() == [], deadline_s=5, what="no node is faulty")


async def test_more_nodes_than_a_config_map_holds_leave_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "COUNTERS_BYTES_MAX", 100)
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    async with desk.running():
        await desk.bus.publish(
            desk.bus.subjects.fact_health("d"), encode(pack_health("d", [NodeCondition(name="n1", unhealthy=1)]))
        )
        await desk.until_retries(3)
    assert desk.data(COUNTERS, "vcjob-fault-npu-cm")["fault-node"] == ""


@pytest.mark.parametrize("what", ["altered", "deleted"])
async def test_what_others_alter_or_delete_is_written_again_and_their_keys_stay(what: str) -> None:
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    async with desk.running():
        await desk.until_retries(3)
        if what == "deleted":
            desk.kube.confirm(f"{COUNTERS}/vcjob-fault-npu-cm")
        else:
            desk.kube.put(
                COUNTERS, {"metadata": {"name": "vcjob-fault-npu-cm"}, "data": {"remain-retry-times": "", "more": "x"}}
            )
        await desk.until_retries(3)
    assert desk.data(COUNTERS, "vcjob-fault-npu-cm").get("more") == ("x" if what == "altered" else None)


@pytest.mark.parametrize("error", [TransientError("busy"), AmbiguousError("no answer")])
async def test_failures_are_tried_again(error: Exception) -> None:
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    desk.kube.fail(error, method="POST", part="volcano-system", landed=isinstance(error, AmbiguousError))
    desk.kube.fail(error, method="GET", part="job-reschedule-reason")
    async with desk.running():
        await desk.until_retries(3)


async def test_texts_that_cannot_be_read_are_begun_anew(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    desk.kube.put(
        COUNTERS, {"metadata": {"name": "vcjob-fault-npu-cm"}, "data": {"remain-retry-times": '{"a": {"Times": "x"}}'}}
    )
    async with desk.running():
        await desk.until_retries(3)
    assert "remain-retry-times[...].Times" in capsys.readouterr().out


async def test_a_start_is_refused_while_another_client_writes() -> None:
    desk = Desk()
    desk.kube.put(
        COUNTERS,
        {
            "metadata": {
                "name": "vcjob-fault-npu-cm",
                "managedFields": [
                    managed("vc-scheduler", "2025-11-20T12:00:31Z", "fault-node", "remain-retry-times"),
                    managed("berth-summary", "2025-11-20T12:01:00Z", "remain-retry-times"),
                    managed("kubectl", "2025-11-20T12:01:00Z", "more"),
                ],
            },
            "data": {"fault-node": ""},
        },
    )
    with pytest.raises(ExceptionGroup) as caught:
        async with desk.running():
            await asyncio.sleep(0)
    (error,) = caught.value.exceptions
    assert isinstance(error, FatalError)
    assert error.reason.startswith(
        "vc-scheduler wrote remain-retry-times of ConfigMap volcano-system/vcjob-fault-npu-cm 30 s ago, and"
        " fault_objects.written_by is 'berth'"
    )
    assert not desk.writes("vcjob-fault-npu-cm")


@pytest.mark.parametrize("settings", [{"other_writer_s": 30}, {"other_writer_s": 0}])
async def test_what_another_client_left_some_time_ago_is_taken_over(settings: dict[str, int]) -> None:
    desk = Desk(**settings)
    entries = [managed("vc-scheduler", "2025-11-20T12:00:31Z", "recent-reschedule-records")]
    desk.kube.put(REASONS, {"metadata": {"name": "job-reschedule-reason", "managedFields": entries}, "data": {}})
    async with desk.running():
        await until(lambda: desk.restarts() is not None, deadline_s=5, what="it is written")


async def test_statuses_that_were_lost_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_facts, "_AGAIN_S", 0.01)
    desk = Desk()
    desk.group()
    desk.pod("llm-3", 3, "n3")
    async with desk.running():
        await desk.status(recovery())
        await desk.until_restarts(1)
        desk.bus.server.delete(desk.bus.subjects.stream(StreamName.STATUS))
        await desk.bus.ensure_streams()
        await desk.status(recovery(step=2, since_ms=SINCE_MS + 1_000))
        await desk.until_restarts(2)


async def test_messages_that_cannot_be_read_hold_up_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    async with desk.running():
        health = msgspec.structs.replace(pack_health("d", [NodeCondition(name="n1")]), unhealthy=b"x")
        await desk.bus.publish(desk.bus.subjects.fact_health("d"), encode(health))
        await desk.bus.publish(desk.bus.subjects.status("team-a", "acjob.llm"), b"x")
        await desk.until_retries(3)
        await until(
            lambda: capsys.readouterr().out.count("message about faults unreadable") > 0,
            deadline_s=5,
            what="it is logged",
        )


async def test_pods_of_jobs_that_are_over_are_forgotten_and_those_of_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(book_module, "_FORGOTTEN_MIN", 0)
    desk = Desk()
    desk.group(**{"fault-retry-times": "3"})
    desk.pod("llm-3", 3, "n3")

    def retries_of(times: int) -> None:
        desk.group(owner=f"{times}", **{"fault-retry-times": str(times)})

    async def settled(times: int) -> None:
        retries_of(times)
        wanted = {KEY: {"UUID": f"{times}", "Times": times}}
        await until(lambda: desk.retries() == wanted, deadline_s=5, what="it has settled again")

    async with desk.running():
        await desk.status(None)
        await settled(4)
        desk.kube.confirm(f"{PODS}/llm-3")
        await settled(5)
        await desk.status(recovery())
        found = await desk.until_restarts(1)
        assert found["RescheduleRecords"][0]["ReasonOfTask"][0]["PodName"] == "llm-3"
        await desk.status(recovery(), phase="failed")
        desk.pod("b-0", 0, "n0", uid="u2")
        desk.pod("c-0", 0, "n0", uid="u3")
        await settled(6)
        await settled(7)
        await desk.status(recovery(since_ms=SINCE_MS + 2_000, step=2))
        found = await desk.until_restarts(2)
        assert found["RescheduleRecords"][0]["ReasonOfTask"][0]["PodName"] == ""
