"""Restarts that summary tells: their reasons, and what agents in the containers read."""

import msgspec
import pytest

from berth.formats.ascend.reset_config import recovery_mark
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.status import JobStatus
from berth.services.summary.faults.fault_records import FaultRecords
from tests.support.fault_desk import GROUP, GROUPS, KEY, MAPS, PODS, SINCE_MS, Desk, recovery
from tests.support.waiting import until


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


async def test_a_pod_of_another_namespace_with_the_uid_of_the_job_is_not_told() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-0", 0, "n0")
    desk.pod("mine", 3, "n9", pods="/api/v1/namespaces/team-b/pods")
    async with desk.running():
        await desk.status(recovery(faulty=[3], ranks=[3]))
        found = await desk.until_restarts(1)
    assert found["RescheduleRecords"][0]["ReasonOfTask"][0]["PodName"] == ""


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


async def test_a_later_step_of_a_recovery_keeps_the_restarts_before_it() -> None:
    desk = Desk()
    desk.group()
    desk.pod("llm-5", 5, "n5")
    later_ms = SINCE_MS + 1_000
    async with desk.running():
        await desk.status(recovery())
        await desk.until_restarts(1)
        await desk.status(recovery(step=2, since_ms=later_ms))
        await desk.until_restarts(2)
        await desk.status(recovery(step=3, since_ms=later_ms, ranks=[3, 5], faulty=[3, 5]))
        await until(lambda: "'llm-5'" in str(desk.restarts()), deadline_s=5, what="the pod of the later step is told")
        found = await desk.until_restarts(2)
    assert [len(record["ReasonOfTask"]) for record in found["RescheduleRecords"]] == [2, 1]


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
    looks = desk.looks()
    async with desk.running():
        await until(lambda: desk.looks() > looks, deadline_s=5, what="the next run looks")
        await desk.status(recovery(step=2, since_ms=SINCE_MS + 5_000))
        await desk.until_restarts(2)
        assert desk.reset()["RetryTime"] == 2
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
        await desk.status(recovery(step=2, since_ms=SINCE_MS + 1_000))
        await desk.until_restarts(2)  # so what follows from the first is done
        assert desk.reset()["RetryTime"] == 4 + is_told
    assert bool(desk.writes("reset-config-llm")) is is_told


@pytest.mark.parametrize(
    ("later_ms", "uid", "left"), [(-1, "u1", 0), (0, "u1", 0), (1, "u1", 1), (1, "of another request", 0)]
)
async def test_after_a_graceful_exit_agents_need_not_save_unless_a_later_recovery_wants_it(
    later_ms: int, uid: str, left: int
) -> None:
    desk = Desk()
    desk.group(subHealthyStrategy="graceExit")
    desk.pod("llm-3", 3, "n3")
    sick = recovery(kind="SubHealthFault", how="grace")
    async with desk.running():
        await desk.status(sick)
        await desk.until_restarts(1)
        mark = recovery_mark(uid, sick.since_ms + later_ms)
        desk.put_reset('{"GracefulExit":1}', saves=mark)
        await desk.status(msgspec.structs.replace(sick, open=[], placed=True))
        await until(lambda: desk.reset().get("RetryTime") == 1, deadline_s=5, what="the restart is told")
    assert desk.reset()["GracefulExit"] == left
    assert len(desk.writes("reset-config-llm")) == 1


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


def test_a_recovery_of_a_job_without_a_known_podgroup_is_no_restart_yet() -> None:
    def records() -> FaultRecords:
        return FaultRecords(str, kept_s=60, changed=lambda: None)

    seen, nothing = records(), records()
    seen.take_status(JobStatus("team-a", "acjob.llm", "u1", "running", 1, 1, attempt=1, recovery=recovery()))
    assert seen.settle(100) == nothing.settle(100)
