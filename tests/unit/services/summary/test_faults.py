"""ConfigMaps about faults on an API server and a bus in memory: counters, faulty nodes, other writers, failures."""

import asyncio
import json

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_health
from berth.runtime.errors import AmbiguousError, FatalError, TransientError
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName
from berth.services.summary.faults import bus_facts, fault_records
from tests.support.fault_desk import COUNTERS, GROUP, GROUPS, KEY, PODS, REASONS, SINCE_MS, Desk, Tree, recovery
from tests.support.waiting import until


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
        await desk.until_restarts(1)
        desk.pod("llm-5", 5, "n5")
        await desk.status(recovery(kind="pod-failed", retries_left=2, faulty=[3, 5], ranks=[3, 5]))
        await until(lambda: "'llm-5'" in str(desk.restarts()), deadline_s=5, what="it has settled again")
        assert desk.retries() == {KEY: {"UUID": "5f2c", "Times": 3}}, "pods that fail the job are still there"
        desk.kube.confirm(f"{PODS}/llm-3")
        desk.kube.confirm(f"{PODS}/llm-5")
        desk.pod("llm-3b", 3, "n8", step=1)
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
    monkeypatch.setattr(fault_records, "COUNTERS_BYTES_MAX", 100)
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
    monkeypatch.setattr(fault_records, "_FORGOTTEN_MIN", 0)
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
